"""Successor, addition and parity: rules of Duan & Shi, section 3.1."""

from __future__ import annotations

import numpy as np

from tasks import rules
from tasks.arithmetic import Arithmetic
from tasks.base import TaskError
from tasks.digits import Digits


class Successor(Arithmetic):
    """The next number: ``199 -> 200``, of which the model writes ``0 0 2``."""

    name = "successor"

    def rule(self) -> rules.Rule:
        return rules.successor(self.base)

    def _chains(self, rng: np.random.Generator, *counts: np.ndarray) -> tuple[Digits, ...]:
        number = self._random(rng, counts[0])
        nines = np.where(rng.random(len(number)) < 0.25, counts[0], rng.integers(0, counts[0] + 1))
        column = number.width - 1 - np.arange(number.width)
        number.values[column < nines[:, None]] = self.base - 1
        return (number,)


class Addition(Arithmetic):
    """The sum: ``999+1 -> 1000``, of which the model writes ``0 0 0 1``."""

    name = "addition"
    operator = "+"
    count = 2

    def rule(self) -> rules.Rule:
        return rules.addition(self.base)

    def _chains(self, rng: np.random.Generator, *counts: np.ndarray) -> tuple[Digits, ...]:
        first, second = (self._random(rng, count) for count in counts)
        width = max(first.width, second.width)
        a, b = first.widened(width), second.widened(width)
        column = width - 1 - np.arange(width)
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


class Parity(Arithmetic):
    """Whether the ones are odd in number: ``1011 -> 1``.

    The model writes the running xor from the last bit to the first, ``1 0 0 1``
    (paper, section 3.2), and its last bit is the answer.
    """

    name = "parity"
    default_base = 2

    def __init__(self, base: int | None = None):
        super().__init__(base)
        if self.base != 2:
            raise TaskError(f"parity is defined on bits: base {self.base} is not possible, only 2")

    def rule(self) -> rules.Rule:
        return rules.running_xor()

    def read(self, output: str) -> str:
        return output[:1]

    def _chains(self, rng: np.random.Generator, *counts: np.ndarray) -> tuple[Digits, ...]:
        bits = self._random(rng, counts[0])
        start, stop = self._run(rng, counts[0])
        column = bits.width - 1 - np.arange(bits.width)
        inside = (column >= start[:, None]) & (column < stop[:, None])
        bits.values[inside] = 1
        return (self._trimmed(rng, bits.values, counts[0]),)
