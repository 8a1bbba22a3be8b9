"""A rule as an automaton that reads one column of digits after another, the last column first.

Addition by hand is such a rule: the state is the carry. What is written depends on the state and
on the digits of the column; when the columns are used up, a state may write one digit more.
That is all that a proof about *every* length needs to know of a task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

NOTHING, NEVER = -1, -2
"""In ``last``: no digit more; no source ends in this state."""


@dataclass(frozen=True)
class ColumnRule:
    """An automaton on columns. ``q`` states, ``k`` operands with a digit in each column.

    ``start``: states before the last column. ``next`` and ``written``, ``(q, base, ..., base)``
    with ``k`` axes of digits: the state after a column and the digit written there. Where numbers
    end by themselves the axes have one entry more, for all places beyond a number; then ``written``
    may be ``base``, the end, or more, behind it; ``next`` is ``NOTHING`` for no such column. ``last
    (q,)``: the digit written after the first column, ``NOTHING``, or ``NEVER``. ``operands``:
    which operands of the task the ``k`` axes are. ``constant``: an operand of one digit that is the
    same for all columns, and ``constants (q,)`` its digit in each state.
    """

    base: int
    start: tuple[int, ...]
    next: np.ndarray
    written: np.ndarray
    last: np.ndarray
    operands: tuple[int, ...] = (0,)
    constant: int | None = None
    constants: np.ndarray | None = None

    @property
    def states(self) -> int:
        return len(self.next)

    def as_dict(self) -> dict[str, Any]:
        """The whole automaton as plain data."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in fields.items()}

    def run(self, columns: Sequence[Sequence[int]], start: int) -> list[int]:
        """The digits written for ``columns``, last column first; the oracle of the proofs.

        ``ValueError`` for columns that are no source.
        """
        state, digits = start, []
        for column in columns:
            digits.append(int(self.written[(state, *column)]))
            state = int(self.next[(state, *column)])
        last = int(self.last[state])
        if last == NEVER:
            raise ValueError(f"no source ends in state {state}")
        return digits if last == NOTHING else [*digits, last]


