"""Where the tokens of a foreign model's source stand, found by delimiters among its token ids.

A decoder-only model has source and output in one sequence, the *stream*: ``$ a1 a0 + b1 b0 = y0``.
The delimiter that closes the source is the first token that the output reads, so column 0 of the
output is its place. What an attention head sees there is described as for an encoder-decoder:
lines of cross-attention name tokens of the source, lines of self-attention those of the output.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from abc_calib.errors import UsageError
from abc_calib.geometry import Site
from abc_calib.geometry.coords import AttentionView, Coords, output_coords, source_coords

CACHES = ("cache", "past_key_values")
"""What releases of ``transformers`` call a cache, from 5.24 on and before."""


def cache_of(values: Any) -> Any:
    """The cache among a call's arguments or in its output, or None."""
    named = values if isinstance(values, Mapping) else {}
    return next((named[name] for name in CACHES if named.get(name) is not None), None)


@dataclass(frozen=True)
class Marks:
    """By what a source is read: the ids of its ``delimiters`` in their order, the last one closes.

    ``prefix``: how many tokens the tokenizer puts before each source; the last of them opens it.
    """

    delimiters: tuple[int, ...]
    prefix: int = 0

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
    """What is known of the present call of the model, for each thread.

    ``source``: where its tokens stand. ``tokens``: how many the cache and this call have, in a
    stream. ``past``: how many output tokens the decoder has read before. ``weights``: are they
    asked for?
    """

    source: Coords | None
    tokens: int | None = None
    past: int = 0
    weights: bool = False

    def __init__(self, source: Coords | None = None):
        self.source = source

    def __reduce__(self) -> Any:
        return State, ()

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

    def view(
        self, site: Site, queries: int, keys: int, stream: bool, rows: int | None = None
    ) -> AttentionView:
        """What the last ``queries`` of a call see of its ``keys``."""
        source = self.read(rows)
        if site == "encoder":
            return AttentionView(site, source, source)
        past = self.past if site == "cross" and not stream else keys - queries
        size = self.tokens if stream else self.past + queries if site == "self" else keys
        if size not in (None, keys):
            raise UsageError(
                f"its cache holds {keys} keys of {size} tokens, and lines count all of them: use a "
                "cache that keeps every key, such as DynamicCache() without a configuration"
            )
        number = torch.arange(past, past + queries, device=source.marks.device)[None]
        output = output_coords(number)
        output = replace(output, column=number, position=number, place=number)
        if stream:  # counted from what closes the source, whose place is the output's column 0
            opened = source.marks[:, -1:]
            output = replace(output, column=number - opened, marks=opened)
            source = replace(source, length=opened + 1)
        if site == "cross":
            return AttentionView(site, output, source)
        positions = torch.arange(keys, device=number.device)[None]
        return AttentionView(
            site, output, replace(output, position=positions, place=positions), causal=True
        )
