"""From a window of a sum of many numbers back to whole sources that contain it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from abc_calib.certification.places import ABOVE, Atom, Digit, Written, column_of
from abc_calib.certification.row_sources import RowRealiser
from abc_calib.certification.rows import GridCase
from tasks import Digits, Problems
from tasks.digits import from_integers

DRAWN = 4096
"""Pairs of a row above and an operand that are drawn, to find some that write what is known."""
SPOTS = 4
"""Columns of a window that are tried."""


class SumRealiser(RowRealiser):
    """Draws random sums in whose rows a given window occurs.

    The row above is the first number; zeros stand between it and the operand of the row.
    """

    lengths = ((5, 5), (20, 15), (15, 20))
    """Of random and hard sources that are decoded."""

    def short(self, most: int) -> Iterator[tuple[str, Problems]]:
        """Every sum of numbers of one length, as long as there are at most so many."""
        for places in itertools.count(1):
            if self.task.base**places > most:
                return
            for digits in range(1, places + 1):
                if places % digits == 0:
                    yield f"{digits}x{places // digits}", self.every(digits, places // digits)

    def every(self, digits: int, rows: int) -> Problems:
        """Every sum of so many numbers of so many digits."""
        base = self.task.base
        one = np.arange(base ** (digits - 1) if digits > 1 else 0, base**digits)
        index = np.indices((len(one),) * rows).reshape(rows, -1)
        return self.task.problems(*(from_integers(one[k], base) for k in index))

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
        """Up to ``n`` pairs of the token in question and a sum of numbers of at most ``widest``."""
        least = -self.reach.near[0] if near else self.reach.rows
        columns = [case.row] if case.row is not None else [*range(least, widest + 1)]
        up = self.reach.up if case.up is None else case.up
        found: list[tuple[int, Problems]] = []
        for column in rng.permutation(columns)[:SPOTS].tolist():
            known = list(zip(atoms, values.tolist(), strict=True))
            pair = [self._one_number(column, which, known, widest, rng) for which in (ABOVE, 0)]
            if None in pair:
                continue
            above, operand = pair
            assert above is not None and operand is not None
            zeros = [from_integers(np.zeros(DRAWN, int), self.task.base)] * (up - 1)
            more = [] if case.down == 0 else [self.task._random(rng, operand.lengths)]
            numbers = [*([above, *zeros] if up else []), operand, *more]
            rows = self.task.rows(tuple(numbers))
            kept = self._fitting(rows[up], column, known, expected)
            at = sum((widths + 1 for _, widths in rows[:up]), np.zeros(DRAWN, int)) + column
            for row in np.flatnonzero(kept)[: n - len(found)]:
                one = np.array([row])
                found.append((int(at[row]), self.task.problems(*(x.take(one) for x in numbers))))
        return found

    def _one_number(
        self,
        column: int,
        which: int,
        known: list[tuple[Atom, int]],
        widest: int,
        rng: np.random.Generator,
    ) -> Digits | None:
        """Random numbers with the digits that a window knows of one; None where there is none."""
        base, least, most = self.task.base, 1, widest
        digits: dict[int, int] = {}
        for atom, value in known:
            if isinstance(atom, Digit) and atom.operand == which:
                place = column_of(atom.column, column, 0)
                if value >= base:
                    most = min(most, place)
                else:
                    digits[place], least = value, max(least, place + 1)
        if least > most:
            return None
        lengths = rng.integers(least, most + 1, DRAWN)
        drawn = rng.integers(0, base, (DRAWN, most), np.uint8)
        first = np.arange(DRAWN), lengths - 1
        drawn[first] = np.where(lengths > 1, rng.integers(1, base, DRAWN), drawn[first])
        for place, value in digits.items():
            drawn[:, place] = value
        drawn[np.arange(most) >= lengths[:, None]] = 0
        right = (drawn[first] > 0) | (lengths == 1)
        drawn, lengths = (x[np.resize(np.flatnonzero(right), DRAWN)] for x in (drawn, lengths))
        return Digits(drawn[:, ::-1], lengths) if right.any() else None

    def _fitting(
        self,
        row: tuple[np.ndarray, np.ndarray],
        column: int,
        known: list[tuple[Atom, int]],
        expected: int | None,
    ) -> np.ndarray:
        """Which rows have the digits that are known, and go on or end as ``expected``."""
        values, widths = row
        written = [
            (column_of(atom.column, column, 0), value)
            for atom, value in known
            if isinstance(atom, Written)
        ]
        if expected is not None and expected < self.task.base:
            written.append((column, expected))
        kept = widths == column if expected is not None and expected >= self.task.base else True
        for place, value in written:
            there = place < values.shape[1]
            kept &= (values[:, place] == value) & (place < widths) if there else False
        return np.broadcast_to(kept & (widths >= column), len(widths))
