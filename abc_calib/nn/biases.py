"""Additive attention biases: what each row may look at, and how much it is drawn there.

Everything that restricts or shifts attention (padding, causality, calibrated lines, and the
schemes' own terms) is added to the scores before softmax. Shapes: ``b`` batch, ``h`` head,
``i`` query, ``j`` key, ``k`` lines a head.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from abc_calib.calibration.lines import CORNER, Heads, Site

CLOSED = -1e9
"""Added where a row may not look. Finite: a row that is closed everywhere stays a number."""


@dataclass(frozen=True)
class Frame:
    """Where the rows and keys of one attention call stand.

    ``rows``: ``(i,)`` positions of the queries. ``keys``: number of keys. ``lengths``: ``(b,)``
    valid keys of each sample, padding left out. ``delimiters``: ``(b, c)`` positions of the
    source's delimiters, ascending, from SOS to EOS (cross-attention and encoder).
    ``b`` may be 1 where all samples are laid out alike.
    """

    site: Site
    rows: Tensor
    keys: int
    lengths: Tensor
    delimiters: Tensor | None = None

    def mask(self) -> Tensor:
        """Which keys exist for a row: ``(b, 1, i|1, j)`` bool (padding, causality)."""
        keys = torch.arange(self.keys, device=self.rows.device)
        if self.site == "self":
            return (keys <= self.rows[:, None])[None, None]
        return (keys < self.lengths[:, None])[:, None, None]


@dataclass(frozen=True)
class Gathered:
    """The keys that each row looks at: ``index (b, h, i, k)`` and the bias on them, alike."""

    index: Tensor
    bias: Tensor


class LayerBias:
    """The lines of one layer and site as index arithmetic on tensors."""

    def __init__(self, heads: Heads, site: Site):
        self.site = site
        self.heads = heads
        #: every head has a line, so that each row looks at a few keys only
        self.restricted = all(heads)
        #: a corner line may leave the matrix, and its row without a key
        self.may_close_rows = any(line.segment == CORNER for head in heads for line in head)
        lines = max((len(head) for head in heads), default=0)
        shape = (len(heads), max(lines, 1))
        self.slope = torch.zeros(shape, dtype=torch.long)
        self.shift = torch.zeros(shape, dtype=torch.long)
        self.origin = torch.zeros(shape, dtype=torch.long)
        self.low = torch.zeros(shape, dtype=torch.long)
        self.high = torch.zeros(shape, dtype=torch.long)
        self.corner = torch.zeros(shape, dtype=torch.bool)
        self.value = torch.full(shape, CLOSED)
        for h, head in enumerate(heads):
            for k, line in enumerate(head):
                self.slope[h, k] = {"diag": 1, "anti": -1, "vert": 0}[line.direction]
                self.value[h, k] = line.value
                self.corner[h, k] = line.segment == CORNER
                origin, low, high, shift = _place(line.direction, line.segment, line.offset, site)
                self.origin[h, k], self.low[h, k], self.high[h, k] = origin, low, high
                self.shift[h, k] = shift
        self.transparent = torch.tensor([not head for head in heads])
        self._index_parts = ("slope", "shift", "origin", "low", "high", "corner", "value")

    def to(self, device: torch.device) -> LayerBias:
        if self.value.device != device:
            for name in (*self._index_parts, "transparent"):
                setattr(self, name, getattr(self, name).to(device))
        return self

    def positions(self, frame: Frame) -> tuple[Tensor, Tensor]:
        """The key of each line in each row, and whether the line has left the matrix there.

        Both ``(b, h, i, k)``; where it has left, the key is the nearest one inside.
        """
        self.to(frame.rows.device)
        anchors = _anchors(frame)  # (b, i|1, a)
        rows = frame.rows[:, None]  # (i, 1)

        def at(places: Tensor) -> Tensor:  # (h, k) -> (b, h, i|1, k)
            return anchors[:, :, places].permute(0, 2, 1, 3)

        key = at(self.origin) + (self.slope[:, None] * rows + self.shift[:, None])
        low, high = at(self.low), at(self.high)
        outside = self.corner[:, None] & ((key < low) | (key > high))
        return torch.minimum(torch.maximum(key, low), high), outside

    def keys(self, frame: Frame) -> tuple[Tensor, Tensor]:
        """The key of each line in each row and the bias on it, ``(b, h, i, k)`` each.

        A line without a key in a row, and all but the highest of several lines that meet on
        one key, have the bias ``CLOSED``.
        """
        key, outside = self.positions(frame)
        bias = self.value[:, None].expand(key.shape).masked_fill(outside, CLOSED)
        for k in range(1, key.shape[-1]):  # lines that meet: the highest counts, once
            for other in range(k):
                same = key[..., k] == key[..., other]
                lower = bias[..., k] <= bias[..., other]
                bias[..., k].masked_fill_(same & lower, CLOSED)
                bias[..., other].masked_fill_(same & ~lower, CLOSED)
        return key, bias

    def dense(self, frame: Frame) -> Tensor:
        """The bias as a matrix, ``(b, h, i, j)``; transparent heads are 0."""
        key, bias = self.keys(frame)
        matrix = torch.full((*key.shape[:3], frame.keys), CLOSED, device=key.device)
        matrix.scatter_reduce_(3, key, bias, "amax")
        return matrix.masked_fill_(self.transparent[:, None, None], 0.0)

    def gathered(self, frame: Frame) -> Gathered:
        """The same bias as a list of keys a row; only if every head is restricted."""
        assert self.restricted
        return Gathered(*self.keys(frame))


# Columns of the anchor table: the first key, the last key, then the delimiters.
_FIRST, _LAST, _DELIMITERS = 0, 1, 2


def _anchors(frame: Frame) -> Tensor:
    """Positions that lines are counted from, ``(b, i|1, 2 + c)``."""
    if frame.site == "self":
        last = frame.rows[None, :, None]
        return torch.cat([torch.zeros_like(last), last], dim=2)
    last = frame.lengths[:, None, None] - 1
    places = [torch.zeros_like(last), last]
    if frame.delimiters is not None:
        places.append(frame.delimiters[:, None])
    return torch.cat(places, dim=2)


def _place(direction: str, segment: int, offset: int, site: Site) -> tuple[int, int, int, int]:
    """Columns of the anchor table for origin, low and high, and the shift of a line."""
    whole = segment == CORNER or site != "cross"
    if whole and direction == "anti":
        return _LAST, _FIRST, _LAST, -offset
    if whole:
        if segment != CORNER and direction == "vert" and site == "encoder":
            delimiter = _DELIMITERS + segment
            return delimiter, delimiter, delimiter, 0
        return _FIRST, _FIRST, _LAST, offset
    low, high = _DELIMITERS + max(segment - 1, 0), _DELIMITERS + segment
    if direction == "diag":
        return low, low, high, 1 + offset
    if direction == "anti":
        return high, low, high, -1 - offset
    return high, low, high, -offset
