"""Rows that read the same are computed once: evaluation and decoding by a table.

Where every head follows lines, a row is given by the states that it reads. So states get numbers
layer by layer: equal numbers, equal states. What was not met before is computed, in float64, and
kept for all samples, lengths and passes.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from abc_calib.geometry import CORNER, LineBias
from abc_calib.geometry.coords import AttentionView, Coords
from abc_calib.geometry.lines import Heads, Site
from abc_calib.nn.positions import Scheme
from abc_calib.nn.transformer import rows as sizes
from abc_calib.nn.transformer.blocks import Blocks, States
from abc_calib.nn.transformer.rows import Full, Layer
from abc_calib.plugins.registry import is_ours

MOST_BYTES = 2**30
"""What all tables together may hold."""
TRIED = 2**19
"""Different rows from which on a table is given up if more than half of all rows are new."""
FEWEST = 512
"""Rows of the smallest pass in decoding, of all samples together."""
HOOKS = {"forward", "embed", "rotate", "score_bias", "renumber", "starts"}
"""What a layer or a scheme has of its class, and not set on itself."""


@dataclass(frozen=True)
class Read:
    """Sources: where their tokens stand, and what blocks read of them, ``(b, s)`` numbers each."""

    at: Coords
    numbers: tuple[Tensor, ...]


class Windows:
    """All rows of a model that were met, on the numbers of its layers."""

    def __init__(self, model: Any, period: int):
        self.model, self.period = model, period
        self.blocks = blocks = Blocks(model, period)
        lines, self._lock = model.lines, threading.Lock()
        self._asked = 0
        self._most = torch.empty(0, dtype=torch.long)
        source: States | Layer = States(blocks.tokens["encoder"])
        encoded: list[States | Layer] = [source]
        for k in range(model.attention_layers["encoder"]):
            heads = lines.heads("encoder", k)
            below: dict[Site, Any] = {"encoder": source}
            source = Layer(blocks, "encoder", k + 1, [[("encoder", heads)]], below)
            encoded.append(source)
        self.read_layers = [layer for layer in encoded if isinstance(layer, Layer)]
        output: States | Layer = States(blocks.tokens["self"])
        self.layers: list[Layer] = []
        decoder = len(blocks.decoder)
        for k in range(decoder):
            parts: list[tuple[Site, Heads]] = [
                (site, lines.heads(site, k)) for site in ("self", "cross")
            ]
            crossed = encoded[k] if model.stream else source
            how = [parts] if model.stream else [[part] for part in parts]
            sites: dict[Site, States | Layer] = {"self": output, "cross": crossed}
            output = Layer(blocks, "self", k + 1, how, sites, last=k == decoder - 1)
            self.layers.append(output)
        layers = (*self.read_layers, *self.layers)
        if any(sizes.PART + layer.pairs > sizes.CODE for layer in layers):
            raise Full("a layer has many lines that may meet")

    # Numbers of tokens

    @torch.inference_mode()
    def read(self, source: Tensor) -> Read:
        """Sources ``(b, s)``, read."""
        model = self.model
        at = model.of_source(source)
        numbers = [self._tokens(source, at.length - 1 - at.position)]
        at = at.alike
        view = AttentionView("encoder", at, at, causal=model.stream)
        for layer in self.read_layers:
            numbers.append(layer.numbers(numbers[-1], {"encoder": numbers[-1]}, {"encoder": view}))
            self._check(0)
        decoder = len(self.layers)
        return Read(at, tuple(numbers[:decoder] if model.stream else numbers[-1:] * decoder))

    def _tokens(self, ids: Tensor, place: Tensor) -> Tensor:
        if self.period > 1:
            ids = ids * self.period + place % self.period
        return ids.int()

    def _written(
        self, read: Read, ids: Tensor, at: Coords, numbers: list[Tensor], rows: slice
    ) -> None:
        """Fill in the numbers of some columns: ``numbers[k] (b, t)`` after ``k`` layers.

        ``ids (b, i)``: what the decoder reads there, ``at``: where that stands.
        """
        numbers[0][:, rows] = self._tokens(ids, at.position)
        at = at.alike
        views: dict[Site, AttentionView] = {
            "self": AttentionView("self", at, at, True),
            "cross": AttentionView("cross", at, read.at),
        }
        for k, layer in enumerate(self.layers):
            below: dict[Site, Tensor] = {"self": numbers[k], "cross": read.numbers[k]}
            numbers[k + 1][:, rows] = layer.numbers(numbers[k][:, rows], below, views)
            self._check(ids.numel() if layer.last else 0)

    def _check(self, rows: int) -> None:
        """``Full`` where the tables do not pay or do not fit."""
        self._asked += rows
        layers = [*self.read_layers, *self.layers]
        new = max(layer.numbering.count for layer in layers)
        size = sum(layer.size for layer in layers)
        if size > MOST_BYTES or 2 * new > max(2 * TRIED, self._asked):
            raise Full(f"it has read {new:,} different windows")

    def _empty_numbers(self, b: int, t: int) -> list[Tensor]:
        return [torch.empty(b, t, dtype=torch.int32) for _ in range(len(self.layers) + 1)]

    # What is written

    def logits(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits ``(b, t, v)`` of each token of ``target``, the right ones before it given."""
        number = self._forced(source, target).long()
        return self.layers[-1].states.states[number]

    def best(self, source: Tensor, target: Tensor) -> Tensor:
        """The most likely tokens ``(b, t)`` there."""
        number = self._forced(source, target)
        with self._lock:
            return self._likely().index_select(0, number.view(-1)).view(number.shape)

    @torch.inference_mode()
    def _forced(self, source: Tensor, target: Tensor) -> Tensor:
        """Number of the row ``(b, t)`` before each token of ``target``, the right ones given."""
        with self._lock:
            read, inputs = self.read(source), self.model.shifted(target)
            numbers = self._empty_numbers(*inputs.shape)
            at = self.model.of_output(inputs)
            self._written(read, inputs, at, numbers, slice(0, inputs.shape[1]))
        return numbers[-1]

    @torch.inference_mode()
    def decode(self, source: Tensor, steps: int, draft: Tensor) -> Tensor:
        """The greedy output ``(b, steps)``, in passes over a draft.

        A pass gives each row whose earlier tokens are right its right token, whatever stands in
        later rows. So what comes out is put in, and every row up to the first that changed is what
        token-by-token decoding writes: speculative decoding (Leviathan et al. 2023,
        arXiv:2211.17192) of a draft, and Jacobi decoding (Santilli et al. 2023, arXiv:2305.10427)
        where there is none.
        """
        model, b = self.model, len(source)
        with self._lock:
            read, numbers = self.read(source), self._empty_numbers(b, steps)
            ids = source.new_full((b, 1 + steps), model.pad)  # what the decoder reads
            ids[:, 0] = model.sos
            seen = min(steps, draft.shape[1])
            ids[:, 1 : 1 + seen] = draft[:, :seen]
            fixed, rows, after = 0, max(seen, FEWEST // max(b, 1), 1), None
            ended = torch.zeros(b, 1, dtype=torch.bool)
            while fixed < steps and not bool(ended.all()):
                end = min(fixed + rows, steps)
                if seen < end:  # a chain of carries repeats the last token
                    ids[:, seen + 1 : end + 1] = ids[:, fixed : fixed + 1]
                    seen = end
                inputs, guess = ids[:, fixed:end], ids[:, fixed + 1 : end + 1]
                at = model.of_output(inputs, after)
                self._written(read, inputs, at, numbers, slice(fixed, end))
                written = self._likely()[numbers[-1][:, fixed:end].long()]
                ended_before = ended | (inputs.eq(model.eos).cumsum(1, dtype=torch.int32) > 0)
                written.masked_fill_(ended_before, model.pad)
                changed = (written != guess).any(0).nonzero()
                gain = int(changed[0]) + 1 if len(changed) else end - fixed
                guess.copy_(written)
                ended |= written[:, :gain].eq(model.eos).any(1, keepdim=True)
                after, rows = at.only(slice(gain - 1, gain)), max(2 * gain, FEWEST // max(b, 1), 1)
                fixed += gain
            ids[:, fixed + 1 :] = model.pad
        return ids[:, 1:]

    def _likely(self) -> Tensor:
        """The token of the highest logit of each row that was met, by its number ``(n,)``."""
        logits, most = self.layers[-1].states.states, self._most
        if len(most) < len(logits):
            self._most = torch.cat([most, logits[len(most) :].argmax(-1)])
        return self._most


# Is a row given by what it reads?


def unknown_part(model: Any) -> str:
    """A layer or scheme that is not plainly ours or torch's, and may compute anything."""
    for name, module in model.named_modules():
        hooks = module._forward_hooks or module._forward_pre_hooks
        trusted = is_ours(type(module), ["abc_calib", "torch"])
        if not trusted or hooks or HOOKS & vars(module).keys():
            reason = "has a hook" if hooks else f"is a {type(module).__name__} of one's own"
            return f"{name or 'the model'} {reason}"
    return ""


def window_period(model: Any) -> int | str:
    """Modulo what positions are known, or why rows are not given by what they read."""
    lines = model.lines
    if lines is None:
        return "its attention is not restricted to lines: abc calibrate it"
    if part := unknown_part(model):
        return f"{part}, which a certificate cannot follow"
    for site, layer, head in lines.transparent():
        return f"head {head} of layer {layer} ({site}-attention) is transparent: it sees all"
    if lines.off_line_bias is not None:
        return f"keys off its lines are only penalised ({lines.off_line_bias:g}): it sees all"
    if getattr(model.options, "post_norm", False):
        return "its blocks are post-norm"
    if any(n and site not in lines.sites for site, n in model.attention_layers.items()):
        return "its attention is not restricted to lines at every site"
    if any(line.segment == CORNER for line in lines.every()):
        return "its lines count from corners of a matrix of fixed size"
    return scheme_period(model, lines)


def scheme_period(model: Any, lines: LineBias) -> int | str:
    """The same as far as it rests on position schemes."""
    scheme = model.positions
    if part := unknown_part(scheme):
        return part
    named = model.options.scheme
    if type(scheme).renumber is not Scheme.renumber:
        return "its positions are drawn anew for every length"
    absolute = type(scheme).embed is not Scheme.embed
    period = getattr(model, "period", None)
    if absolute and period is None:
        return f"its positions ({named}) are absolute and grow with length"
    rotates = type(scheme).rotate is not Scheme.rotate or scheme.has_score_bias
    if rotates and (model.stream or any(len(head) != 1 for *_, head in lines.each())):
        return f"its scores depend on positions ({named}) where a head has several lines"
    return period if absolute and period else 1
