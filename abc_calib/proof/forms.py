"""Places that are linear in a few gaps, and which sizes of a problem have to be looked at.

Where a token stands is an integer that is linear in the *gaps* of a size: how far its query is from
the first column, from the last one, and so on. ``Form`` does the arithmetic of such integers at
gaps of one size, and closes those gaps in its ``Gaps`` that would change a comparison's outcome if
they were larger. Where a gap stays *open*, everything is arranged alike in all sizes with a
larger one. ``sizes`` lists gaps from the smallest on, each as far as it is not open yet, so that
every size there is is one of those listed with some of its open gaps made larger.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from abc_calib.errors import AbcError

MOST_SIZES = 10_000
"""More would take minutes to list alone."""


class Unbounded(AbcError):
    """What a row sees has no bound, or none that is known; the message says why."""


class Gaps:
    """The gaps of one size; ``open``: those that may be made larger and nothing changes."""

    def __init__(self, values: tuple[int, ...]):
        self.values = values
        self.open = [True] * len(values)

    def form(self, constant: int, *slopes: int) -> Form:
        """``constant`` and a multiple of each gap."""
        value = constant + sum(s * g for s, g in zip(slopes, self.values, strict=True))
        return Form(self, value, slopes)


class Form:
    """An integer that is linear in gaps: its ``value`` at this size, and its ``slopes``."""

    __slots__ = ("gaps", "slopes", "value")

    def __init__(self, gaps: Gaps, value: int, slopes: tuple[int, ...]):
        self.gaps, self.value, self.slopes = gaps, value, slopes

    def __repr__(self) -> str:
        return f"Form({self.value}, {self.slopes})"

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
        """Tokens as columns; ``Unbounded`` where a gap is not a whole number of columns."""
        if parts == 1:
            return self, 0
        if any(s % parts for s in self.slopes):
            raise Unbounded("a line goes on by a part of a column a row, and drifts through digits")
        value, rest = divmod(self.value, parts)
        return Form(self.gaps, value, tuple(s // parts for s in self.slopes)), rest

    def compared(self, other: Any) -> int:
        """Negative, 0 or positive as this is below, at or above ``other``; closes gaps."""
        if isinstance(other, Form):
            distance, slopes = self.value - other.value, self.slopes
            if slopes == other.slopes:
                return distance
            slopes = tuple(a - b for a, b in zip(slopes, other.slopes, strict=True))
        else:
            distance, slopes = self.value - other, self.slopes
        for gap, slope in enumerate(slopes):
            if slope and (distance == 0 or (distance > 0) != (slope > 0)):
                self.gaps.open[gap] = False
        return distance

    def __lt__(self, other: Any) -> bool:
        return self.compared(other) < 0

    def __le__(self, other: Any) -> bool:
        return self.compared(other) <= 0

    def __gt__(self, other: Any) -> bool:
        return self.compared(other) > 0

    def __ge__(self, other: Any) -> bool:
        return self.compared(other) >= 0

    def __eq__(self, other: object) -> bool:
        return self.compared(other) == 0

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return self.compared(0) != 0

    def __index__(self) -> int:
        """The value, of this very size."""
        for gap, slope in enumerate(self.slopes):
            if slope:
                self.gaps.open[gap] = False
        return self.value

    def maximum(self, other: Any) -> Form:
        return self._like(other) if self.compared(other) < 0 else self

    def minimum(self, other: Any) -> Form:
        return self._like(other) if self.compared(other) > 0 else self

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
    count: int, look: Callable[[Gaps], None], period: int = 1, most: int = MOST_SIZES
) -> Iterator[Gaps]:
    """Gaps whose sizes hold all others: ``look`` sees each, and closes gaps by comparing.

    ``count``: of gaps. ``period``: positions are known modulo this, so that an open gap is larger
    by as much. ``Unbounded`` where more than ``most`` sizes would have to be looked at.
    """
    visited: dict[tuple[int, ...], Gaps] = {}

    def visit(values: tuple[int, ...]) -> Gaps:
        if len(visited) > most:
            raise Unbounded("its lines reach so far, or drift so, that too many sizes differ")
        if values not in visited:
            visited[values] = Gaps(values)
            look(visited[values])
        return visited[values]

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
    yield from visited.values()
