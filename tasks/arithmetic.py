"""Arithmetic on digits, in any base from 2 to 36: what all rules share.

All of them work on arrays of digits, so an operand of 10,000 digits is as good as one of 6.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from abc_calib.text import counted
from tasks import hard
from tasks.base import MOST_TRIES, Problems, Size, Task, TaskError, not_a_source
from tasks.calls import guarded, state_fault
from tasks.machine import column_machine
from tasks.ragged import Ragged, Rng, column, from_integers, stack, without_zeros
from tasks.rules import NoSource, Rule

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
UNIFORM_LIMIT = 2**20
"""The paper draws its numbers from [0, 2^20] (section 3.3)."""


TAKEN = ("#", "|", "$", "&", "@")
"""Signs with a meaning of their own in sources and outputs."""


def check_notation(task: Arithmetic) -> None:
    """Raise ``TaskError`` unless numbers are shown as they are read, and can be read."""
    digits, operator, count = DIGITS[: task.base], task.operator, task.count
    if (*task.symbols[: task.base],) != (*digits,):
        raise TaskError(f"{task.name}: its symbols have to begin with the digits {digits}")
    if type(count) is not int or count < task.least_count:
        raise TaskError(
            f"{task.name} has count = {count!r}: give a whole number of {task.least_count} or more"
        )
    if operator is None and count == 1:
        return
    is_sign = isinstance(operator, str) and re.fullmatch(rf"[^\sA-Z{digits}]+", operator)
    if not is_sign or operator in TAKEN:
        raise TaskError(
            f"{task.name} has the operator {operator!r}: give a sign between numbers, without "
            f"their digits, capital letters or spaces, and none of {' '.join(TAKEN)}"
        )


class Arithmetic(Task):
    """A rule on one operand, or on several with an operator between them."""

    notation = "digits"
    options = ("base",)
    laws: ClassVar[tuple[str, ...]] = ("uniform", "balanced", "carry", "mixed")
    operator: ClassVar[str | None] = None
    #: how many operands there are; 0 for any number
    count: ClassVar[int] = 1
    least_count: ClassVar[int] = 1
    default_base: ClassVar[int] = 10
    kinds = len(hard.NUMBERS) + 2

    def __init__(self, base: int | None = None):
        base = self.default_base if base is None else base
        if not 2 <= base <= 36:
            raise TaskError(f"base {base} is not possible: choose 2 to 36")
        self.base = base
        #: the paper's tasks share a vocabulary
        self.delimiters = ("+", "*") if self.operator in (None, "+", "*") else (self.operator,)
        self.symbols = (*DIGITS[:base], *self.delimiters)
        if not hasattr(type(self), "train_length"):
            self.train_length = max(6, int(20 / np.log2(base) + 1e-9))

    # The rule

    #: the operand whose digit a whole row of output belongs to; it has one digit
    row_operand: ClassVar[int | None] = None
    #: the state before the last digits
    start: ClassVar[Any] = 0

    def step(self, state: Any, *digits: int) -> tuple[Any, int]:
        """The next state, and the digit that is written, from a digit of each operand.

        Operands are read from their last digits on, the shorter ones with zeros before them.
        """
        raise NotImplementedError(f"{self.name} has neither a step nor an answer of its own")

    def end(self, state: Any) -> Sequence[int] | None:
        """What is written before the first column, at most one digit; None: no source ends so."""
        return (state,) if state else ()

    def begin(self, digit: int) -> Any:
        """The first state, from the digit of the ``row_operand`` if there is one."""
        return self.start

    def rule(self) -> Rule | None:
        return None if type(self).step is Arithmetic.step else self._rule

    @cached_property
    def _rule(self) -> Rule:
        symbols = range(self.base if self.row_operand is not None else 0)
        begin = guarded(self.begin, "begin", state_fault)
        starts = [begin(digit) for digit in symbols] or [self.start]
        tapes = range(self.count - (self.row_operand is not None))
        first = column_machine(self.base, self.step, self.end, starts, tapes, symbols)
        return Rule(first, of_row=self.row_operand)

    def answer(self, *operands: Ragged) -> Ragged:
        """What the model must write: what the rule writes."""
        try:
            (row,) = self._rule.rows(self.tapes(operands))
        except NoSource as error:
            raise self._not_a_source(operands, int(error.args[0][0])) from error
        return row

    def tapes(self, operands: tuple[Ragged, ...]) -> list[Ragged]:
        """What the rule reads of operands: all but the digits of rows as wide as the widest."""
        return [*self.padded(operands)]

    def letters(self, problems: Problems) -> list[Ragged]:
        return self.tapes(problems.operands)

    def posed(self, letters: Sequence[Ragged]) -> Problems:
        numbers = (np.where(tape.inside, tape.values, 0).astype(np.uint8) for tape in letters)
        return self.problems(*map(Ragged, numbers, (tape.lengths for tape in letters)))

    def _not_a_source(self, operands: tuple[Ragged, ...], row: int) -> TaskError:
        """What to say of operands from which the rule writes nothing."""
        source = (self.operator or "").join(self.digits_of(o, row) for o in operands)
        return TaskError(f"{source} is not a source of {self.name}: write {self.usage}")

    def problems(self, *operands: Ragged) -> Problems:
        """Operands that were drawn and are sources, with their answers.

        A rule may put them in order first.
        """
        try:
            return Problems(operands, self.answer(*operands))
        except TaskError as error:
            if not isinstance(error.__cause__, NoSource):
                raise
            kept = np.delete(np.arange(len(operands[0])), error.__cause__.args[0])
            return self.problems(*(operand.take(kept) for operand in operands))

    def tokens(self, size: Size) -> int:
        """The longest output for operands of a size, its end left out."""
        assert isinstance(size, int)
        return size + 1

    def widths(self, length: Any) -> tuple[int, ...]:
        """How wide each operand of a problem of that size is written."""
        return tuple(1 if k == self.row_operand else length for k in range(self.count))

    def padded(self, operands: tuple[Ragged, ...], width: int | None = None) -> tuple[Ragged, ...]:
        """Zeros added at the left of each operand up to ``width`` or the longer one's.

        The ``row_operand`` stays one digit. ``TaskError`` where an operand is wider than ``width``.
        """
        of_row = self.row_operand
        longest = np.max([o.lengths for k, o in enumerate(operands) if k != of_row], axis=0)
        if width is not None and longest.max(initial=0) > width:
            raise TaskError(
                f"an operand of {longest.max()} digits does not fit {width}: "
                "use the format free, or fixed:N with a larger N in every stage"
            )
        lengths = longest if width is None else np.full(len(longest), width)
        needed = int(lengths.max(initial=1))
        return tuple(
            column(o.values[:, 0])
            if k == of_row
            else Ragged(o.widened(needed)[:, :needed], lengths)
            for k, o in enumerate(operands)
        )

    def columns(self, operands: tuple[Ragged, ...]) -> tuple[Ragged, ...]:
        """Padded operands as they stand in columns, one digit of each: all of one width."""
        first = operands[self.row_operand == 0]
        return tuple(
            Ragged(np.repeat(o.values[:, :1], first.width, 1), first.lengths)
            if k == self.row_operand
            else o
            for k, o in enumerate(operands)
        )

    def solve(self, source: str) -> str:
        answer = self.parse(source).answer
        return self.read(self.digits_of(answer, 0))

    def read(self, output: str) -> str:
        return output.lstrip("0") or output[-1:]

    @property
    def sampling(self) -> str:
        return "mixed"

    # What a person writes

    def parse(self, source: str) -> Problems:
        text = source.strip().lower()
        parts = [x.strip() for x in (text.split(self.operator) if self.operator else [text])]
        if why := self._wrong(text, parts):
            raise not_a_source(self, source, why)
        operands = tuple(map(self._number, parts))
        of_row = self.row_operand
        if of_row is not None and operands[of_row].lengths[0] > 1:
            raise not_a_source(self, source, f"number {of_row + 1} may have one digit alone")
        return Problems(operands, self.answer(*operands))

    def _wrong(self, text: str, parts: list[str]) -> str:
        """What is wrong with a source that was split at the operator; empty if nothing is."""
        strange = [sign for sign in "".join(parts) if sign not in DIGITS[: self.base]]
        if strange:
            return f"{strange[0]!r} is not a digit of base {self.base}"
        if not all(parts):
            return f"a number next to {self.operator!r} is missing" if text else "it is empty"
        is_right = self.count in (0, len(parts))
        return "" if is_right else f"it has {counted(len(parts), 'numbers')}, not {self.count}"

    @property
    def usage(self) -> str:
        """How a source is written, for messages."""
        last = DIGITS[self.base - 1]
        numbers = [last if width == 1 else "1" for width in self.widths(3)]
        numbers[0] = last * self.widths(3)[0]
        many = f"{self.count} numbers" if self.count else "numbers"
        form = f"{many} of digits 0-{last} with {self.operator} between"
        form += ", the second of one digit" if self.widths(3)[1:] == (1,) else ""
        if len(numbers) == 1:
            form = f"a number of digits 0-{last}"
        return f"{form}, as in {(self.operator or '').join(numbers)!r}"

    def write(self, problems: Problems, row: int) -> str:
        operands = (o for o in problems.operands if o.lengths[row])
        return (self.operator or "").join(self.digits_of(o, row) for o in operands)

    def _number(self, text: str) -> Ragged:
        digit = np.zeros(128, np.uint8)
        digit[np.frombuffer(DIGITS.encode(), np.uint8)] = np.arange(len(DIGITS))
        letters = np.frombuffer((text.lstrip("0") or "0")[::-1].encode(), np.uint8)
        return without_zeros(digit[letters][None])

    def digits_of(self, digits: Ragged, row: int) -> str:
        """One number of several, first digit first, every digit that it has."""
        shown = digits.row(row)[::-1]
        return np.frombuffer("".join(self.symbols).encode(), np.uint8)[shown].tobytes().decode()

    # Sampling

    def sample(
        self, rng: Rng, n: int, length: int, law: str = "balanced", exact: bool = False
    ) -> Problems:
        """Draw problems by one of the laws.

        ``uniform``: numbers uniform in [0, 2^20], as in the paper (in base 10 some 5 % have 7
        digits; for less than the usual ``length``, numbers of at most that); with ``exact``,
        uniform among the numbers of that many digits. ``balanced``: digit counts uniform from 1 to
        ``length``, then digits. ``carry``: long carry chains and all-nines. ``mixed``: three
        parts balanced to one part carry.
        """
        self.check_sampling(length, law)
        problems = self._sampled(rng, n, length, law, exact)
        for _ in range(MOST_TRIES):
            if len(problems) >= n:
                break
            problems = problems.joined(self._sampled(rng, n, length, law, exact))
        return problems if len(problems) <= n else problems.take(np.arange(n))

    def _sampled(self, rng: Rng, n: int, length: int, law: str, exact: bool) -> Problems:
        """At most ``n`` of them: what is drawn and is not a source is left out."""
        if law == "mixed":
            chains = n // 4
            parts = [
                self._draw(rng, chains, length, "carry", exact),
                self._draw(rng, n - chains, length, "balanced", exact),
            ]
            order = rng.permutation(n)
            operands = tuple(stack(pair).take(order) for pair in zip(*parts, strict=True))
        else:
            operands = self._draw(rng, n, length, law, exact)
        return self.problems(*operands)

    def _draw(self, rng: Rng, n: int, length: int, law: str, exact: bool) -> tuple[Ragged, ...]:
        counts = self._counts(rng, n, length, exact)
        if law == "carry":
            return self._chains(rng, *counts)
        if law == "uniform" and not exact:
            return tuple(self._uniform(rng, n, length) for _ in counts)
        return tuple(self._random(rng, count) for count in counts)

    def _counts(self, rng: Rng, n: int, length: int, exact: bool) -> tuple[np.ndarray, ...]:
        """Digit counts of every operand, ``(n,)`` each."""
        drawn = (
            np.full(n, length) if exact else rng.integers(1, length + 1, n)
            for _ in range(self.count)
        )
        return tuple(
            np.ones(n, int) if k == self.row_operand else count for k, count in enumerate(drawn)
        )

    def _random(self, rng: Rng, counts: np.ndarray) -> Ragged:
        """Uniform digits, the first not zero unless it is the only one."""
        width = int(counts.max(initial=1))
        values = rng.integers(0, self.base, (len(counts), width), np.uint8)
        return self._trimmed(rng, values[:, ::-1], counts)

    def _trimmed(self, rng: Rng, values: np.ndarray, counts: np.ndarray) -> Ragged:
        """``values`` cut to ``counts`` digits, with leading zeros replaced."""
        values[np.arange(values.shape[1]) >= counts[:, None]] = 0
        first = counts - 1
        rows = np.flatnonzero((values[np.arange(len(values)), first] == 0) & (counts > 1))
        values[rows, first[rows]] = rng.integers(1, self.base, len(rows), np.uint8)
        return Ragged(values, counts)

    def _uniform(self, rng: Rng, n: int, length: int) -> Ragged:
        short = length < self.train_length
        limit = min(self.base**length - 1, UNIFORM_LIMIT) if short else UNIFORM_LIMIT
        numbers = rng.integers(0, limit + 1, n)
        return from_integers(numbers, self.base)

    # Hard problems

    families, mutated = hard.families, hard.mutated

    def plain(self, problems: Problems, row: int) -> str:
        """The source without the zeros that only pad."""
        values = (o.values[row : row + 1] for o in problems.operands if o.lengths[row])
        operands = tuple(map(without_zeros, values))
        return self.write(Problems(operands, problems.answer.take(np.array([row]))), 0)

    def _chains(self, rng: Rng, *counts: np.ndarray) -> tuple[Ragged, ...]:
        """Operands with the given digit counts and long carry chains, if a task says how."""
        return tuple(self._random(rng, count) for count in counts)

    def _run(self, rng: Rng, room: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First and last-plus-one column, from the right, of a random run; half reach the end."""
        start = np.where(rng.random(len(room)) < 0.5, 0, rng.integers(0, room))
        stop = start + 1 + rng.integers(0, np.maximum(room - start, 1))
        return start, np.where(rng.random(len(room)) < 0.5, room, stop)
