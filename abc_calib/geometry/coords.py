"""Where the tokens of a batch stand, as tensors: what lines, masks and position schemes count by.

``Coords`` is made from ids and delimiters: by ``source_coords`` of a source at once, by
``output_coords`` of an output as it is written. An ``AttentionView`` is what one attention sees:
where its queries and its keys stand. ``abc_calib.geometry.layout`` is the counterpart for one
source, on plain integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from abc_calib.geometry.lines import Site

TENSORS = ("part", "column", "row", "position", "place")
"""The fields of ``Coords`` that have one number for every token."""


@dataclass(frozen=True)
class Coords:
    """Where tokens stand, ``(b|1, n)`` each: 1 where all samples are alike.

    ``part``: of a source from 1 on, a delimiter belonging to what it closes; of an output 0.
    ``column``: of a source counted from the last token of its part (of words from the first), -1
    for a delimiter; of an output the column of its row that is written next. ``row``: of the
    output, 0 in a source. ``position``: in the sequence. ``place``: the position that a scheme is
    told, where it is another one. ``marks (b, c)``: positions of the delimiters of a source, or of
    what opened each row of an output. ``length (b, 1)``: tokens without padding. ``start``: what
    ``Scheme.starts`` drew.
    """

    part: Tensor
    column: Tensor
    row: Tensor
    position: Tensor
    place: Tensor
    marks: Tensor
    length: Tensor
    start: Tensor | None = None

    @property
    def size(self) -> int:
        """How many tokens the longest sequence has."""
        return self.position.shape[1]

    @property
    def alike(self) -> Coords:
        """The same for one sample, where all stand alike."""
        values = {f.name: getattr(self, f.name) for f in fields(self)[:-1]}
        if all(len(x) == 1 or bool((x == x[:1]).all()) for x in values.values()):
            return replace(self, **{name: x[:1] for name, x in values.items()})
        return self

    def samples(self, index: Tensor) -> Coords:
        """These samples of the batch, each as often as it is named in ``index (m,)``."""
        values: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        tensors = {name: x for name, x in values.items() if x is not None}
        b = len(index)
        batch = {name: x[index] if len(x) > 1 else x.expand(b, -1) for name, x in tensors.items()}
        return replace(self, **batch)

    def only(self, index: Any) -> Coords:
        """These tokens alone, by a slice or by their numbers ``(m,)``."""
        return replace(self, **{name: getattr(self, name)[:, index] for name in TENSORS})

    def before(self, other: Coords) -> Coords:
        """These tokens, then those of ``other``, in which marks and lengths are."""
        joined = {}
        for name in TENSORS:
            parts = getattr(self, name), getattr(other, name)
            b = max(part.shape[0] for part in parts)
            joined[name] = torch.cat([part.expand(b, -1) for part in parts], 1)
        return replace(other, **joined)

    def opened(self, above: int) -> Tensor:
        """Where the row of each token and ``above`` rows above it open: ``(b, n, 1 + above)``.

        Above the first row is nothing but what opens it.
        """
        number = self.row[..., None] - torch.arange(above + 1, device=self.row.device)
        b = max(number.shape[0], self.marks.shape[0])
        number, marks = number.clamp(min=0).expand(b, -1, -1), self.marks.expand(b, -1)
        return marks.gather(1, number.flatten(1)).view(number.shape)


def source_coords(
    ids: Tensor,
    delimiters: Sequence[int] = (),
    *,
    mask: Tensor | None = None,
    words: bool = False,
) -> Coords:
    """Say where the tokens ``ids (b, n)`` of sources stand, whose ``delimiters`` close their parts.

    Columns are counted from the last token of each part, or of ``words`` from the first. ``mask (b,
    n)``: what is not padding.
    """
    position = torch.arange(ids.shape[1], device=ids.device)[None]
    length, hits = ids.new_full((1, 1), ids.shape[1]), _hits(ids, delimiters)
    if mask is not None:
        hits, length = hits & mask, mask.sum(1, keepdim=True)
    count = hits.cumsum(1)
    marks = _marks(hits, count, position)
    zeros = torch.zeros_like(position).expand(ids.shape)
    part = (count - hits.long()).clamp(max=max(marks.shape[1] - 1, 0))
    column = zeros - 1 if not marks.shape[1] else marks.gather(1, part) - 1 - position
    if words:
        column = torch.where(column < 0, column, position - 1)
    return Coords(part, column.clamp(min=-1), zeros, position, position, marks, length)


def output_coords(ids: Tensor, rows: Sequence[int] = (), after: Coords | None = None) -> Coords:
    """Say where the tokens ``ids (b, n)`` of outputs stand, the first and ``rows`` opening a row.

    Columns are counted from there. ``after``: the tokens before these, in decoding.
    """
    past = 0 if after is None else int(after.position[0, -1]) + 1
    position = torch.arange(past, past + ids.shape[1], device=ids.device)[None]
    zeros = torch.zeros_like(position)
    length = ids.new_full((1, 1), past + ids.shape[1])
    if not rows:  # one row: all samples are alike
        return Coords(zeros, position, zeros, position, position, zeros[:, :1], length)
    hits = _hits(ids, rows) | (position == 0)
    count = hits.cumsum(1)
    if after is not None:
        count = count + after.row[:, -1:] + 1
    marks, row = _marks(hits, count, position, after), count - 1
    column = position - marks.gather(1, row)
    return Coords(zeros.expand(ids.shape), column, row, position, position, marks, length)


def _hits(ids: Tensor, delimiters: Sequence[int]) -> Tensor:
    """Which ``ids (b, n)`` are delimiters, ``(b, n)`` bool."""
    hits = torch.zeros_like(ids, dtype=torch.bool)
    for delimiter in {*delimiters}:
        hits |= ids == delimiter
    return hits


def _marks(hits: Tensor, count: Tensor, position: Tensor, after: Coords | None = None) -> Tensor:
    """Positions ``(b, c)`` of the ``hits (b, n)``, ascending, ``count`` so far.

    A sample with fewer of them than others repeats its last one.
    """
    past = hits.new_zeros(hits.shape[0], 0, dtype=torch.long) if after is None else after.marks
    total = int(count.max()) if count.numel() else 0
    past = F.pad(past.expand(hits.shape[0], -1), (0, max(total - past.shape[1], 0) + 1))
    nowhere = past.shape[1] - 1
    at = torch.where(hits, count - 1, nowhere)
    marks = past.scatter(1, at, position.expand(at.shape))[:, :total]
    number = torch.arange(total, device=marks.device).minimum(count[:, -1:] - 1)
    return marks.gather(1, number.clamp(min=0)) if total else marks


@dataclass(frozen=True)
class AttentionView:
    """What an attention sees at a site: where its ``queries`` and its ``keys`` stand.

    ``causal``: only keys up to the query's own position; else all of a source. ``first``: where the
    keys begin among those of all views of an attention.
    """

    site: Site
    queries: Coords
    keys: Coords
    causal: bool = False
    first: int = 0
    _cache: dict[int, Tensor] = field(init=False, default_factory=dict, compare=False)

    @cached_property
    def mask(self) -> Tensor:
        """Which keys exist for a query: ``(b, 1, i|1, j)`` bool (padding, causality)."""
        keys = self.keys.position[:, None]
        last = self.queries.position if self.causal else self.keys.length - 1
        return (keys <= last[..., None])[:, None]

    def anchors(self, count: int) -> Tensor:
        """What lines are counted from, ``(b, i|1, a)``: see ``geometry.lines``.

        At an output as many rows above a query as make ``count`` anchors.
        """
        count = count if self.site == "self" else 0
        if count not in self._cache:
            if self.site == "self":
                opened, position = self.queries.opened(max(count - 3, 0)), self.queries.position
                b = max(opened.shape[0], position.shape[0])
                parts = [opened[..., :1], position[..., None], opened]
                anchors = torch.cat([part.expand(b, -1, -1) for part in parts], 2)
            else:
                last = self.keys.length - 1
                anchors = torch.cat([torch.zeros_like(last), last, self.keys.marks], 1)[:, None]
            self._cache[count] = anchors
        return self._cache[count]

    def offsets(self) -> Tensor:
        """How far each key's place is behind its query's: ``(b, 1, i, j)``."""
        return (self.keys.place[:, None] - self.queries.place[..., None])[:, None]
