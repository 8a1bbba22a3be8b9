"""Further arithmetic: multiplication by short numbers, sums of several numbers, an order of digits.

What reviewers of the paper asked for, in the same notation as the rest.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tasks import rules
from tasks.arithmetic import Arithmetic
from tasks.base import Size, TaskError
from tasks.basic import Addition
from tasks.digits import Digits


class Multiplication(Arithmetic):
    """A number times one digit (the paper's N x 1): ``123*6 -> 738``, written ``8 3 7``."""

    name = "multiplication"
    operator = "*"
    count = 2
    #: most digits of the second operand; sources have this number
    second: ClassVar[int] = 1

    def rule(self) -> rules.Rule | None:
        return rules.multiplication(self.base) if self.second == 1 else None

    def answer(self, *operands: Digits) -> Digits:
        if self.second == 1:
            return super().answer(*operands)
        number, factor = operands
        k = self.second
        product = np.zeros((len(number), number.width + k), np.uint8)
        values = np.pad(number.values, ((0, 0), (k, k - 1))).astype(np.int64)
        digits = factor.widened(max(k, factor.width))[:, -k:].astype(np.int64)
        carry = np.zeros(len(number), np.int64)
        for column in range(number.width + k - 1, -1, -1):
            # the digit of the factor for base**d meets the digits d columns further right
            met = (values[:, column + d] * digits[:, k - 1 - d] for d in range(k))
            carry, product[:, column] = np.divmod(sum(met) + carry, self.base)
        # as wide as the number and the factor's further digits, one more for a final carry:
        # 123*0 is written 0 0 0
        written = number.lengths + k - 1
        carried = product[np.arange(len(number)), number.width - number.lengths] != 0
        return Digits(product, written + carried)

    def tokens(self, size: Size) -> int:
        return super().tokens(size) + self.second - 1

    def padded(self, operands: tuple[Digits, ...], width: int | None = None) -> tuple[Digits, ...]:
        number, factor = operands
        values = factor.widened(max(self.second, factor.width))[:, -self.second :]
        padded = Digits(values, np.full(len(factor), self.second))
        return (*super().padded((number,), width), padded)

    def widths(self, length: int) -> tuple[int, ...]:
        return length, self.second

    def columns(self, operands: tuple[Digits, ...]) -> tuple[Digits, ...]:
        """The other digit of each digit of the number; ``TaskError`` for longer factors."""
        if self.second > 1:
            raise TaskError(
                f"{self.name} has no columns, its operands being of different widths: use the "
                "format free or fixed:N"
            )
        number, digit = operands
        return number, Digits(np.repeat(digit.values[:, -1:], number.width, 1), number.lengths)

    def _check(self, source: str, operands: tuple[Digits, ...]) -> None:
        if operands[1].lengths[0] > self.second:
            most = "one digit" if self.second == 1 else f"at most {self.second} digits"
            raise TaskError(
                f"{source!r}: {self.name} takes a second operand of {most}, as in "
                f"'123*{'6' * self.second}'"
            )

    def _counts(
        self, rng: np.random.Generator, n: int, length: int, exact: bool
    ) -> tuple[np.ndarray, ...]:
        (count, _) = super()._counts(rng, n, length, exact)
        if exact or self.second == 1:
            return count, np.full(n, self.second)
        return count, rng.integers(1, self.second + 1, n)

    def _draw(
        self, rng: np.random.Generator, n: int, length: int, law: str, exact: bool
    ) -> tuple[Digits, ...]:
        if law == "uniform" and not exact:
            return self._uniform(rng, n, length), self._random(rng, np.full(n, self.second))
        return super()._draw(rng, n, length, law, exact)

    def _chains(self, rng: np.random.Generator, *counts: np.ndarray) -> tuple[Digits, ...]:
        """Numbers whose product by their factor is a long run of the highest digit, or near it."""
        number, digits = (self._random(rng, count) for count in counts)
        factor = np.maximum(digits.as_integers(self.base).astype(np.int64), 1)
        first = number.width - counts[0]
        remainder = np.zeros(len(number), np.int64)
        start, _ = self._run(rng, counts[0])
        for column in range(number.width):
            inside = column >= first
            quotient, rest = np.divmod(remainder * self.base + self.base - 1, factor)
            remainder = np.where(inside, rest, 0)
            in_chain = inside & (number.width - 1 - column >= start)
            number.values[:, column] = np.where(in_chain, quotient, number.values[:, column])
        nines = rng.random(len(number)) < 0.25
        column_in = np.arange(number.width) >= first[:, None]
        number.values[nines] = np.where(column_in[nines], self.base - 1, 0)
        return self._trimmed(rng, number.values, counts[0]), digits


class Multiplication2(Multiplication):
    """A number times one of two digits (N x 2): ``123*45 -> 5535``, written ``5 3 5 5``."""

    name = "multiplication2"
    second = 2


class Multiplication3(Multiplication):
    """A number times one of three digits (N x 3): ``12*345 -> 4140``, written ``0 4 1 4``."""

    name = "multiplication3"
    second = 3


class Addition3(Arithmetic):
    """The sum of three numbers: ``99+9+2 -> 110``, of which the model writes ``0 1 1``.

    What is carried is 0, 1 or 2.
    """

    name = "addition3"
    operator = "+"
    count = 3

    def rule(self) -> rules.Rule | None:
        return rules.addition(self.base, self.count) if self.base >= self.count else None

    def answer(self, *operands: Digits) -> Digits:
        if self.base >= self.count:
            return super().answer(*operands)
        return self._with_long_carries(operands)

    def tokens(self, size: Size) -> int:
        return super().tokens(size) + (self.base < self.count)

    def _with_long_carries(self, operands: tuple[Digits, ...]) -> Digits:
        """In base 2 and 3, where a carry may have two digits."""
        width = max(operand.width for operand in operands)
        carry = np.zeros(len(operands[0]), int)
        total = np.zeros((len(carry), width + 2), np.uint8)
        digits = [operand.widened(width) for operand in operands]
        for column in range(width + 1, -1, -1):
            column_sum = carry + sum(d[:, column - 2].astype(int) for d in digits if column > 1)
            carry, total[:, column] = np.divmod(column_sum, self.base)
        length = np.max([operand.lengths for operand in operands], axis=0)
        rows, first = np.arange(len(total)), width + 2 - length
        high, low = total[rows, first - 2] != 0, total[rows, first - 1] != 0
        return Digits(total, length + np.where(high, 2, low))

    def _chains(self, rng: np.random.Generator, *counts: np.ndarray) -> tuple[Digits, ...]:
        """Chains of two operands and little in the others; every fourth of highest digits only."""
        first, second = Addition(self.base)._chains(rng, *counts[:2])
        others = []
        for count in counts[2:]:
            other = self._random(rng, count)
            behind = np.arange(other.width) > other.width - count[:, None]
            others.append(Digits(np.where(behind, 0, other.values).astype(np.uint8), count))
        nines = rng.random(len(first)) < 0.25
        for operand in (first, second, *others):
            operand.values[nines] = np.where(operand.inside[nines], self.base - 1, 0)
        return (first, second, *others)


class Addition4(Addition3):
    """The sum of four numbers: ``99+9+2+5 -> 115``, of which the model writes ``5 1 1``.

    What is carried is 0 to 3.
    """

    name = "addition4"
    count = 4


class Zigzag(Arithmetic):
    """The digits from the middle outwards: ``123456 -> 342516``, written ``6 1 5 2 4 3``.

    The model writes them from both ends by turns, so that what it must read leaps from end to
    end: attention that is not monotonic, and on no line.
    """

    name = "zigzag"

    def answer(self, *operands: Digits) -> Digits:
        (number,) = operands
        # the turn of each column, from the right: even turns read the end, odd ones the start
        turn = number.width - 1 - np.arange(number.width)
        back = turn // 2
        lengths = number.lengths[:, None]
        place = np.where(turn % 2, lengths - 1 - back, back)  # from the right
        column = np.clip(number.width - 1 - place, 0, number.width - 1)
        values = np.take_along_axis(number.values, column, 1)
        return Digits(np.where(turn < lengths, values, 0).astype(np.uint8), number.lengths)

    def padded(self, operands: tuple[Digits, ...], width: int | None = None) -> tuple[Digits, ...]:
        if width is not None:
            raise TaskError("zigzag reads digits by their place: use the format free, not fixed:N")
        return operands

    def read(self, output: str) -> str:
        return output

    def _chains(self, rng: np.random.Generator, *counts: np.ndarray) -> tuple[Digits, ...]:
        """Numbers of one digit over and over but for a few, in which places are easily confused."""
        number = self._random(rng, counts[0])
        same = rng.random(number.values.shape) < 0.9
        values = np.where(same, number.values[:, -1:], number.values)
        return (self._trimmed(rng, values.astype(np.uint8), counts[0]),)
