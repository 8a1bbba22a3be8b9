"""The attention function that is put into models of ``transformers``: theirs, with lines.

It is registered under ``NAME``, and a mask function with it, without which the causal mask would be
lost in silence. What each attention module holds under ``HELD`` computes its attention.

Where tokens stand is found by delimiters among the ids of a source. A decoder-only model has source
and output in one sequence, the *stream*: ``$ a1 a0 + b1 b0 = y0``. The delimiter that closes the
source is the first token that the output reads, so column 0 of the output is its place. What an
attention head sees there is described as for an encoder-decoder: lines of cross-attention name
tokens of the source, lines of self-attention those of the output.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import index
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from abc_calib.errors import UsageError
from abc_calib.geometry import Heads, Site
from abc_calib.geometry.coords import AttentionView, Coords, output_coords, source_coords
from abc_calib.nn.attend import MASKED, Gathered, attend, scored, weights_of
from abc_calib.nn.lines import LineGather, mask_duplicate_keys

NAME = "abc_calib.load"
"""What it is called among the attention functions of ``transformers``, and in saved models.

A program that did not import this one gets an error: ``abc_calib.load`` is not supported.
"""
HELD = "abc_lines"
"""The attribute of an attention module that holds what computes its attention."""
RECORD = "abc_calib"
"""The entry of a model's configuration that says what was put into it."""


PLACES = "abc_places"
"""The attribute of a cache and of an encoder's output that holds where its tokens stand."""
CACHES = ("cache", "past_key_values")
"""What releases of ``transformers`` call a cache, from 5.24 on and before."""


def cache_of(values: Any) -> Any:
    """The cache among a call's arguments or in its output, or None."""
    named = values if isinstance(values, Mapping) else {}
    return next((named[name] for name in CACHES if named.get(name) is not None), None)


def past_of(kwargs: Mapping[str, Any]) -> int:
    """How many tokens the cache among a call's arguments holds."""
    cache = cache_of(kwargs)
    return 0 if cache is None else int(cache.get_seq_length())


@dataclass(frozen=True)
class Marks:
    """By what a source is read: the ids of its ``delimiters`` in their order, the last one closes.

    ``prefix``: how many tokens the tokenizer puts before each source; the last of them opens it.
    ``UsageError`` unless delimiters are ids.
    """

    delimiters: Sequence[int]
    prefix: int = 0

    def __post_init__(self) -> None:
        try:
            ids, prefix = tuple(map(index, self.delimiters)), index(self.prefix)
        except TypeError:
            ids, prefix = (), 0
        if not ids or prefix < 0:
            raise UsageError(
                "give delimiters, a list of the ids of the tokens that end the parts of a source, "
                "and as prefix a number of tokens"
            )
        object.__setattr__(self, "delimiters", ids)
        object.__setattr__(self, "prefix", prefix)

    def of(self, ids: Tensor, mask: Tensor | None) -> Coords:
        """Where the tokens of each source ``(b, s)`` stand, what opens it as its first mark.

        ``mask (b, s)``: 0 on padding. Without a prefix the first mark is before the source, and in
        a stream the source ends with its last delimiter. ``UsageError`` if delimiters are missing.
        """
        valid = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
        valid = valid[:, -ids.shape[1] :]
        start = valid.int().argmax(1, keepdim=True)
        inside = valid & (torch.arange(ids.shape[1], device=ids.device) >= start + self.prefix)
        at, expected = source_coords(ids, self.delimiters, mask=inside), len(self.delimiters)
        count = (torch.isin(ids, torch.tensor(self.delimiters, device=ids.device)) & inside).sum(1)
        if len(ids) and int(count.min()) < expected:
            row = int(count.argmin())
            raise UsageError(
                f"source {row} of the batch has {int(count[row])} of the {expected} delimiters "
                "that the lines count from: give whole sources"
            )
        marks = torch.cat([start + self.prefix - 1, at.marks[:, :expected]], 1)
        end = valid.sum(1, keepdim=True) + start
        at = replace(at, part=at.part + 1, marks=marks, length=end).alike
        return replace(at, start=start[: len(at.marks)])


