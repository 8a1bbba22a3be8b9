"""Tasks whose output has several rows, as on paper.

A row is written least significant digit first; ``|`` closes it, and the end of the output the last
one. So each token depends on a few digits around its own place, in two dimensions: see
docs/rows.md.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from tasks.arithmetic import DIGITS, Arithmetic
from tasks.base import Problems, Size, TaskError, extent
from tasks.machine import column_machine
from tasks.ragged import Ragged, Rng, joined_rows
from tasks.rules import ABOVE, NO, ROW, Rule, Transducer, reduced

MOST_TOKENS = 50_000_000
"""Of the outputs of a batch; beyond it a sample is too large to hold."""


class RowTask(Arithmetic):
    """A rule that is written in rows: ``12*34`` has the rows ``8 4 0 | 0 4 0``.

    Read as a number is, from its first digit on, they are ``040|048``.
    """

    notation = "rows"
    laws = ("balanced", "carry", "mixed", "few")
    kinds, least_count = 5, 0
    #: what of a source belongs to a row: ``operands``, or the digits of the ``second`` one
    coupling: ClassVar[str]
    #: digits of the longest training problem by default
    longest: ClassVar[int] = 6

    def __init__(self, base: int | None = None):
        super().__init__(base)
        self.train_length = self.longest
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
    def size_of(self, operands: tuple[Ragged, ...]) -> tuple[int, int]:
        """Most digits and rows of problems with these operands."""

    def answer(self, *operands: Ragged) -> Ragged:
        n, most = len(operands[0]), self.tokens(self.size_of(operands))
        if n * most > MOST_TOKENS:
            fewer = f"at most {MOST_TOKENS // most:,} problems of this size, or " * (n > 1)
            raise TaskError(
                f"{n} output{'s' * (n > 1)} of up to {most:,} tokens: {self.name} writes at most "
                f"{MOST_TOKENS:,} at once; give {fewer}smaller numbers, such as two of "
                f"{int((MOST_TOKENS / n) ** 0.5) - 2:,} digits"
            )
        return joined_rows(self._rule.rows(self.tapes(operands)), self.row_id)

    def tapes(self, operands: tuple[Ragged, ...]) -> list[Ragged]:
        return [*operands]

    # Sampling

    def sample(
        self, rng: Rng, n: int, length: Size, law: str = "balanced", exact: bool = False
    ) -> Problems:
        """Problems of at most (``exact``: of exactly) a size.

        ``balanced``: sizes and digits uniform. ``carry``: operands of zeros, highest digits and
        few others, of which carries run far. ``few``: operands of two different digits in each
        problem. ``mixed``: a third of each.
        """
        self.check_sampling(length, law)
        counts = self.counts(rng, n, length, exact)
        kind = {"balanced": 0, "carry": 1, "few": 2}.get(law, rng.integers(0, 3, (n, 1)))
        kind = np.broadcast_to(kind, (n, 1))
        two = np.where(kind == 2, rng.integers(0, self.base, (n, 2)), [0, self.base - 1])
        operands = []
        for count in counts:
            drawn = self._random(rng, np.maximum(count, 1))
            shape = drawn.values.shape
            extremes = two[np.arange(n)[:, None], rng.integers(0, 2, shape)[:, ::-1]]
            chosen = rng.random(shape)[:, ::-1] < np.choose(kind, [0, rng.random((n, 1)), 1])
            values = np.where(chosen, extremes, drawn.values).astype(np.uint8)
            trimmed = self._trimmed(rng, values, np.maximum(count, 1))
            absent = count < 1
            trimmed.values[absent] = 0
            operands.append(Ragged(trimmed.values, np.where(absent, 0, trimmed.lengths)))
        return self.problems(*operands)

    def counts(self, rng: Rng, n: int, size: Size, exact: bool) -> tuple[np.ndarray, ...]:
        """Digits of every operand, ``(n,)`` each; 0 for one that a problem does not have."""
        widths = self.widths(size)
        return tuple(np.full(n, w) if exact else rng.integers(1, w + 1, n) for w in widths)

    def families(self, rng: Rng, n: int, length: Size) -> dict[str, Problems]:
        """Hard operands: all nines, powers, one digit, repeated digits, very different widths."""
        by_family = {"zeros and nines": self.sample(rng, n, length, "carry", exact=True)}
        for name, number in _NUMBERS.items():
            drawn = self.sample(rng, n, length, "balanced", exact=True).operands
            operands = []
            for place, operand in enumerate(drawn):
                chosen = operand.inside & ((np.arange(n) % 3 != 1 + place % 2)[:, None])
                values = np.where(chosen, number(rng, operand, self.base), operand.values)
                operands.append(self._trimmed(rng, values, operand.lengths))
            by_family[name] = self.problems(*operands)
        by_family["very different widths"] = self.lopsided(rng, n, length)
        return by_family

    def lopsided(self, rng: Rng, n: int, size: Size) -> Problems:
        """Problems of whose operands one is much longer than the others."""
        widths = self.widths(size)
        longest = np.arange(n) % 2 if self.count else rng.integers(0, len(widths), n)
        short = [np.minimum(rng.integers(1, 3, n), width) for width in widths]
        counts = [np.where(longest == k, widths[k], count) for k, count in enumerate(short)]
        return self.problems(*(self._random(rng, count) for count in counts))


_NUMBERS: dict[str, Callable[[Rng, Ragged, int], Any]] = {
    "all nines": lambda rng, operand, base: base - 1,
    "powers of the base": lambda rng, operand, base: (
        np.arange(operand.width) == operand.lengths[:, None] - 1
    ),
    "repeated digits": lambda rng, operand, base: rng.integers(
        1, base, (len(operand), 1), np.uint8
    ),
}
"""What digits of an operand are written instead, ``(n, w)`` or what stands for all of them."""


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
    longest = 4

    def train_rows(self, length: int) -> int:
        return length

    def widths(self, length: Size) -> tuple[int, ...]:
        return extent(length)

    def begin(self, digit: int) -> tuple[int, int, int]:
        """The state: the row's digit, a carry, and how the row above compares with the operand.

        A row ``s`` of an operand ``a`` is below ``b a``, since ``s < a + (b-1) a`` where the one
        above is; so the row above without its last digit is below ``a``, unless both are 0.
        """
        return digit, 0, NULL

    def step(self, state: Any, above: int, factor: int) -> Any:  # type: ignore[override]
        digit, carry, compared = state
        carry, written = divmod(above + digit * factor + carry, self.base)
        if above != factor:
            compared = BELOW if above < factor else NOT_BELOW
        elif compared == NULL and above:
            compared = NOT_BELOW
        return (digit, carry, compared), written

    def end(self, state: Any) -> tuple[int, ...] | None:
        """The carry, also a 0; it is below the base: ``(b-1) + (b-1)^2 + (b-1) < b^2``."""
        _, carry, compared = state
        return None if compared == NOT_BELOW else (carry,)

    @cached_property
    def _rule(self) -> Rule:
        base, digits, starts = self.base, range(self.base), [*map(self.begin, range(self.base))]

        def first_step(state: Any, factor: int) -> Any:
            return self.step(state, 0, factor)  # zeros stand for what is above the first row

        first = column_machine(base, first_step, self.end, starts, (0,), digits)
        later = column_machine(base, self.step, self.end, starts, (ABOVE, 0), digits, above=True)
        return Rule(first, _with_empty_row(later), shift=1, of_row=1, past=True)

    def tokens(self, size: Size) -> int:
        digits, rows = extent(size)
        return rows * (digits + 2)

    def size_of(self, operands: tuple[Ragged, ...]) -> tuple[int, int]:
        digits, rows = (int(operand.lengths.max(initial=1)) for operand in operands)
        return digits, rows

    def read(self, output: str) -> str:
        rows = output.removeprefix(ROW).split(ROW)
        return super().read(rows[0] + "".join(row[-1:] for row in rows[1:]))


class Sum(RowTask):
    """The sum of any number of numbers, added in order: ``9+8+5 -> 22``.

    Written ``9 | 7 1 | 2 2``: row r is the row before and operand r, without leading zeros.
    """

    name = "sum"
    operator = "+"
    count = 0
    coupling = "operands"

    def train_rows(self, length: int) -> int:
        return 4

    def widths(self, length: Size) -> tuple[int, ...]:
        digits, rows = extent(length)
        return (digits,) * rows

    def step(self, carry: int, *digits: int) -> tuple[int, int]:
        return divmod(carry + sum(digits), self.base)

    @cached_property
    def _rule(self) -> Rule:
        first, later = (_until_over(self.base, self.step, x) for x in ((0,), (ABOVE, 0)))
        return Rule(first, later, listed=True)

    def tokens(self, size: Size) -> int:
        digits, rows = extent(size)
        grown = int(np.ceil(np.log(rows + 1) / np.log(self.base)))
        return rows * (digits + grown + 1)

    def size_of(self, operands: tuple[Ragged, ...]) -> tuple[int, int]:
        return max(int(o.lengths.max(initial=1)) for o in operands), len(operands)

    def read(self, output: str) -> str:
        return super().read(output.split(ROW)[0])

    def counts(self, rng: Rng, n: int, size: Size, exact: bool) -> tuple[np.ndarray, ...]:
        rows = extent(size)[1]
        numbers = np.full(n, rows) if exact else rng.integers(1, rows + 1, n)
        counts = super().counts(rng, n, size, exact)
        return tuple(np.where(k < numbers, count, 0) for k, count in enumerate(counts))


# Their rules

NULL, BELOW, NOT_BELOW = 0, 1, 2
"""Of two numbers, as far as they were read: both are 0, the first is below the other, or not."""


def _with_empty_row(later: Transducer) -> Transducer:
    """And a row without a symbol, which closes at once, and the output with it."""
    base, count = later.base, later.states
    letters = np.indices(later.next.shape[1:])
    alike = (letters < base).all(0) | (letters == base).all(0)  # tapes end together
    empty = np.where(alike, [[[count + 1]], [[count + 1]]], NO)
    written = np.where(alike, [[[base + 3]], [[base + 1]]], base + 1)
    return replace(
        later,
        start=(*later.start, count),
        symbols=(*later.symbols, base),
        next=np.concatenate([later.next, empty]),
        written=np.concatenate([later.written, written]),
        lenient=later.lenient and _with_empty_row(later.lenient),
    )


UNREAD, ZERO, DIGIT, LEADING, OVER = range(5)
"""Of a number, as far as it was read: a 0 alone, up to a digit that is not 0, or to one that is."""


def _read(state: int, symbol: int, base: int) -> int:
    """The state after one digit more, or ``base``, its end; numbers do not begin with a 0."""
    if symbol == base:
        return OVER if state in (ZERO, DIGIT, OVER) else NO
    return NO if state == OVER else DIGIT if symbol else LEADING if state else ZERO


def _until_over(
    base: int, step: Callable[..., tuple[int, int]], tapes: tuple[int, ...]
) -> Transducer:
    """What ``step`` makes of numbers of any widths, closed where all are over and none is carried.

    A carry is smaller than there are numbers.
    """
    count = len(tapes)
    shape = (count, *(OVER + 1,) * count)
    done = int(np.prod(shape))
    following = np.full((done + 1, *(base + 1,) * count), NO)
    written = np.full_like(following, base + 1)
    for state, (carry, *read) in enumerate(np.ndindex(shape)):
        for column in np.ndindex(following.shape[1:]):
            after = [_read(phase, symbol, base) for phase, symbol in zip(read, column, strict=True)]
            if min(after) == NO:
                continue
            carried, digit = step(carry, *(symbol for symbol in column if symbol < base))
            over = min(column) == base and not carry
            written[state, *column] = base if over else digit
            following[state, *column] = (
                done if over else np.ravel_multi_index((carried, *after), shape)
            )
    following[(done, *(base,) * count)] = done
    return reduced(Transducer(base, tapes, (0,), following, written))
