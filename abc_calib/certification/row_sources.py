"""From a window of an output of several rows back to whole sources that contain it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from abc_calib.certification.places import (
    ABOVE,
    Atom,
    Constant,
    Digit,
    Other,
    Place,
    Written,
    column_of,
)
from abc_calib.certification.rows import GridCase, GridField, GridReach
from tasks import Digits, Problems
from tasks.digits import from_integers
from tasks.rows import RowTask

DRAWN = 32768
"""Problems that are drawn with the digits of the window, to find some with its rows."""
EVERY = 2**17
"""Where no more have these digits, all of them are looked at: a rare row is missed by chance."""
SPOTS = 16
"""Places of a window that are tried."""
TALLEST = 4
"""Rows that are drawn, beside those that the window needs."""


@dataclass(frozen=True)
class Spot:
    """Where a window stands: its ``column`` and ``row`` in a problem of ``digits`` by ``rows``."""

    column: int
    row: int
    digits: int
    rows: int

    def of(self, place: Place) -> int:
        """The number of a column."""
        return column_of(place, self.column, self.digits)


class RowRealiser:
    """Draws random products in whose rows a given window occurs."""

    lengths = ((5, 5), (20, 15), (30, 40))
    """Of random and hard sources that are decoded."""
    long = ((6, 6), (12, 9), (20, 15), (30, 30))
    """Of those that are run by dense attention."""

    def __init__(self, task: RowTask, field: GridField):
        self.task, self.field = task, field
        assert isinstance(field.reach, GridReach)
        self.reach: GridReach = field.reach

    def short(self, most: int) -> Iterator[tuple[str, Problems]]:
        """Every product of two numbers of nearly one length, as long as there are at most so many.

        And of one digit by several.
        """
        base, places = self.task.base, 2
        while base**places <= most:
            half = places // 2
            for digits in sorted({places - 1, places - half, half, 1}):
                yield f"{digits}x{places - digits}", self.every(digits, places - digits)
            places += 1

    def every(self, digits: int, rows: int) -> Problems:
        """Every product of two numbers of so many digits."""
        base = self.task.base
        a, b = (np.arange(base ** (k - 1) if k > 1 else 0, base**k) for k in (digits, rows))
        first, second = np.repeat(a, len(b)), np.tile(b, len(a))
        return self.task.problems(from_integers(first, base), from_integers(second, base))

    def spots(self, case: GridCase, widest: int, near: bool) -> Iterator[Spot]:
        """Where a case may stand; with ``near`` also where the window has just room."""
        first, last = self.reach.near
        before, after = (-first, last + 1) if near else (self.reach.rows, self.reach.columns)
        above = max(self.reach.up - 1, 1) if near else self.reach.up
        for digits in range(1, widest + 1):
            for column in range(digits + 2):
                left = digits - column
                fits = column == case.row if case.row is not None else column >= before
                ends = left == case.left if case.left is not None else left >= after
                if not (fits and ends):
                    continue
                for row in range(min(widest, above + TALLEST)):
                    there = row == case.up if case.up is not None else row >= above
                    if near and case.up:  # rows further down may see more
                        there = row >= case.up
                    below = case.down if case.down is not None else max(self.reach.down, 1)
                    if there and row + 1 + below <= widest:
                        yield Spot(column, row, digits, row + 1 + below)

    def sources(
        self,
        case: GridCase,
        atoms: tuple[Atom, ...],
        values: np.ndarray,
        n: int,
        widest: int,
        rng: np.random.Generator,
        near: bool = False,
        expected: int | None = None,
    ) -> list[tuple[int, Problems]]:
        """Up to ``n`` pairs of the token in question and a product of at most ``widest`` digits."""
        spots = list(self.spots(case, widest, near))
        found: list[tuple[int, Problems]] = []
        for number in rng.permutation(len(spots))[:SPOTS]:
            spot = spots[number]
            problems = self._drawn(spot, atoms, values, expected, rng)
            at = spot.row * (spot.digits + 2) + spot.column
            few = range(min(len(problems), n - len(found)))
            found += [(at, problems.take(np.array([i]))) for i in few]
            if len(found) >= n:
                break
        return found

    def _drawn(
        self,
        spot: Spot,
        atoms: tuple[Atom, ...],
        values: np.ndarray,
        expected: int | None,
        rng: np.random.Generator,
    ) -> Problems:
        """Problems with the window at a spot: drawn with its digits, kept if their rows have it."""
        base, sizes = self.task.base, (spot.digits, spot.rows)
        known: dict[tuple[int, int], int] = {}
        written: list[tuple[int, int, int]] = []  # row, column, digit
        for atom, value in zip(atoms, values.tolist(), strict=True):
            if isinstance(atom, Written):
                written.append((spot.row, spot.of(atom.column), value))
            elif isinstance(atom, Digit) and atom.operand == ABOVE:
                beside = spot.of(atom.column) + self.field.rule.shift
                written.append((spot.row - 1, beside, value))
            elif isinstance(atom, Other) and atom.of != "b":
                assert isinstance(atom.at, Place)
                written.append((spot.row - len(atom.of), spot.of(atom.at), value))
            else:
                which, column = self._digit(spot, atom)
                if not 0 <= column < sizes[which]:
                    return self.task.problems(*_none())
                known[which, sizes[which] - 1 - column] = value
        numbers = self._numbers(sizes, known, rng)
        fits = np.ones(len(numbers[0]), bool)
        for drawn in numbers:
            if drawn.shape[1] > 1:
                fits &= drawn[:, 0] > 0
        a, b = (Digits(x[fits], np.full(int(fits.sum()), x.shape[1])) for x in numbers)
        if not len(a):
            return self.task.problems(*_none())
        if expected is not None and expected < base:
            written.append((spot.row, spot.column, expected))
        rows, kept = self.task.rows((a, b)), np.ones(len(a), bool)
        for row, column, digit in written:
            there = row >= 0 and 0 <= column < rows[row][0].shape[1]
            kept &= rows[row][0][:, column] == digit if there else False
        found = np.flatnonzero(kept)
        return self.task.problems(a.take(found), b.take(found))

    def _numbers(
        self, sizes: tuple[int, int], known: dict[tuple[int, int], int], rng: np.random.Generator
    ) -> list[np.ndarray]:
        """Digits ``(n, size)`` of both operands, those that are known in place: all, or drawn."""
        base = self.task.base
        places = [(which, k) for which in (0, 1) for k in range(sizes[which])]
        free = [place for place in places if place not in known]
        if len(free) * np.log2(base) > np.log2(EVERY):
            drawn = rng.integers(0, base, (DRAWN, len(free)), np.uint8)
        else:
            order = rng.permutation(base ** len(free))
            drawn = (order[:, None] // base ** np.arange(len(free)) % base).astype(np.uint8)
        numbers = [np.zeros((len(drawn), size), np.uint8) for size in sizes]
        for (which, k), value in known.items():
            numbers[which][:, k] = value
        for column, (which, k) in enumerate(free):
            numbers[which][:, k] = drawn[:, column]
        return numbers

    def _digit(self, spot: Spot, atom: Atom) -> tuple[int, int]:
        """Which operand an atom is of, and its column."""
        if isinstance(atom, Digit):
            return 0, spot.of(atom.column)
        if isinstance(atom, Constant):
            return 1, spot.row
        assert isinstance(atom, Other)
        return 1, spot.row + atom.at if isinstance(atom.at, int) else spot.of(atom.at)


def _none() -> tuple[Digits, Digits]:
    """Operands of no problem at all."""
    empty = Digits(np.zeros((0, 1), np.uint8), np.zeros(0, int))
    return empty, empty
