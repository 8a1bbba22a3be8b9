"""Successor, addition, N x 1 and parity, rules of Duan & Shi, section 3.1; and subtraction."""

from __future__ import annotations

from typing import Any

import numpy as np

from tasks.arithmetic import Arithmetic
from tasks.base import Problems, TaskError
from tasks.ragged import Ragged, Rng


class Successor(Arithmetic):
    """The next number: ``199 -> 200``, written ``0 0 2``."""

    name = "successor"

    start = 1  # a carry into the last column

    def step(self, carry: int, digit: int) -> tuple[int, int]:  # type: ignore[override]
        return divmod(carry + digit, self.base)

    def _chains(self, rng: Rng, *counts: np.ndarray) -> tuple[Ragged, ...]:
        number = self._random(rng, counts[0])
        nines = np.where(rng.random(len(number)) < 0.25, counts[0], rng.integers(0, counts[0] + 1))
        number.values[np.arange(number.width) < nines[:, None]] = self.base - 1
        return (number,)


class Addition(Arithmetic):
    """The sum: ``999+1 -> 1000``, written ``0 0 0 1``."""

    name = "addition"
    operator = "+"
    count = 2

    def step(self, carry: int, *digits: int) -> tuple[int, int]:
        return divmod(carry + sum(digits), self.base)

    def _chains(self, rng: Rng, *counts: np.ndarray) -> tuple[Ragged, ...]:
        first, second = (self._random(rng, count) for count in counts)
        width = max(first.width, second.width)
        a, b, column = first.widened(width), second.widened(width), np.arange(width)
        start, _ = self._run(rng, np.minimum(*counts))
        _, stop = self._run(rng, np.maximum(*counts))
        chain = (column >= start[:, None]) & (column < stop[:, None])
        in_a, in_b = (column < count[:, None] for count in counts)
        # within the chain every pair of digits adds up to base - 1 ...
        b = np.where(chain & in_b, np.where(in_a, self.base - 1 - a, self.base - 1), b)
        a = np.where(chain & in_a & ~in_b, self.base - 1, a)
        # ... and at its start to more
        begin = column == start[:, None]
        a = np.where(begin, self.base - 1, a)
        b = np.where(begin & (b == 0), 1, b)
        nines = rng.random(len(a)) < 0.1
        a[nines] = np.where(in_a[nines], self.base - 1, 0)
        return (
            self._trimmed(rng, a.astype(np.uint8), counts[0]),
            self._trimmed(rng, b.astype(np.uint8), counts[1]),
        )


class Multiplication(Arithmetic):
    """A number times one digit (the paper's N x 1): ``123*6 -> 738``, written ``8 3 7``."""

    name, title = "multiplication", "number times one digit"
    operator = "*"
    count = 2

    row_operand = 1

    def begin(self, digit: int) -> tuple[int, int]:
        """The state: the factor, and what is carried."""
        return digit, 0

    def step(self, state: tuple[int, int], digit: int) -> Any:  # type: ignore[override]
        factor, carry = state
        carry, product = divmod(factor * digit + carry, self.base)
        return (factor, carry), product

    def end(self, state: tuple[int, int]) -> tuple[int, ...]:
        return (state[1],) if state[1] else ()

    def _draw(self, rng: Rng, n: int, length: int, law: str, exact: bool) -> tuple[Ragged, ...]:
        if law == "uniform" and not exact:  # whose draws no counts precede
            return self._uniform(rng, n, length), self._random(rng, np.ones(n, int))
        return super()._draw(rng, n, length, law, exact)

    def _chains(self, rng: Rng, *counts: np.ndarray) -> tuple[Ragged, ...]:
        """Numbers whose product by their factor is a long run of the highest digit, or near it."""
        number, digit = (self._random(rng, count) for count in counts)
        factor = np.maximum(digit.values[:, 0].astype(np.int64), 1)
        remainder = np.zeros(len(number), np.int64)
        start, _ = self._run(rng, counts[0])
        for column in reversed(range(number.width)):
            inside = column < counts[0]
            quotient, rest = np.divmod(remainder * self.base + self.base - 1, factor)
            remainder = np.where(inside, rest, 0)
            in_chain = inside & (column >= start)
            number.values[:, column] = np.where(in_chain, quotient, number.values[:, column])
        nines = rng.random(len(number)) < 0.25
        number.values[nines] = np.where(number.inside[nines], self.base - 1, 0)
        return self._trimmed(rng, number.values, counts[0]), digit


