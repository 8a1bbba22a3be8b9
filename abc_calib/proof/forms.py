"""Where tokens stand in problems of every size at once, and which sizes have to be listed.

By hand: ``19+3`` is read as 19 and 03, from the last column on. Let ``c`` be the column of the
query and ``w`` the width, here 2. The *gaps* of this problem are how far the query is from the
first column, ``g0 = c``, and from the end, ``g1 = w - c``. A line names the digit one column before
the query's, and not beyond the delimiter behind column 0. At ``c = 0`` it is that delimiter, since
``c - 1 < 0``. At ``c = 1`` the two are equal, and at ``c = 2`` and in every later column ``c - 1 >
0``. So queries of the columns 0, 1 and 2 are listed, and the gap ``g0 = 2`` is *open*: with a
larger one all comparisons come out the same, so that what the query reads is arranged in the same
way, further from column 0. Queries behind the numbers have other gaps, ``w`` and ``c - w - 1``. In
all, 14 pairs of gaps are enough for every sum of two numbers, where lines name these two columns.
Code looks at a form by comparing alone; where it reads a ``value``, it was compared before.

**Lemma** (``sign``). Let ``a - b = v`` in one size, and let it grow by ``s_k`` where gap ``k`` is
larger by 1. If ``v`` and all ``s_k != 0`` of open gaps have one sign, then ``a - b`` has this sign
however much larger the open gaps are: each of them adds a number of this sign. If ``v = 0`` and no
open gap has ``s_k != 0``, it stays 0. So it is enough to close every gap whose ``s_k`` is neither 0
nor of the sign of ``v``.

**Every size is listed** (``sizes``), but for larger open gaps. Take any size, with gaps ``G_k``.
Begin at gaps of 0. Where a closed gap of the size reached is smaller than ``G_k``, go on to the
size in which it is larger by 1, which is listed, too. After at most the sum of all ``G_k`` steps no
closed gap is smaller, and only open ones are. That the list itself ends is not proved: ``sizes``
stops, or ``Undecided`` is raised. Where positions repeat, open gaps are listed with each remainder.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any, TypeVar

from abc_calib.errors import AbcError

T = TypeVar("T")

MOST_SIZES = 3_000
"""Sizes that are looked at; certificates have needed up to 300."""


class Undecided(AbcError):
    """Neither certified nor refuted; the message says why."""


class Gaps:
    """The gaps of one size; ``open``: those that may be made larger and nothing changes."""

    def __init__(self, values: tuple[int, ...]):
        self.values = values
        self.open = [True] * len(values)

    def form(self, constant: int, *slopes: int) -> Form:
        """``constant`` and a multiple of each gap."""
        value = constant + sum(s * g for s, g in zip(slopes, self.values, strict=True))
        return Form(self, value, slopes)


def sign(a: Form, b: Form | int) -> int:
    """Compare two integers: below 0, 0 or above, as ``a - b`` is; closes gaps by the lemma."""
    if isinstance(b, Form):
        distance, slopes = a.value - b.value, a.slopes
        if slopes == b.slopes:
            return distance
        slopes = tuple(x - y for x, y in zip(slopes, b.slopes, strict=True))
    else:
        distance, slopes = a.value - b, a.slopes
    for gap, slope in enumerate(slopes):
        if slope and (distance == 0 or (distance > 0) != (slope > 0)):
            a.gaps.open[gap] = False
    return distance


def _compared(by: Callable[[int, int], bool]) -> Callable[[Form, Any], bool]:
    """An operator of forms, by their ``sign``."""
    return lambda a, b: by(sign(a, b), 0)


class Form:
    """An integer that is linear in gaps: its ``value`` at this size, and its ``slopes``."""

    __slots__ = ("gaps", "slopes", "value")

    def __init__(self, gaps: Gaps, value: int, slopes: tuple[int, ...]):
        self.gaps, self.value, self.slopes = gaps, value, slopes

    def __add__(self, other: Any) -> Form:
        if isinstance(other, Form):
            slopes = tuple(a + b for a, b in zip(self.slopes, other.slopes, strict=True))
            return Form(self.gaps, self.value + other.value, slopes)
        return Form(self.gaps, self.value + other, self.slopes)

    __radd__ = __add__

    def __mul__(self, factor: int) -> Form:
        if factor == 1:
            return self
        return Form(self.gaps, self.value * factor, tuple(s * factor for s in self.slopes))

    __rmul__ = __mul__

    def __neg__(self) -> Form:
        return self * -1

    def __sub__(self, other: Any) -> Form:
        return self + (-other)

    def __rsub__(self, other: Any) -> Form:
        return (-self) + other

    def __divmod__(self, parts: int) -> tuple[Form, int]:
        """Tokens as columns; ``Undecided`` where a gap is not a whole number of columns."""
        if parts == 1:
            return self, 0
        if any(s % parts for s in self.slopes):
            raise Undecided("a line goes on by a part of a column a row, and drifts through digits")
        value, rest = divmod(self.value, parts)
        return Form(self.gaps, value, tuple(s // parts for s in self.slopes)), rest

    __lt__, __le__ = _compared(operator.lt), _compared(operator.le)
    __gt__, __ge__ = _compared(operator.gt), _compared(operator.ge)
    __eq__ = _compared(operator.eq)
    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return sign(self, 0) != 0

    def __index__(self) -> int:
        """The value, of this very size."""
        for gap, slope in enumerate(self.slopes):
            if slope:
                self.gaps.open[gap] = False
        return self.value

    def maximum(self, other: Any) -> Form:
        return self._like(other) if sign(self, other) < 0 else self

    def minimum(self, other: Any) -> Form:
        return self._like(other) if sign(self, other) > 0 else self

    def _like(self, other: Any) -> Form:
        return other if isinstance(other, Form) else self * 0 + other

    def at(self, values: tuple[int, ...]) -> int:
        """Its value at other gaps."""
        moved = (s * (b - a) for s, a, b in zip(self.slopes, self.gaps.values, values, strict=True))
        return self.value + sum(moved)

    @property
    def name(self) -> tuple[int, ...]:
        """What tells it from other forms of the same gaps."""
        return (self.value, *self.slopes)


def sizes(
    count: int, look: Callable[[Gaps], T], period: int = 1, most: int = MOST_SIZES
) -> list[T]:
    """What ``look`` says of sizes that hold all others; it closes their gaps by comparing.

    ``count``: of gaps. ``period``: positions are known modulo this, so that an open gap is larger
    by as much. ``Undecided`` where more than ``most`` sizes would have to be looked at.
    """
    visited: dict[tuple[int, ...], tuple[Gaps, T]] = {}

    def visit(values: tuple[int, ...]) -> Gaps:
        if len(visited) > most:
            raise Undecided("its lines reach so far, or drift so, that too many sizes differ")
        if values not in visited:
            visited[values] = (gaps := Gaps(values)), look(gaps)
        return visited[values][0]

    order = {(0,) * count: None}
    for values in (queue := [*order]):
        gaps = visit(values)
        for shift in itertools.product(*(range(period if is_open else 1) for is_open in gaps.open)):
            visit(tuple(a + b for a, b in zip(values, shift, strict=True)))
        for gap in (gap for gap, is_open in enumerate(gaps.open) if not is_open):
            larger = (*values[:gap], values[gap] + 1, *values[gap + 1 :])
            if larger not in order:
                order[larger] = None
                queue.append(larger)
    return [result for _, result in visited.values()]
