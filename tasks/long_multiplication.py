"""The product of two long numbers, row by row."""

from __future__ import annotations

import numpy as np

from tasks.arithmetic import DIGITS
from tasks.base import Problems, Size
from tasks.digits import Digits
from tasks.rows import ROW, RowTask, extent
from tasks.rules import Rule, long_multiplication


class LongMultiplication(RowTask):
    """The product of two long numbers, row by row: ``12*34 -> 408``, written ``8 4 0 | 0 4 0 |``.

    Row r is what was left of the row before, without its last digit, and the first operand times
    digit r of the second; of n+1 digits for a first operand of n. The product is the last digit
    of each row but the last, and the whole of that. Then an empty row ends the output: so no digit
    of a row has to look at whether there is another one.
    """

    name = "long_multiplication"
    operator = "*"
    count = 2
    coupling = "second"

    def __init__(self, base: int | None = None):
        super().__init__(base)
        self.train_length = 4 if self.base == 2 else 6  # in which hardly a window is missing

    def train_rows(self, length: int) -> int:
        return length

    def widths(self, length: Size) -> tuple[int, ...]:
        return extent(length)

    def rule(self) -> Rule:
        return long_multiplication(self.base)

    def tokens(self, size: Size) -> int:
        digits, rows = extent(size)
        return rows * (digits + 2)

    def size_of(self, operands: tuple[Digits, ...]) -> tuple[int, int]:
        digits, rows = (int(operand.lengths.max(initial=1)) for operand in operands)
        return digits, rows

    def read(self, output: str) -> str:
        rows = output.removeprefix(ROW).split(ROW)
        number = rows[0] + "".join(row[-1:] for row in rows[1:])
        return number.lstrip("0") or number[-1:]

    def counts(
        self, rng: np.random.Generator, n: int, size: tuple[int, int], exact: bool
    ) -> tuple[np.ndarray, ...]:
        if exact:
            return np.full(n, size[0]), np.full(n, size[1])
        return rng.integers(1, size[0] + 1, n), rng.integers(1, size[1] + 1, n)

    def lopsided(self, rng: np.random.Generator, n: int, size: tuple[int, int]) -> Problems:
        turned = np.arange(n) % 2 == 0
        one = np.minimum(rng.integers(1, 3, n), size[0]), np.minimum(rng.integers(1, 3, n), size[1])
        counts = np.where(turned, size[0], one[0]), np.where(turned, one[1], size[1])
        return self.problems(*(self._random(rng, count) for count in counts))

    def smallest(self) -> list[str]:
        return [f"0*{digit}" for digit in DIGITS[: self.base]]