class Parity(Arithmetic):
    """Whether the number of ones is odd: ``1011 -> 1``, written ``1 0 0 1``.

    These are the running parities from the last bit to the first (paper, section 3.2); the last
    one is the answer.
    """

    name = "parity"
    default_base = 2

    def __init__(self, base: int | None = None):
        super().__init__(base)
        if self.base != 2:
            raise TaskError(f"parity is defined on bits: base {self.base} is not possible, only 2")

    def step(self, parity: int, bit: int) -> tuple[int, int]:  # type: ignore[override]
        return parity ^ bit, parity ^ bit

    def end(self, parity: int) -> tuple[int, ...]:
        return ()

    def read(self, output: str) -> str:
        return output[:1]

    def _chains(self, rng: Rng, *counts: np.ndarray) -> tuple[Ragged, ...]:
        bits = self._random(rng, counts[0])
        start, stop = self._run(rng, counts[0])
        column = np.arange(bits.width)
        inside = (column >= start[:, None]) & (column < stop[:, None])
        bits.values[inside] = 1
        return (self._trimmed(rng, bits.values, counts[0]),)


class Subtraction(Arithmetic):
    """A number minus one that is not larger: ``502-7 -> 495``, written ``5 9 4``.

    The answer is as wide as the wider operand: ``502-499`` is written ``3 0 0``.
    """

    name = "subtraction"
    operator = "-"
    count = 2

    def step(self, borrow: int, a: int, b: int) -> tuple[int, int]:  # type: ignore[override]
        return int(a - b - borrow < 0), (a - b - borrow) % self.base

    def end(self, borrow: int) -> tuple[int, ...] | None:
        return None if borrow else ()

    def problems(self, *operands: Ragged) -> Problems:
        """The larger operand comes first."""
        first, second = operands
        width = max(first.width, second.width)
        a, b = first.widened(width), second.widened(width)
        less = _less(a, b)
        larger, smaller = (
            Ragged(np.where(less[:, None], x, y), np.where(less, of_x.lengths, of_y.lengths))
            for x, of_x, y, of_y in ((b, second, a, first), (a, first, b, second))
        )
        return Problems((larger, smaller), self.answer(larger, smaller))

    def _not_a_source(self, operands: tuple[Ragged, ...], row: int) -> TaskError:
        first, second = operands
        problem = f"{self.digits_of(first, row)}-{self.digits_of(second, row)}"
        return TaskError(f"{problem} is below 0: {self.name} takes a-b with a not smaller than b")

    def _chains(self, rng: Rng, *counts: np.ndarray) -> tuple[Ragged, ...]:
        """A borrow that runs through columns of equal digits, or of zeros above the second."""
        longer, shorter = np.maximum(*counts), np.minimum(*counts)
        first, second = self._random(rng, longer), self._random(rng, shorter)
        a, b, column = first.values, second.widened(first.width), np.arange(first.width)
        start, _ = self._run(rng, shorter)
        _, stop = self._run(rng, longer)
        stop = np.minimum(stop, longer - 1)  # where the borrow is paid
        a = np.where((column > start[:, None]) & (column < stop[:, None]), b, a)
        begin, end = column == start[:, None], column == np.maximum(stop, start + 1)[:, None]
        b = np.where(begin & (b == 0), rng.integers(1, self.base, b.shape)[:, ::-1], b)
        a = np.where(begin, _below(rng, b), a)
        a = np.where(end & (a == 0), rng.integers(1, self.base, a.shape)[:, ::-1], a)
        b = np.where(end, _below(rng, a), b)
        above = column > stop[:, None]
        turned = above & _less(a * above, b * above)[:, None]
        a, b = np.where(turned, b, a), np.where(turned, a, b)
        powers = rng.random(len(a)) < 0.1
        a[powers] = column == longer[powers][:, None] - 1
        return (
            self._trimmed(rng, a.astype(np.uint8), longer),
            self._trimmed(rng, b.astype(np.uint8), shorter),
        )


def _less(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Of which rows of digits is the number ``a (n, width)`` below ``b``."""
    at = np.arange(len(a)), a.shape[1] - 1 - (a != b)[:, ::-1].argmax(1)
    return a[at] < b[at]


def _below(rng: Rng, digits: np.ndarray) -> np.ndarray:
    """Digits that are smaller, where there are any."""
    return (digits * rng.random(digits.shape)[:, ::-1]).astype(np.uint8)