class State(threading.local):
    """What is known of the present call of the model, for each thread, by hooks on the model.

    ``source``: where its tokens stand. ``past``: how many tokens the cache has, of a stream, or of
    an output. ``weights``: are they asked for?
    """

    def __init__(self, marks: Marks, stream: bool):
        self.marks, self.stream = marks, stream
        self.source: Coords | None = None
        self.past, self.weights = 0, False

    def __reduce__(self) -> Any:  # a copied model has copies of the hooks, which are methods
        return State, (self.marks, self.stream)

    def hooks(self, model: Any) -> list[Any]:
        """Put the hooks into a model; gives what takes them out."""
        reader = model.get_decoder() if self.stream else model.get_encoder()
        return [
            model.register_forward_pre_hook(self.before_call, with_kwargs=True),
            reader.register_forward_pre_hook(self.before_source, with_kwargs=True),
            reader.register_forward_hook(self.after_source, with_kwargs=True),
        ]

    def before_call(self, model: Any, args: Any, kwargs: dict[str, Any]) -> None:
        """Before a call of the whole model."""
        if (how := model.config._attn_implementation) != NAME:
            raise UsageError(
                f"its attention was set to {how!r}, which knows no lines: set it back with "
                f"model.set_attn_implementation({NAME!r})"
            )
        self.weights = bool(kwargs.get("output_attentions"))
        self.past = past_of(kwargs)
        source = getattr(kwargs.get("encoder_outputs"), PLACES, None)
        self.source = self.source if source is None else source

    def before_source(self, _: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        """Before what reads the source."""
        ids, cache = kwargs.get("input_ids", args[0] if args else None), cache_of(kwargs)
        past = past_of(kwargs)
        if past and (source := getattr(cache, PLACES, None)) is not None:
            self.source = source
        elif past or ids is None:
            raise UsageError("lines need input_ids from the first token on: give whole sources")
        else:
            self.source = self.marks.of(ids, kwargs.get("attention_mask"))

    def after_source(self, _: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        """After it: what is kept of the source, or an encoder gives, knows where it stands."""
        for kept in (output, cache_of(output), cache_of(kwargs)):
            if not isinstance(kept, tuple | None):
                setattr(kept, PLACES, self.source)

    def read(self, rows: int | None = None) -> Coords:
        """Where the sources stand, in a batch of ``rows`` rows: repeated, as for beams."""
        if self.source is None:
            raise UsageError("the model has read no source yet: call it with input_ids")
        sources = len(self.source.marks)
        if rows is None or sources in (1, rows):
            return self.source
        if rows % sources:
            raise UsageError(f"{rows} outputs of {sources} sources: read the sources of this batch")
        index = torch.arange(sources, device=self.source.marks.device)
        self.source = self.source.samples(index.repeat_interleave(rows // sources))
        return self.source

    def view(self, site: Site, queries: int, keys: int, rows: int) -> AttentionView:
        """What the last ``queries`` of a call see of its ``keys``, in ``rows`` samples."""
        source, size = self.read(rows), self.past + queries
        if site == "encoder":
            return AttentionView(site, source, source)
        if keys != size and (self.stream or site == "self"):
            raise UsageError(
                f"its cache holds {keys} keys of {size} tokens, and lines count all of them: use a "
                "cache that keeps every key, such as DynamicCache() without a configuration"
            )
        number = torch.arange(self.past, size, device=source.marks.device)[None]
        output = output_coords(number)
        output = replace(output, column=number, position=number, place=number)
        if self.stream:  # counted from what closes the source, whose place is the output's column 0
            opened = source.marks[:, -1:]
            output = replace(output, column=number - opened, marks=opened)
            source = replace(source, length=opened + 1)
        if site == "cross":
            return AttentionView(site, output, source)
        positions = torch.arange(keys, device=number.device)[None]
        return AttentionView(
            site, output, replace(output, position=positions, place=positions), causal=True
        )


class ModuleLines(LineGather):
    """The lines of one attention module: of one site, or in a stream of two."""

    def __init__(self, state: State, heads: dict[Site, Heads], off_line_bias: float | None):
        super().__init__(heads, off_line_bias)
        self.state = state

    def gathered(self, views: Any) -> Gathered:
        """As of our own layers; in a stream the tokens of the source see themselves alone."""
        key, bias = self.biased(views)
        source = self.state.read()
        if not self.state.marks.prefix and any(view.site != "self" for view in views):
            assert source.start is not None  # nothing opens it: then what ends its first part
            first = source.marks[:, 1][:, None, None, None]
            key = torch.where(key < source.start[..., None, None], first, key)
        key, bias = (x.contiguous() for x in torch.broadcast_tensors(key, bias))
        selected = mask_duplicate_keys(key, bias)
        if not self.state.stream:
            return selected
        position = views[0].queries.position
        inside = (source.marks[:, -1:] > position)[:, None, :, None]
        alone = torch.full_like(bias[:1, :1, :1], MASKED)
        alone[..., 0] = 0.0
        key = torch.where(inside, position[:, None, :, None], selected.index)
        return Gathered(key, torch.where(inside, alone, selected.bias))

    def matrix(self, views: list[AttentionView], keys: int) -> Tensor:
        """The same as a matrix ``(b|1, h, i, j)``; 0 for heads without lines."""
        selected = self.gathered(views)
        matrix = self.scattered(selected.index, selected.bias, keys)
        transparent = self.transparent(matrix.device)
        if self.state.stream:
            position, marks = views[0].queries.position, self.state.read().marks
            transparent = transparent & (position >= marks[:, -1:])[:, None, :, None]
        return matrix.masked_fill_(transparent, 0.0)

    def __call__(
        self,
        module: nn.Module,
        query: Tensor,  # (b, h, i, e)
        key: Tensor,  # (b, g, j, e): g groups of heads
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float | None = None,
        dropout: float = 0.0,
        position_bias: Tensor | None = None,
        **_: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """The output ``(b, i, h, e)`` and, if asked for, the weights ``(b, h, i, j)``."""
        scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
        if (groups := query.shape[1] // key.shape[1]) > 1:
            key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
        dropout = dropout if module.training else 0.0
        (b, h, i, _e), j = query.shape, key.shape[2]
        sites = [site for site, heads in self.heads.items() if any(heads)]
        views = [self.state.view(site, i, j, b) for site in sites]
        if self.restricted and not self.state.weights:
            bias = self.gathered(views)
            if position_bias is not None:
                index = bias.index.expand(b, h, i, -1)
                position_bias = position_bias.expand(b, h, i, j).gather(3, index)
                bias = Gathered(index, bias.bias + position_bias)
            mixed = attend(query, key, value, bias, dropout, scaling)
            return mixed.transpose(1, 2).contiguous(), None
        added = [term for term in (position_bias, attention_mask) if term is not None]
        added += [self.matrix(views, j).to(query.dtype)] if views else []
        weights = weights_of(scored(query, key, sum(added, query.new_zeros(())), scaling))
        mixed = F.dropout(weights, dropout) @ value
        return mixed.transpose(1, 2).contiguous(), weights


def intercepted(module: nn.Module, *args: Any, **how: Any) -> tuple[Tensor, Tensor | None]:
    """The attention of a module as what it holds computes it."""
    if HELD not in module.__dict__:
        raise UsageError(
            f"{type(module).__name__} attends along lines that it was not given: load the model "
            "with abc_calib.load(folder)"
        )
    return module.__dict__[HELD](module, *args, **how)


def masked(*args: Any, config: Any = None, **how: Any) -> Any:
    """The mask as for eager attention; none where every head sees its lines alone."""
    from transformers.masking_utils import eager_mask

    if (getattr(config, RECORD, None) or {}).get("restricted"):
        return None
    return eager_mask(*args, config=config, **how)


def register() -> None:
    """Make both functions known to ``transformers``."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, intercepted)
    AttentionMaskInterface.register(NAME, masked)
