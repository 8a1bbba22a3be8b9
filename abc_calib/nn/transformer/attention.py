"""Multi-head attention, the block of both kinds of Transformer, and what decoding keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from abc_calib.config import DecoderOptions, TransformerOptions
from abc_calib.errors import UsageError
from abc_calib.geometry import Site
from abc_calib.geometry.coords import AttentionView, Coords
from abc_calib.nn.attend import MASKED, attend, one_key, opened, scored, weights_of
from abc_calib.nn.lines import LineGather, side_by_side
from abc_calib.nn.positions import Scheme

GATHER_FROM = 64
"""From this many keys on, gathering a few keys a query is faster than scoring all of them."""

Part = tuple[Tensor, Tensor]
"""Keys and values of what one view shows, ``(b, h, j, e)`` each."""
Scores = list[Tensor] | None
"""Collects the scores ``(b, h, i, j)`` of each attention before softmax, if they are asked for."""


class Cache:
    """Keys and values of each block, of the source and of the output so far.

    ``at``: where the tokens of the output stand, None before the first. ``source`` and ``output``:
    keys and values ``(b, h, n, e)`` of each block; those of the output grow in place.
    """

    def __init__(self) -> None:
        self.at: Coords | None = None
        self.output: dict[nn.Module, Part] = {}
        self.source: dict[nn.Module, Part] = {}

    def view(self, queries: Coords) -> AttentionView:
        """How new tokens see themselves and those before them."""
        self.at = queries if self.at is None else self.at.before(queries)
        return AttentionView("self", queries, self.at, causal=True)

    def extended(self, block: nn.Module, new: Part) -> Part:
        """Keys and values of all tokens so far, the ``new`` ones last; a full buffer doubles."""
        assert self.at is not None
        end, grown = self.at.size, list[Tensor]()
        first = end - new[0].shape[2]
        for buffer, x in zip(self.output.get(block, (None, None)), new, strict=True):
            if buffer is None or end > buffer.shape[2]:
                before = x[:, :, :0] if buffer is None else buffer[:, :, :first]
                room = x.new_zeros(*x.shape[:2], 2 * end - first, x.shape[3])
                buffer = torch.cat([before, room], 2)
            buffer[:, :, first:end] = x
            grown.append(buffer)
        self.output[block] = grown[0], grown[1]
        return grown[0][:, :, :end], grown[1][:, :, :end]


class Attention(nn.Module):
    """Vaswani et al. 2017, section 3.2, with a sum of biases before softmax.

    ``lines``: what its heads follow, by the site of the last view (of a stream's two: ``self``).
    ``path`` chooses how restricted heads are computed: ``dense`` scores every key, ``lines``
    gathers the few keys on the lines (cost linear in length), ``auto`` picks by length. Both
    give the same numbers up to rounding. Where every head has exactly one key for a query, softmax
    over it is 1 and ``lines`` needs neither queries nor keys.
    """

    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        self.lines: dict[Site, LineGather] = {}
        self.path = "auto"

    def project(
        self, memory: Tensor, at: Coords, scheme: Scheme, site: Site, scores: Scores = None
    ) -> Part:
        """Keys and values of ``memory (b, j, d)``, for a call whose last view is of a ``site``.

        Without keys where every head reads exactly one for a query, and needs no scores.
        """
        lines, values = self.lines.get(site), self._split(self.value(memory))
        if lines is not None and lines.single and self.path != "dense" and scores is None:
            return values[..., :0], values
        return scheme.rotate(self._split(self.key(memory)), at), values

    def forward(
        self,
        x: Tensor,  # (b, i, d)
        parts: Sequence[Part],
        views: Sequence[AttentionView],
        scheme: Scheme,
        scores: Scores = None,
    ) -> Tensor:
        """The output ``(b, i, d)``. ``parts`` come from ``project``, one for each of ``views``."""
        dropout = self.dropout if self.training else 0.0
        lines, (keys, values) = self.lines.get(views[-1].site), parts[0]
        if lines is not None and not keys.shape[-1]:  # none is compared
            mixed = _along(lines, [values for _, values in parts], views)
            return self.output(F.dropout(mixed, dropout))
        if len(parts) > 1:
            keys, values = (torch.cat(tensors, 2) for tensors in zip(*parts, strict=True))
        queries = scheme.rotate(self._split(self.query(x)), views[0].queries)
        gathers = self.path == "lines" or (self.path == "auto" and keys.shape[2] >= GATHER_FROM)
        restricted = lines is not None and lines.restricted and not scheme.has_score_bias
        if lines is not None and restricted and gathers and scores is None:
            mixed = attend(queries, keys, values, lines.gathered(views), dropout)
        else:
            bias, nowhere = bias_of(queries, keys, views, scheme, lines)
            if scores is None:
                mixed = attend(queries, keys, values, bias, dropout)
            else:
                scores.append(scored(queries, keys, bias))
                mixed = F.dropout(weights_of(scores[-1]), dropout) @ values
            if nowhere is not None:
                mixed = mixed.masked_fill(nowhere, 0)
        return self.output(rearrange(mixed, "b h i e -> b i (h e)"))

    def _split(self, x: Tensor) -> Tensor:
        return rearrange(x, "b i (h e) -> b h i e", h=self.heads)


def bias_of(
    queries: Tensor,
    keys: Tensor,
    views: Sequence[AttentionView],
    scheme: Scheme,
    lines: LineGather | None,
) -> tuple[Tensor, Tensor | None]:
    """The sum of everything added to the scores, ``(b|1, h|1, i|1, j)``.

    And, with lines, which queries have no key left.
    """
    visible = side_by_side([view.mask for view in views])
    total = torch.zeros(visible.shape, device=queries.device).masked_fill_(~visible, MASKED)
    nowhere = None
    if lines is not None:
        total, nowhere = opened(total + lines.dense(views), total)
    if scheme.has_score_bias:
        view = views[-1]  # of a stream, source and output are one sequence
        if len(views) > 1:
            view = replace(view, keys=views[0].keys.before(view.keys))
        elif view.causal:
            view = replace(view, site="self")
        extra = scheme.score_bias(queries, keys, view)
        if extra is not None:
            shape = (*queries.shape[:3], keys.shape[2])
            if len(extra.shape) != 4 or any(
                n not in (1, most) for n, most in zip(extra.shape, shape, strict=True)
            ):
                raise UsageError(
                    f"score_bias gives the shape {(*extra.shape,)}: give batch, heads, queries and "
                    f"keys, here {shape}, or 1 for any of them"
                )
            total = total + extra
    return total.to(queries.dtype), nowhere


def _along(lines: LineGather, values: Sequence[Tensor], views: Sequence[AttentionView]) -> Tensor:
    """Where every head has one key for a query: ``(b, i, d)``.

    From source and output apart, so that a step does not copy all of the source. What a head names
    in the part without its line is of no meaning.
    """
    keys = (lines.positions(view)[0][..., 0] for view in views)
    outputs = [one_key(part, key) for part, key in zip(values, keys, strict=True)]
    if len(outputs) == 1:
        return outputs[0]
    in_source = lines.at(views[0].site, outputs[0].device).has_lines
    read, written = outputs
    return torch.where(in_source.repeat_interleave(values[0].shape[-1]), read, written)


class Block(nn.Module):
    """Attention to the sequence itself, to a source where it has one, then feed-forward.

    Each normalises what it reads (pre-norm) or, with ``post_norm``, the sum that it leaves.
    ``crossed``: with an attention of its own to the source. Without, it is a block of an encoder or
    of a stream, whose one attention reads both.
    """

    def __init__(self, options: TransformerOptions | DecoderOptions, crossed: bool = False):
        super().__init__()
        self.names = ("self_attention", "cross_attention") if crossed else ("attention",)
        for name in self.names:
            self.add_module(name, Attention(options.width, options.heads, options.dropout))
        self.feedforward = nn.Sequential(
            nn.Linear(options.width, options.feedforward),
            nn.ReLU(inplace=True),  # long passes are as fast as memory
            nn.Dropout(options.dropout),
            nn.Linear(options.feedforward, options.width),
        )
        self.norms = nn.ModuleList(nn.LayerNorm(options.width) for _ in (*self.names, ""))
        self.dropout = nn.Dropout(options.dropout)
        self.post_norm = getattr(options, "post_norm", False)

    @property
    def attentions(self) -> list[Attention]:
        """In their order, each behind the norm of its number."""
        return [getattr(self, name) for name in self.names]

    def forward(
        self,
        x: Tensor,
        calls: Sequence[Sequence[AttentionView]],
        scheme: Scheme,
        memory: Tensor | None = None,
        cache: Cache | None = None,
        scores: Scores = None,
    ) -> Tensor:
        """``x (b, i, d)`` a block later.

        ``calls``: what each attention sees. ``memory (b, s, d)``: the source, which views of
        ``cross`` show; other views show what is in ``cache`` and ``x`` itself.
        """
        for norm, attention, views in zip(self.norms, self.attentions, calls, strict=False):
            y, parts = x if self.post_norm else norm(x), list[Part]()
            how = scheme, views[-1].site, scores
            for view in views:
                part = None if cache is None else cache.source.get(self)
                if view.site != "cross":
                    part = attention.project(y, view.queries, *how)
                    part = part if cache is None else cache.extended(self, part)
                elif part is None:
                    assert memory is not None
                    read = memory if len(calls) > 1 else norm(memory)
                    part = attention.project(read, view.keys, *how)
                    if cache is not None:
                        cache.source[self] = part
                parts.append(part)
            x = x + self.dropout(attention(y, parts, views, scheme, scores))
            x = norm(x) if self.post_norm else x
        if self.post_norm:
            return self.norms[-1](x + self.dropout(self.feedforward(x)))
        return x + self.dropout(self.feedforward(self.norms[-1](x)))


class Encoder(nn.Module):
    """The encoder's blocks, if there are any, and the positions of the source."""

    def __init__(self, options: TransformerOptions, scheme: Scheme):
        super().__init__()
        self.scheme = scheme
        self.layers = nn.ModuleList(Block(options) for _ in range(options.encoder_layers))
        self.norm = nn.LayerNorm(options.width) if options.encoder_layers else nn.Identity()


def draw(module: nn.Module) -> None:
    """Xavier-uniform linear maps, unit-normal embeddings (as large as the sinusoids)."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight)
    elif isinstance(module, nn.LayerNorm):
        nn.init.ones_(module.weight)
        nn.init.zeros_(module.bias)
    elif isinstance(module, Scheme):
        module.reset_parameters()
