"""Tasks whose output has several rows, as on paper.

A row is written least significant digit first; ``|`` closes it, and the end of the output the last
one. So each token depends on a few digits around its own place, in two dimensions: see
docs/rows.md.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from tasks.arithmetic import DIGITS, Arithmetic
from tasks.base import Problems, Size, TaskError
from tasks.digits import Digits, columns_of
from tasks.rules import ROW, Tape

MOST_TOKENS = 50_000_000
"""Of the outputs of a batch; beyond it a sample is too large to hold."""


def extent(size: Size) -> tuple[int, int]:
    """A size as digits and rows."""
    return size if isinstance(size, tuple) else (size, size)


class RowTask(Arithmetic):
    """A rule that is written in rows. An answer holds them from the last row to the first.

    So that it reads as a number does, most significant digit first: ``12*34`` has the rows
    ``8 4 0 | 0 4 0``, and the answer ``040|048``.
    """

    notation = "rows"
    laws = ("balanced", "carry", "mixed", "few")
    kinds = 5
    #: what of a source belongs to a row: ``operands``, or the digits of the ``second`` one
    coupling: ClassVar[str]

    def __init__(self, base: int | None = None):
        super().__init__(base)
        self.symbols = (*DIGITS[: self.base], self.operator or "", ROW)
        self.delimiters = (self.operator or "",)
        #: id of ``|`` in an answer
        self.row_id = len(self.symbols) - 1

    @abstractmethod
    def train_rows(self, length: int) -> int:
        """Most rows of a training problem of that many digits."""

    @abstractmethod
    def tokens(self, size: Size) -> int:
        """The longest output of a size, its end left out."""

    @abstractmethod
    def size_of(self, operands: tuple[Digits, ...]) -> tuple[int, int]:
        """Most digits and rows of problems with these operands."""

    def answer(self, *operands: Digits) -> Digits:
        n, most = len(operands[0]), self.tokens(self.size_of(operands))
        if n * most > MOST_TOKENS:
            fewer = f"at most {MOST_TOKENS // most:,} problems of this size, or " * (n > 1)
            raise TaskError(
                f"{n} output{'s' * (n > 1)} of up to {most:,} tokens: {self.name} writes at most "
                f"{MOST_TOKENS:,} at once; give {fewer}smaller numbers, such as two of "
                f"{int((MOST_TOKENS / n) ** 0.5) - 2:,} digits"
            )
        rows = self._rule.rows(self.tapes(operands))
        total = sum(np.maximum(widths + 1, 0) for _, widths in rows) - 1
        longest = int(np.max(total, initial=1))
        ids = np.full((n, longest + 1), self.row_id, np.uint8)
        start = np.zeros(n, int)
        for values, widths in rows:
            inside = np.arange(values.shape[1]) < widths[:, None]
            which, column = np.nonzero(inside)
            ids[which, start[which] + column] = values[which, column]
            start = start + widths + 1
        return Digits(ids[:, longest - 1 :: -1] if longest else ids[:, :0], np.asarray(total))

    def tapes(self, operands: tuple[Digits, ...]) -> list[Tape]:
        return [columns_of(operand, operand.lengths) for operand in operands]

    # Sampling

    def sample(
        self,
        rng: np.random.Generator,
        n: int,
        length: Size,
        law: str = "balanced",
        exact: bool = False,
    ) -> Problems:
        """Problems of at most (``exact``: of exactly) a size.

        ``balanced``: sizes and digits uniform. ``carry``: operands of zeros, highest digits and
        few others, of which carries run far. ``few``: operands of two different digits in each
        problem. ``mixed``: a third of each.
        """
        if law not in self.laws:
            raise TaskError(f"unknown sampling law {law!r}: choose one of {', '.join(self.laws)}")
        digits, rows = extent(length)
        if min(digits, rows) < 1:
            raise TaskError(f"size {digits}x{rows} is not possible: give 1x1 or more")
        counts = self.counts(rng, n, (digits, rows), exact)
        kind = {"balanced": 0, "carry": 1, "few": 2}.get(law, rng.integers(0, 3, (n, 1)))
        kind = np.broadcast_to(kind, (n, 1))
        two = np.where(kind == 2, rng.integers(0, self.base, (n, 2)), [0, self.base - 1])
        operands = []
        for count in counts:
            drawn = self._random(rng, np.maximum(count, 1))
            shape = drawn.values.shape
            extremes = two[np.arange(n)[:, None], rng.integers(0, 2, shape)]
            chosen = rng.random(shape) < np.choose(kind, [0, rng.random((n, 1)), 1])
            values = np.where(chosen, extremes, drawn.values).astype(np.uint8)
            trimmed = self._trimmed(rng, values, np.maximum(count, 1))
            absent = count < 1
            trimmed.values[absent] = 0
            operands.append(Digits(trimmed.values, np.where(absent, 0, trimmed.lengths)))
        return self.problems(*operands)

    @abstractmethod
    def counts(
        self, rng: np.random.Generator, n: int, size: tuple[int, int], exact: bool
    ) -> tuple[np.ndarray, ...]:
        """Digits of every operand, ``(n,)`` each; 0 for one that a problem does not have."""

    def _chains(self, rng: np.random.Generator, *counts: np.ndarray) -> tuple[Digits, ...]:
        raise NotImplementedError("rows are drawn by sample")

    def families(self, rng: np.random.Generator, n: int, length: Size) -> dict[str, Problems]:
        """Hard operands: all nines, powers, one digit, repeated digits, very different widths."""
        made = {"zeros and nines": self.sample(rng, n, length, "carry", exact=True)}
        for name, number in _NUMBERS.items():
            drawn = self.sample(rng, n, length, "balanced", exact=True).operands
            operands = []
            for place, operand in enumerate(drawn):
                values = operand.values.copy()
                same = number(rng, operand, self.base)
                chosen = operand.inside & ((np.arange(n) % 3 != 1 + place % 2)[:, None])
                values[chosen] = same[chosen]
                operands.append(self._trimmed(rng, values, operand.lengths))
            made[name] = self.problems(*operands)
        made["very different widths"] = self.lopsided(rng, n, extent(length))
        return made

    @abstractmethod
    def lopsided(self, rng: np.random.Generator, n: int, size: tuple[int, int]) -> Problems:
        """Problems of whose operands one is much longer than the others."""


def _nines(rng: np.random.Generator, operand: Digits, base: int) -> np.ndarray:
    return np.full(operand.values.shape, base - 1, np.uint8)


def _power(rng: np.random.Generator, operand: Digits, base: int) -> np.ndarray:
    first = np.arange(operand.width) == operand.width - operand.lengths[:, None]
    return first.astype(np.uint8)


def _repeated(rng: np.random.Generator, operand: Digits, base: int) -> np.ndarray:
    digit = rng.integers(1, base, (len(operand), 1), np.uint8)
    return np.broadcast_to(digit, operand.values.shape)


_NUMBERS = {"all nines": _nines, "powers of the base": _power, "repeated digits": _repeated}
