"""Whole numbers in rows: sources as a person writes them, ``13/3``, and answers as numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from tasks.base import TaskError
from tasks.rules import END, ROW
from tasks.word_rule import COLON
from tasks.words import WordTask

DIGITS = "0123456789"


class Whole(WordTask):
    """A rule on whole numbers, read from the last digit on, with an ``operator`` between them.

    A subclass says ``answer``, what the rows of an output mean.
    """

    operator: ClassVar[str]
    #: how a source is written, for messages
    example: str
    bases: ClassVar[tuple[int, ...]] = (2,)
    options: ClassVar[tuple[str, ...]] = ("base",)
    backward = True

    def __init__(self, base: int | None = None):
        self.base = self.bases[0] if base is None else base
        if self.base not in self.bases:
            bases = " or ".join(map(str, self.bases))
            raise TaskError(f"{self.name} in base {base} is not possible: choose {bases}")

    @property
    def digits(self) -> str:
        return DIGITS[: self.base]

    @property
    def usage(self) -> str:
        return f"whole numbers in base {self.base}, such as {self.example}"

    def parts(self, source: str) -> list[str]:
        number = f"[{self.digits}]+"
        count = len(self.delimiters) + 1
        form = rf"\s*{re.escape(self.operator)}\s*".join([f"({number})"] * count)
        if not (match := re.fullmatch(rf"\s*{form}\s*", source)):
            raise TaskError(f"{source!r} is not {self.usage}")
        numbers = list(match.groups())
        if not self.in_front:  # columns of all operands belong together
            wide = max(map(len, numbers))
            numbers = [digits.zfill(wide) for digits in numbers]
        return [" ".join(digits) for digits in numbers]

    def write(self, problems: Any, row: int) -> str:
        return super().write(problems, row).replace(f" {COLON} ", self.operator).replace(" ", "")

    def read(self, output: str) -> str:
        rows, row = [], list[str]()
        for word in output.split():
            if word in (*self.closers, ROW):
                rows.append((row, word))
                row = []
            else:
                row.append(word)
        try:
            return self.answer([*rows, (row, "")])
        except (ValueError, IndexError):
            return output

    def answer(self, rows: Sequence[tuple[list[str], str]]) -> str:
        """What rows mean, each as its words and what closes it."""
        raise NotImplementedError

    def number(self, words: Sequence[str]) -> int:
        """The number whose digits words begin with, the last digit first."""
        return int("".join(word[0] for word in reversed(words)) or "0", self.base)


CARRIED = "'"
"""Behind a bit: something is carried, or borrowed, from its column."""
BOTH = (True, False)


def ways(possible: tuple[bool, ...], bit: str, operand: int, before: int) -> tuple[bool, ...]:
    """Of the ways that a column may have been written, those in which it has its carry.

    Was ``operand`` added to something (True) or subtracted from it (False), with ``before`` carried
    into the column? ``bit`` says what is written, ``possible`` which ways are possible so far.
    """
    total = int(bit[0])
    rest, carried = (total + operand + before) % 2, CARRIED in bit
    carries = {True: rest + operand + before > 1, False: rest < operand + before}
    return tuple(way for way in possible if carries[way] == carried)


CLOSES = "="
LARGEST = len(DIGITS)


class Power(Whole):
    """A power modulo a number, by default 7, as ``101^11 -> 6``.

    In two rows of running residues. The first has those of the base number, from its first digit
    on, and closes with its residue ``v``, which every column of the second row sees. There a
    residue ``s`` becomes ``s^b v^d`` for a digit ``d`` of the exponent, ``b`` being the base of the
    digits.
    """

    name = "power"
    options = ("base", "machine")
    bases = (2, *range(3, 11))
    operator = "^"
    example = "101^11"
    backward = False
    operands = 2
    rereads = True
    unit = "digits"
    train_length = 6

    def __init__(self, base: int | None = None, machine: str | None = None):
        super().__init__(base)
        match = re.fullmatch(r"mod:(\d{1,2})", machine or "mod:7")
        if not match or not 2 <= int(match[1]) <= LARGEST:
            raise TaskError(
                f"{machine!r} is no modulus of power: choose mod:K, K from 2 to {LARGEST}"
            )
        self.modulus = int(match[1])
        residues = DIGITS[: self.modulus]
        self.closers = tuple(CLOSES + digit for digit in residues)
        self.symbols = (*dict.fromkeys(self.digits + residues), *self.closers)

    def begin(self, word: str | None, closer: str | None) -> Any:
        """The state: the residue of the number, None in its own row, and that of what was read."""
        return (None, 0) if closer is None else (int(closer[1:]), 1 % self.modulus)

    def step(self, state: Any, a: str | None, b: str | None) -> Any:  # type: ignore[override]
        if not a or not b or not {a, b} <= {*self.digits}:
            return None
        residue = (state[1] * self.base + int(a)) % self.modulus
        return (None, residue), str(residue)

    def end(self, state: Any) -> Any:
        return (f"{CLOSES}{state[1]}",)

    def step_below(self, state: Any, above: str | None, *word: str) -> Any:
        if above is None or not {*word} <= {*self.digits}:
            return None
        residue, power = state
        power = pow(power, self.base) * pow(residue, int(word[1])) % self.modulus
        return (residue, power), str(power)

    def end_below(self, state: Any) -> Any:
        return (END,)

    def answer(self, rows: Sequence[tuple[list[str], str]]) -> str:
        return rows[1][0][-1]
