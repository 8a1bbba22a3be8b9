"""From a window back to whole sources that contain it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from abc_calib.certification.field import Reach
from abc_calib.certification.places import (
    Atom,
    Case,
    Constant,
    Digit,
    Phase,
    Written,
    column_of,
)
from tasks import Digits, Problems
from tasks.arithmetic import Arithmetic
from tasks.columns import NEVER, NOTHING, ColumnRule
from tasks.hard import from_rows


class Realiser:
    """Draws random sources in which a given window occurs, of a given width and row."""

    lengths = (5, 20, 100)
    """Of random and hard sources that are decoded."""
    long = (20, 50, 100, 200, 400)
    """Of those that are run by dense attention."""

    def __init__(self, task: Arithmetic, rule: ColumnRule, reach: Reach, period: int):
        self.task, self.rule, self.reach, self.period = task, rule, reach, period
        index = np.indices(rule.next.shape).reshape(rule.next.ndim, -1)
        self.states, self.digits = index[0], index[1:]
        self.next, self.written = rule.next.ravel(), rule.written.ravel()

    def short(self, most: int) -> Iterator[tuple[int, Problems]]:
        """Every problem of each width from 1 on, as long as there are at most so many."""
        rule, width = self.rule, 1
        while rule.base ** (len(rule.operands) * width + (rule.constant is not None)) <= most:
            yield width, self.every(width)
            width += 1

    def every(self, width: int) -> Problems:
        """Every problem whose longest operand has ``width`` digits."""
        rule, base = self.rule, self.rule.base
        wide = len(rule.operands)
        places = wide * width + (rule.constant is not None)
        digits = np.indices((base,) * places).reshape(places, -1).T.astype(np.uint8)
        parts = [digits[:, k * width : (k + 1) * width] for k in range(wide)]
        if width > 1:
            keep = np.any([part[:, 0] != 0 for part in parts], axis=0)
            digits, parts = digits[keep], [part[keep] for part in parts]
        numbers = dict(zip(rule.operands, parts, strict=True))
        if rule.constant is not None:
            numbers[rule.constant] = digits[:, -1:]
        return self.task.problems(*(from_rows(list(numbers[k])) for k in sorted(numbers)))

    def places(self, case: Case, widest: int, near: bool) -> Iterator[tuple[int, int]]:
        """Rows and widths that the case stands for, the narrowest first.

        With ``near``, also those where the window has just room, which are other cases.
        """
        first, last = self.reach.near
        rows = -first if near else self.reach.rows
        columns = last + 1 if near else self.reach.columns
        for width in range(1, widest + 1):
            for row in range(width + 2):
                left = width - row
                row_fits = row == case.row if case.row is not None else row >= rows
                left_fits = left == case.left if case.left is not None else left >= columns
                if row_fits and left_fits:
                    yield row, width

    def sources(
        self,
        case: Case,
        atoms: tuple[Atom, ...],
        values: np.ndarray,
        n: int,
        widest: int,
        rng: np.random.Generator,
        near: bool = False,
        expected: int | None = None,
    ) -> list[tuple[int, Problems]]:
        """Up to ``n`` pairs of the row in question and a source of at most ``widest`` columns.

        With ``near`` the window may stand in another case than its own, nearer to an end.
        ``expected``: the id of the right token there, where several are right in that window.
        """
        found: list[tuple[int, Problems]] = []
        fixed = dict(zip(atoms, (int(v) for v in values), strict=True))
        for row, width in self.places(case, widest, near):
            phases = {Phase("row"): row, Phase("width"): width}
            if any(fixed.get(p, d % self.period) != d % self.period for p, d in phases.items()):
                continue
            allowed = self._allowed(fixed, row, width, expected)
            if allowed is None:
                continue
            found += [(row, self._draw(allowed, width, rng)) for _ in range(n - len(found))]
            if len(found) >= n:
                break
        return found

    def _allowed(
        self, fixed: dict[Atom, int], row: int, width: int, expected: int | None
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Which transitions ``(width, transitions)`` and starts lead through the window, if any."""
        allowed = np.ones((width, len(self.states)), bool)
        if width > 1:
            allowed[-1] &= self.digits.any(0)
        starts = np.isin(np.arange(self.rule.states), self.rule.start)
        ends = self.rule.last != NEVER

        def writes(column: int, token: int) -> None:
            if column < width:
                allowed[column] &= self.written == token
            elif column == width:  # the row after the last column, a final carry or the end
                ends[:] &= self.rule.last == (NOTHING if token >= self.rule.base else token)

        for atom, value in fixed.items():
            if isinstance(atom, Constant):
                assert self.rule.constants is not None
                starts &= self.rule.constants == value
            elif isinstance(atom, Written):
                writes(column_of(atom.column, row, width), value)
            elif isinstance(atom, Digit):
                column = column_of(atom.column, row, width)
                if not 0 <= column < width:
                    return None
                digit = self.digits[self.rule.operands.index(atom.operand)]
                allowed[column] &= digit == value
        if expected is not None:
            writes(row, expected)
        if row == width + 1:  # a row that exists only after a final carry
            ends &= self.rule.last >= 0
        for column in range(width - 1, -1, -1):
            allowed[column] &= ends[self.next]
            ends = np.zeros(self.rule.states, bool)
            ends[self.states[allowed[column]]] = True
        starts &= ends
        return (allowed, starts) if starts.any() else None

    def _draw(
        self, allowed: tuple[np.ndarray, np.ndarray], width: int, rng: np.random.Generator
    ) -> Problems:
        steps, starts = allowed
        state = int(rng.choice(np.flatnonzero(starts)))
        start, columns = state, []
        for column in range(width):
            choice = int(rng.choice(np.flatnonzero(steps[column] & (self.states == state))))
            columns.append(self.digits[:, choice])
            state = int(self.next[choice])
        return problem(self.task, self.rule, np.array(columns), start)


def problem(task: Arithmetic, rule: ColumnRule, columns: np.ndarray, start: int) -> Problems:
    """The problem with these digits, ``columns (width, k)``, last column first."""
    numbers = {
        operand: np.ascontiguousarray(columns[::-1, k]).astype(np.uint8)[None]
        for k, operand in enumerate(rule.operands)
    }
    if rule.constant is not None and rule.constants is not None:
        numbers[rule.constant] = np.array([[rule.constants[start]]], np.uint8)
    operands = tuple(Digits(numbers[k], np.array([numbers[k].shape[1]])) for k in sorted(numbers))
    return task.problems(*operands)
