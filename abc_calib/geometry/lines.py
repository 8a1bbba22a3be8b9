"""Lines: what calibration finds in attention and extends to any size.

A line names one key for every query, by integer arithmetic on where the query stands. Which key
depends on its direction and on its *anchor*, the place it is counted from:

``corner``
    The matrix itself, as in the paper: diagonals and verticals from the top left,
    anti-diagonals from the top right. A row in which the line leaves the matrix has no key.
``segment s``
    In cross-attention, one part of the source, from the delimiter that opens it to the
    delimiter that closes it: segment 1 is the first operand, 2 the second; 0 is SOS alone.
    Past either end a line stays on that delimiter, which tells the model that the digits are
    used up. In self-attention there is one segment, 0: from the first token to the row's own.

Line indices are the paper's (section 5, step 2, with rows and keys from 0), with the origin
moved to the anchor. With ``open`` and ``close`` the delimiters of a segment:

==========  ==================  ==============================
direction   corner              segment
==========  ==================  ==============================
``diag``    ``j = i + l``       ``j = open + 1 + i + l``
``anti``    ``j = n-1 - i - l``  ``j = close - 1 - i - l``
``vert``    ``j = l``           ``j = close - l``
==========  ==================  ==============================

A slanted line goes on by ``stride`` keys a row (1 as above): with ``stride`` times ``i`` for
``i``. Where the digits of two operands are interleaved, the lines of columns have stride 2.

Outside cross-attention segment lines are simpler, and of stride 1. In self-attention (segment 0)
they are ``diag``: ``j = i + l``, and ``vert``: ``j = l``, within ``0 .. i``; anti-diagonals have
no meaning while the output's length is open. In the encoder they are ``diag``: ``j = i + l``
within the source, and ``vert``: the delimiter that closes the segment.

**Rows.** Where an output has several rows, a query stands in row ``r`` of the output, and ``i`` is
its column: how many tokens its row has so far. All of the above holds within the row, so one row is
the case ``r = 0``. What moves on from row to row:

``beta``
    Slanted lines and verticals of segments move by this number of columns per row: the digit of an
    operand that belongs to row ``r`` is a ``vert`` with ``beta`` 1. With ``d`` for ``beta`` times
    ``r``, ``l + d`` stands for ``l``.
``part_step``
    In cross-attention, ``s + r`` times it stands for the segment ``s``: with 1, operand ``r`` of a
    sum. Beyond the last segment there is nothing but the delimiter that closes it.

In self-attention segment ``s`` is the row ``s`` rows above the query's own, from the delimiter that
opens it to the one that closes it; above the first row there is only its opening delimiter. There
``anti`` reads the row above from its last token: ``j = close - 1 - i - l``.

All of it is ``formula``: the model's gather, the decoder's cache, the fits, the figures and the
certificate call this function alone, with tensors, arrays or plain integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from abc_calib.errors import UsageError

Direction = Literal["diag", "anti", "vert"]
Site = Literal["encoder", "self", "cross"]
DIRECTIONS: tuple[Direction, ...] = ("diag", "anti", "vert")
SITES: tuple[Site, ...] = ("encoder", "self", "cross")
CORNER = -1
"""Value of ``Line.segment`` for a line counted from the corners of the matrix."""
FARTHEST = 10_000
"""Offsets, strides and segments are smaller than this."""
LARGEST = 1e8
"""The largest size of a value: beyond it a line could not be distinguished from a masked key."""


@dataclass(frozen=True, order=True)
class Line:
    """One line of one head: see the module for what its fields mean.

    ``segment`` is ``CORNER`` or the number of a segment; ``offset`` the paper's line index;
    ``value`` what is added to the attention scores on it (0 is fully open); ``stride`` how many
    keys a slanted line goes on from one row to the next. ``beta`` and ``part_step``: by how many
    columns and segments it goes on from one row of an output to the next.
    """

    direction: Direction
    segment: int
    offset: int
    value: float = 0.0
    stride: int = 1
    beta: int = 0
    part_step: int = 0

    @property
    def slope(self) -> int:
        """How many keys to the right the line is in the next row."""
        return {"diag": self.stride, "anti": -self.stride, "vert": 0}[self.direction]

    def label(self, site: Site) -> str:
        """A short name for tables, such as ``anti -1 segment 2``."""
        place = "corner" if self.segment == CORNER else f"segment {self.segment}"
        stride = f" stride {self.stride}" if self.stride != 1 else ""
        shown = site == "cross" or self.segment > 0
        where = f" row -{self.segment}" if site == "self" else f" {place}"
        beta = f" beta {self.beta:+d}" if self.beta else ""
        part = f" part {self.part_step:+d}" if self.part_step else ""
        return f"{self.direction} {self.offset:+d}{stride}{where * shown}{beta}{part}"


ALONE = Line("diag", 0, 0)
"""In self-attention and in a source, a row that looks at itself alone."""

# Anchors: the first key (in self-attention of the row), the last one (the row's own), then the
# delimiters: of the source, or those that opened the row, the row before it, and so on.
FIRST, LAST, DELIMITERS = 0, 1, 2


class Formula(NamedTuple):
    """The key of a line: ``anchors[origin] + slope * column + down * row + shift``.

    Kept within ``anchors[low]`` and ``anchors[high]``; a ``leaves`` line is not, and names no key
    where it is outside. Of a delimiter, ``step`` times the row is added to its number.
    """

    origin: int
    slope: int
    shift: int
    low: int
    high: int
    leaves: bool
    down: int = 0
    step: int = 0

    def key(self, anchors: Sequence[Any], column: Any, row: int = 0) -> tuple[Any, Any]:
        """The key named in a ``column`` of a ``row``, kept inside, and whether it is outside.

        Plain integers, or of the columns arrays or tensors of one shape.
        """
        last = len(anchors) - 1
        origin, low, high = (
            anchors[stepped(at, self.step * row, last)] for at in (self.origin, self.low, self.high)
        )
        shift = self.shift + self.down * row
        return located(origin, self.slope, shift, low, high, self.leaves, column)


def stepped(anchor: int, step: int, last: int) -> int:
    """The number of the anchor ``step`` segments later, at least the first, at most ``last``."""
    if anchor < DELIMITERS or not step:
        return anchor
    return min(max(anchor + step, DELIMITERS), last)


def located(
    origin: Any, slope: Any, shift: Any, low: Any, high: Any, leaves: Any, column: Any
) -> tuple[Any, Any]:
    """``origin + slope * column + shift``, kept between ``low`` and ``high``.

    And whether it is outside of them and of a line that ``leaves``.
    """
    key = origin + slope * column + shift
    outside = leaves & ((key < low) | (key > high))
    if isinstance(key, int):
        return min(max(key, low), high), outside
    if isinstance(key, np.ndarray):
        return np.clip(key, low, high), outside
    return key.maximum(low).minimum(high), outside


def formula(line: Line, site: Site) -> Formula:
    """How the key of a line at a site is computed: see the module."""
    direction, segment, offset, slope = line.direction, line.segment, line.offset, line.slope
    corner = segment == CORNER
    if site == "self" and not corner:
        opened = DELIMITERS + segment if segment else FIRST
        closed = DELIMITERS + segment - 1 if segment else LAST
        if direction == "anti":
            origin, shift = (closed, -1 - offset) if segment else (LAST, -offset)
            return Formula(origin, slope, shift, opened, closed, False)
        return Formula(opened, slope, offset, opened, closed, False, line.beta)
    if corner or site != "cross":
        if direction == "anti":
            return Formula(LAST, slope, -offset, FIRST, LAST, corner)
        if not corner and direction == "vert":
            delimiter = DELIMITERS + segment
            return Formula(delimiter, 0, 0, delimiter, delimiter, False)
        return Formula(FIRST, slope, offset, FIRST, LAST, corner)
    opened, closed = DELIMITERS + max(segment - 1, 0), DELIMITERS + segment
    beta, step = line.beta, line.part_step
    if direction == "diag":
        return Formula(opened, slope, 1 + offset, opened, closed, False, beta, step)
    shift = -1 - offset if direction == "anti" else -offset
    return Formula(closed, slope, shift, opened, closed, False, -beta, step)


Heads = tuple[tuple[Line, ...], ...]
"""Lines of every head of one layer; an empty tuple is a transparent head."""


def check_line(line: Line, site: Site) -> None:
    """``UsageError`` for a line that names no keys at a site, or none that can be followed."""
    what = f"{line.direction} line of {site}-attention"
    if line.direction not in DIRECTIONS:
        raise UsageError(f"unknown direction {line.direction!r}: choose {', '.join(DIRECTIONS)}")
    for name in ("segment", "offset", "stride", "beta", "part_step"):
        number = getattr(line, name)
        if type(number) is not int or abs(number) >= FARTHEST:
            raise UsageError(
                f"{name} {number!r} of a {what}: give a whole number within {FARTHEST:,}"
            )
    if line.segment < CORNER:
        raise UsageError(
            f"segment {line.segment} of a {what}: give 0 or more, or {CORNER} for the corner"
        )
    moves = line.beta or line.part_step
    if moves and (site != "cross" or line.segment == CORNER):
        raise UsageError(
            f"beta {line.beta} and part_step {line.part_step} of a {what}: give 0, since only "
            "lines of segments in cross-attention go on from row to row of an output"
        )
    if line.stride < 1 or (line.stride != 1 and (line.direction == "vert" or site != "cross")):
        raise UsageError(
            f"stride {line.stride} of a {what}: give 1 or more keys a row in cross-attention, and "
            "1 elsewhere and for a vertical, which has no slope"
        )
    if site == "encoder" and line.direction == "vert" and line.segment != CORNER and line.offset:
        raise UsageError(
            f"offset {line.offset} of a {what}: give 0, since it is the delimiter of its segment"
        )
    value = line.value
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST:
        raise UsageError(f"value {value!r} of a {what}: give a number within {LARGEST:g}")
