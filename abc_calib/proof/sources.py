"""Sources of a task by its rule: all short ones, and how long those are that are tried besides."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tasks import Rows
from tasks.ragged import Ragged, without_zeros
from tasks.rules import Rule

SHORT = 40
"""Most digits, or columns and rows together, of what is called a short source."""


class Sources:
    """Sources of a task by its rule."""

    def __init__(self, task: Any, rule: Rule):
        self.task, self.rule = task, rule

    @property
    def lengths(self) -> tuple[Any, ...]:
        """Of random and hard sources that are decoded."""
        if not self.rule.in_rows:
            return 5, 20, 100
        if self.rule.first.words:
            return 5, 10, 20
        return ((5, 5), (20, 15), (15, 20)) if self.rule.listed else ((5, 5), (20, 15), (30, 40))

    @property
    def long(self) -> tuple[Any, ...]:
        """Of those that are run by dense attention."""
        if not self.rule.in_rows:
            return 20, 50, 100, 200, 400
        return (6, 12, 20, 30) if self.rule.first.words else ((6, 6), (12, 9), (20, 15), (30, 30))

    def short(self, most: int) -> Iterator[tuple[int | str, Rows]]:
        """Every problem of each size from the smallest on; ``most`` of a size, and about in all."""
        yielded = 0
        for total in range(1, SHORT + 1):
            has_size = False
            for name, widths in self._sizes(total):
                if math.prod(len(self._letters(k)) ** w for k, w in enumerate(widths)) > most:
                    continue
                has_size = True
                numbers = [self._numbers(k, width) for k, width in enumerate(widths)]
                index = np.indices([len(number) for number in numbers])
                index = index.reshape(len(numbers), -1)
                drawn = [number.take(k) for number, k in zip(numbers, index, strict=True)]
                if not self.rule.in_rows:  # the longest of them has this width
                    longest = np.max([drawn[k].lengths for k in self.rule.first.tapes], axis=0)
                    kept = np.flatnonzero(longest == total)
                    drawn = [number.take(kept) for number in drawn]
                if len(problems := self.task.posed(drawn)):
                    yield name, problems
                if (yielded := yielded + len(problems)) >= most:
                    return
            if not has_size:
                return

    def _sizes(self, total: int) -> Iterator[tuple[int | str, list[int]]]:
        """Sources of this number of digits in all, or of that width: of each operand, its width."""
        first, of_row = self.rule.first, self.rule.of_row
        operands = len(set(first.tapes)) // self.rule.stride
        if first.words and of_row is None:
            yield total, self._turns(total) * operands
        elif not self.rule.in_rows:
            yield total, [*self.task.widths(total)]
        elif self.rule.listed:
            for digits in (d for d in range(1, total + 1) if total % d == 0):
                rows = total // digits
                yield f"{digits}x{rows}", [digits] * rows
        elif not first.tapes:
            yield str(total), [total]
        else:
            for digits in range(1, total + 1):
                rows = total + 1 - digits
                others = self._turns(digits) * operands
                yield f"{digits}x{rows}", [rows, *others] if of_row == 0 else [*others, rows]

    def _turns(self, letters: int) -> list[int]:
        """The widths of the operands that read so many letters by turns."""
        k = self.rule.stride
        return [(letters + k - 1 - j) // k for j in range(k)]

    def _letters(self, operand: int) -> np.ndarray:
        """The letters that may stand in an operand."""
        if self.rule.first.words and operand == self.rule.of_row:
            return np.array(self.rule.first.symbols)
        return np.arange(self.rule.base - self.rule.ticks)  # what counts rows stands in none

    def _numbers(self, operand: int, width: int) -> Ragged:
        """All numbers of a width, or of at most that in one row; of words, every row of them."""
        allowed, words = self._letters(operand), self.rule.first.words
        base = len(allowed)
        least = base ** (width - 1) if self.rule.in_rows and width > 1 and not words else 0
        values = np.arange(least, base**width)[:, None] // base ** np.arange(width) % base
        if words:
            return Ragged(allowed[values], np.full(len(values), width))
        return without_zeros(values)