def carrying(totals: np.ndarray, base: int, **fields: object) -> ColumnRule:
    """The rule that writes ``total mod base`` and carries ``total // base``.

    ``totals (q, base, ...)``: the sum of a column, whose state is the carry into it.
    """
    carry = np.arange(len(totals))
    last = np.where(carry == 0, NOTHING, carry)
    return ColumnRule(base, next=totals // base, written=totals % base, last=last, **fields)  # type: ignore[arg-type]


def successor(base: int) -> ColumnRule:
    """The carry comes in at the last column."""
    return carrying(np.add.outer(np.arange(2), np.arange(base)), base, start=(1,))


def addition(base: int, count: int = 2) -> ColumnRule:
    """``count`` digits and the carry, which is below ``count``, itself at most ``base``."""
    totals = np.arange(count)
    for _ in range(count):
        totals = np.add.outer(totals, np.arange(base))
    return carrying(totals, base, start=(0,), operands=tuple(range(count)))


def subtraction(base: int) -> ColumnRule:
    """The state is the borrow; no source ends with one, its first operand not being smaller."""
    borrow, first, second = np.ogrid[:2, :base, :base]
    rest = first - second - borrow
    return ColumnRule(
        base,
        start=(0,),
        next=(rest < 0).astype(int),
        written=rest % base,
        last=np.array([NOTHING, NEVER]),
        operands=(0, 1),
    )


def multiplication(base: int) -> ColumnRule:
    """A state is a carry together with the digit that all columns are multiplied by."""
    factor, carry, digit = np.ogrid[:base, :base, :base]
    total = factor * digit + carry
    state = factor * base + np.arange(base)[None, :, None]
    following = (state - carry + total // base).reshape(base * base, base)
    carries, factors = np.tile(np.arange(base), base), np.repeat(np.arange(base), base)
    return ColumnRule(
        base,
        start=tuple(range(0, base * base, base)),
        next=following,
        written=(total % base).reshape(base * base, base),
        last=np.where(carries == 0, NOTHING, carries),
        constant=1,
        constants=factors,
    )


@dataclass(frozen=True)
class RowRule:
    """An automaton for each row of an output, which also reads the row above.

    ``first``: of the first row. ``later``: of the others; its operand ``ABOVE`` is the row above,
    whose digit ``c + shift`` stands in column ``c``. The digits of a row are those of its columns
    and one more. ``constant`` of both is the digit of an operand that belongs to the row. With
    ``ends`` each row has an operand of its own, and all numbers end by themselves, rows too.
    """

    first: ColumnRule
    later: ColumnRule
    shift: int
    ends: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Both automata as plain data."""
        rules = {"first": self.first.as_dict(), "later": self.later.as_dict()}
        return {**rules, "shift": self.shift} | ({"ends": True} if self.ends else {})


ABOVE = -1
"""The operand that is the row above."""
NULL, BELOW, NOT_BELOW = 0, 1, 2
"""Of two numbers, as far as they were read: both are 0, the first is below the other, or not."""


def long_multiplication(base: int) -> RowRule:
    """A state is the row's digit, a carry, and how the row above compares with the operand.

    The last carry is written, also a 0; it is below the base: ``(b-1) + (b-1)^2 + (b-1) < b^2``.
    Row ``s`` of an operand ``a`` is below ``b a``, since ``s < a + (b-1) a`` where the one above
    is; so the row above without its last digit is below ``a``, unless both are 0.
    """
    digit, carry, compared, above, factor = np.ogrid[:base, :base, :3, :base, :base]
    total = above + digit * factor + carry
    both = np.where((above == 0) & (compared == NULL), NULL, NOT_BELOW)
    order = np.where(above < factor, BELOW, np.where(above > factor, NOT_BELOW, compared))
    order = np.where((above == factor) & (compared == NULL), both, order)
    states = 3 * base * base

    def state(digit: Any, carry: Any, compared: Any) -> Any:
        return (digit * base + carry) * 3 + compared

    digits, rest = np.divmod(np.arange(states), 3 * base)
    carries, ends = np.divmod(rest, 3)
    shape = (states, base, base)
    later = ColumnRule(
        base,
        start=tuple(state(b, 0, NULL) for b in range(base)),
        next=np.broadcast_to(state(digit, total // base, order), (base, base, 3, base, base))
        .reshape(shape)
        .copy(),
        written=np.broadcast_to(total % base, (base, base, 3, base, base)).reshape(shape).copy(),
        last=np.where(ends == NOT_BELOW, NEVER, carries),
        operands=(ABOVE, 0),
        constant=1,
        constants=digits,
    )
    # nothing is above the first row, where zeros stand for it
    first = replace(later, next=later.next[:, 0], written=later.written[:, 0], operands=(0,))
    return RowRule(first, later, shift=1)


UNREAD, ZERO, DIGIT, LEADING, OVER = range(5)
"""Of a number, as far as it was read: a 0 alone, up to a digit that is not 0, or to one that is."""


def _read(state: int, symbol: int, base: int) -> int:
    """The state after one digit more, or ``base``, its end; numbers do not begin with a 0."""
    if symbol == base:
        return OVER if state in (ZERO, DIGIT, OVER) else NOTHING
    if state == OVER:
        return NOTHING
    return DIGIT if symbol else (LEADING if state else ZERO)


def _closing(base: int, carries: int, count: int, operands: tuple[int, ...]) -> ColumnRule:
    """The sum of ``count`` numbers, which ends where all are over and nothing is carried.

    A state is a carry and how far each number was read. The last one is behind the end, where
    nothing is written, ``base + 1``.
    """
    shape = (carries, *(OVER + 1,) * count)
    done = int(np.prod(shape))
    following = np.full((done + 1, *(base + 1,) * count), NOTHING)
    written = np.zeros_like(following)
    for state, (carry, *read) in enumerate(np.ndindex(shape)):
        for column in np.ndindex(following.shape[1:]):
            after = [_read(one, symbol, base) for one, symbol in zip(read, column, strict=True)]
            total = carry + sum(symbol for symbol in column if symbol < base)
            if min(after) == NOTHING or total // base >= carries:
                continue
            over = min(column) == base and not carry
            written[state, *column] = base if over else total % base
            reached = np.ravel_multi_index((total // base, *after), shape)
            following[state, *column] = done if over else reached
    behind = (done, *(base,) * count)
    following[behind], written[behind] = done, base + 1
    last = np.full(done + 1, NOTHING)
    return ColumnRule(base, (0,), following, written, last, operands)


def sums(base: int) -> RowRule:
    """A row is the row above and its operand; the first one is its operand."""
    return RowRule(_closing(base, 1, 1, (0,)), _closing(base, 2, 2, (ABOVE, 0)), 0, ends=True)


def running_xor() -> ColumnRule:
    """The state is the parity of the bits so far."""
    table = np.bitwise_xor.outer(np.arange(2), np.arange(2))
    return ColumnRule(2, start=(0,), next=table, written=table, last=np.full(2, NOTHING))
