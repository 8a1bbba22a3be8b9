"""The sum of any number of numbers, one row for each."""

from __future__ import annotations

import numpy as np

from tasks.arithmetic import DIGITS
from tasks.base import Problems, Size, TaskError
from tasks.digits import Digits, without_zeros
from tasks.rows import ROW, RowTask, extent
from tasks.rules import Rule, sums


class Sum(RowTask):
    """The sum of any number of numbers, one added after another: ``9+8+5 -> 22``.

    Written ``9 | 7 1 | 2 2``: row r is the row before and operand r, without leading zeros.
    """

    name = "sum"
    operator = "+"
    coupling = "operands"

    def __init__(self, base: int | None = None):
        super().__init__(base)
        self.train_length = 6

    def train_rows(self, length: int) -> int:
        return 4

    def widths(self, length: Size) -> tuple[int, ...]:
        digits, rows = extent(length)
        return (digits,) * rows

    def rule(self) -> Rule:
        return sums(self.base)

    def tokens(self, size: Size) -> int:
        digits, rows = extent(size)
        grown = int(np.ceil(np.log(rows + 1) / np.log(self.base)))
        return rows * (digits + grown + 1)

    def size_of(self, operands: tuple[Digits, ...]) -> tuple[int, int]:
        return max(int(o.lengths.max(initial=1)) for o in operands), len(operands)

    def read(self, output: str) -> str:
        number = output.split(ROW)[0]
        return number.lstrip("0") or number[-1:]

    def parse(self, source: str) -> Problems:
        text = "".join(source.split()).lower()
        parts = text.split("+")
        if not all(parts):
            raise TaskError(f"{source!r} is not a source of {self.name}: write {self.usage}")
        return self.problems(*(self._number(part) for part in parts))

    @property
    def usage(self) -> str:
        one = DIGITS[1 : min(self.base, 4)]
        return f"numbers of digits 0-{DIGITS[self.base - 1]} with + between, as in '{one}+{one}'"

    def write(self, problems: Problems, row: int) -> str:
        there = [o for o in problems.operands if o.lengths[row]]
        return "+".join(self.digits_of(operand, row) for operand in there)

    def counts(
        self, rng: np.random.Generator, n: int, size: tuple[int, int], exact: bool
    ) -> tuple[np.ndarray, ...]:
        digits, rows = size
        if exact:
            return (np.full(n, digits),) * rows
        how_many = rng.integers(1, rows + 1, n)
        each = (rng.integers(1, digits + 1, n) for _ in range(rows))
        return tuple(np.where(k < how_many, count, 0) for k, count in enumerate(each))

    def lopsided(self, rng: np.random.Generator, n: int, size: tuple[int, int]) -> Problems:
        digits, rows = size
        long = rng.integers(0, rows, n)
        short = [np.minimum(rng.integers(1, 3, n), digits) for _ in range(rows)]
        counts = [np.where(long == k, digits, count) for k, count in enumerate(short)]
        return self.problems(*(self._random(rng, count) for count in counts))

    def plain(self, problems: Problems, row: int) -> str:
        numbers = (o for o in problems.operands if o.lengths[row])
        found = (without_zeros(o.values[row : row + 1]) for o in numbers)
        return "+".join(self.digits_of(number, 0) for number in found)

    def smallest(self) -> list[str]:
        return ["0", *(f"0+{digit}" for digit in DIGITS[: self.base])]
