"""The square root with remainder as rows, one bit of the root a row.

Non-restoring, in base 2. A source is read as pairs of bits, the first pair first. Where ``Q`` is
the root of the pairs so far and ``R`` what is left of them, row ``r`` holds
``4 R + pair - (4 Q + 1)``, or ``4 R + pair + (4 Q + 3)`` where the rest is negative. It closes with
the sign, which is the root's next bit. A column has a bit of the rest, one of what was subtracted,
which the next row reads as bits of the root, and what is carried; column 1 has a mark. The last row
belongs to no pair: one column later it has the remainder.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product
from typing import Any

from tasks.base import TaskError
from tasks.division import MINUS, PLUS
from tasks.whole import BOTH, CARRIED, Whole, ways

EMPTY = "_"
"""Column 0 of the last row."""


class SquareRoot(Whole):
    """The largest number whose square is not larger, as ``101101 -> 110 r 1001``."""

    name = "square_root"
    row_words = tuple(map("".join, product("01", "01")))
    closers = (PLUS, MINUS)
    symbols = (
        *row_words,
        *map("".join, product("01", ("", CARRIED))),
        *map("".join, product("01", "01", ("", CARRIED), ("~", "x"))),
        *(EMPTY, PLUS, MINUS),
    )
    operator = ""
    example = "101101"
    operands = 0
    unit = "pairs of bits"
    train_length = 6

    def begin(self, word: str | None, closer: str | None) -> Any:
        """The state: is the rest above negative; the row's pair; the two columns before, how many
        there were, up to 3; what is carried, and the same of the rest above compared; and how the
        row above may have been written."""
        return closer == MINUS, word, None, None, 0, 0, 0, BOTH

    def _column(self, state: Any) -> tuple[str, int]:
        """What is written in a column, and what is carried from it."""
        negative, pair, older, before, column, carry, *_ = state
        if pair is None:
            if not column:
                return EMPTY, 0
            rest, operand = int(before[0]), self._root(negative, before, column - 1)
            if not negative:
                return str(rest), 0
        else:
            rest = int(pair[1 - column] if column < 2 else older[0])
            if column < 2:
                operand = int(column == 0 or negative)
            else:
                operand = int(not negative) if column == 2 else int(before[1])
        carry, bit = divmod(rest + operand + carry if negative else rest - operand - carry, 2)
        mark = "" if pair is None else ("x" if column == 1 else "~")
        shown = "" if pair is None else str(operand)
        return f"{bit}{shown}{CARRIED * abs(carry)}{mark}", abs(carry)

    def _root(self, negative: bool, above: str, column: int) -> int:
        """A bit of twice the root and one, by the column of the row above."""
        return [1, int(not negative), int(above[1])][min(column, 2)]

    def step_below(self, state: Any, above: str, *word: str) -> Any:
        negative, pair, _, before, column, _, compared, possible = state
        if len(above) < 3 or above[0] not in "01" or above[1] not in "01":
            return None
        if ("x" in above) != (column == 1) or (column == 0 and above[1] == "0"):
            return None
        possible = ways(
            possible, above, int(above[1]), int(before is not None and CARRIED in before)
        )
        if column in (1, 2):  # where it was added, 1 and 0 stand there, otherwise 0 and 1
            added = (above[1] == "1") == (column == 1)
            possible = tuple(way for way in possible if way == added)
        if not possible:
            return None
        cell, carry = self._column(state)
        rest, root = int(above[0]), self._root(negative, above, column)
        compared = (rest + root + compared) // 2 if negative else int(rest - root - compared < 0)
        column = min(column + 1, 3)
        return (negative, pair, before, above, column, carry, compared, possible), cell

    def end(self, state: Any) -> Any:
        negative, pair, _, before, column, _, compared, possible = state
        if before is None:  # the first row, of two columns
            low, carry = self._column(state)
            high, carry = self._column((False, pair, None, None, 1, carry))
            return low, high, MINUS if carry else PLUS
        if column < 2 or not compared or (column == 2 and False not in possible):
            return None  # of two columns is the first row alone, which is never added to
        cell, carry = self._column(state)
        if pair is None:
            return (cell,)
        top = int(before[0])
        plus = top + carry == 2 or not (negative or carry > top)
        return cell, PLUS if plus else MINUS

    # What a person writes

    def parts(self, source: str) -> list[str]:
        bits = source.strip()
        if not re.fullmatch("[01]+", bits):
            raise TaskError(f"{source!r} is not {self.usage}")
        bits = "0" * (len(bits) % 2) + bits
        return [" ".join(re.findall("..", bits))]

    def answer(self, rows: Sequence[tuple[list[str], str]]) -> str:
        root = int("".join(str(int(closer == PLUS)) for _, closer in rows[:-1]), 2)
        return f"{root:b} r {self.number(rows[-1][0][1:]):b}"
