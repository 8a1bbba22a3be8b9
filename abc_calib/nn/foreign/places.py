"""Where the tokens of a foreign model's source stand, found by delimiters among its token ids.

A decoder-only model has source and output in one sequence, the *stream*: ``$ a1 a0 + b1 b0 = y0``.
The delimiter that closes the source is the first token that the output reads, so column 0 of the
output is its place. What an attention head sees there is described as for an encoder-decoder:
lines of cross-attention name tokens of the source, lines of self-attention those of the output.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from abc_calib.errors import UsageError
from abc_calib.geometry import Site
from abc_calib.nn.frames import Frame, Grid


@dataclass(frozen=True)
class Marks:
    """By what a source is read: the ids of its ``delimiters`` in their order, the last one closes.

    ``prefix``: how many tokens the tokenizer puts before each source; the last of them opens it.
    """

    delimiters: tuple[int, ...]
    prefix: int = 0

    def places(self, ids: Tensor, mask: Tensor | None) -> Places:
        """Where the delimiters of each source ``(b, s)`` are; ``UsageError`` if some are missing.

        ``mask (b, s)``: 0 on padding.
        """
        there = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
        there = there[:, -ids.shape[1] :]
        known = torch.tensor(self.delimiters, device=ids.device)
        found = torch.isin(ids, known) & there
        start = there.int().argmax(1)
        found[torch.arange(ids.shape[1], device=ids.device) < (start + self.prefix)[:, None]] = (
            False
        )
        wanted = len(self.delimiters)
        if len(ids) and int(found.sum(1).min()) < wanted:
            row = int(found.sum(1).argmin())
            raise UsageError(
                f"source {row} of the batch has {int(found[row].sum())} of the {wanted} delimiters "
                "that the lines count from: give whole sources"
            )
        number = found.int().cumsum(1)
        closes = [(found & (number == k + 1)).int().argmax(1) for k in range(wanted)]
        opens = start + self.prefix - 1
        return Places(torch.stack([opens, *closes], 1), start, there.sum(1) + start)


@dataclass(frozen=True)
class Places:
    """``closes (b, c)``: what opens each source and its delimiters. ``start``, ``end (b,)``.

    Without a token that opens it, ``closes[:, 0]`` is before ``start``.
    """

    closes: Tensor
    start: Tensor
    end: Tensor

    def for_rows(self, rows: int) -> Places:
        """The same for a batch in which each source stands several times, as for beams."""
        if rows == len(self.closes):
            return self.alike
        if rows % len(self.closes):
            raise UsageError(
                f"{rows} outputs of {len(self.closes)} sources: read the sources of this batch"
            )
        times = rows // len(self.closes)
        parts = (self.closes, self.start, self.end)
        return Places(*(part.repeat_interleave(times, 0) for part in parts)).alike

    @property
    def alike(self) -> Places:
        """One row, if all are alike."""
        if len(self.closes) > 1 and all(
            bool((part == part[:1]).all()) for part in (self.closes, self.start, self.end)
        ):
            return Places(self.closes[:1], self.start[:1], self.end[:1])
        return self


class State(threading.local):
    """What a call of the model has told so far: its ``places``, of each thread its own.

    ``past``: how many output tokens the decoder has read before. ``weights``: are they asked for?
    """

    places: Places | None = None
    past: int = 0
    weights: bool = False

    def __deepcopy__(self, memo: dict[int, Any]) -> State:
        made = memo[id(self)] = State()
        return made

    def __reduce__(self) -> Any:
        return State, ()

    def frame(self, site: Site, queries: int, keys: int, stream: bool) -> Frame:
        """Where the last ``queries`` of all rows, and the ``keys``, stand."""
        if self.places is None:
            raise UsageError("the model has read no source yet: call it with input_ids")
        closes, device = self.places.closes, self.places.closes.device
        past = self.past if site == "cross" and not stream else keys - queries
        rows = torch.arange(past, past + queries, device=device)
        if not stream:
            known = closes if site != "self" else None
            return Frame(site, rows, keys, self.places.end, known)
        column = rows - closes[:, -1:]
        grid = Grid(torch.zeros_like(column), column, closes[:, -1:])
        return Frame(site, rows, keys, closes[:, -1] + 1, closes, grid=grid)
