"""Sorting by insertion, in rows; and which of two numbers is larger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks.arithmetic import DIGITS
from tasks.base import TaskError
from tasks.rules import END, ROW
from tasks.whole import Whole
from tasks.words import WordTask


class Sort(WordTask):
    """Symbols of an ordered alphabet in their order, as ``3 1 2 -> 1 2 3``.

    Each row is the one above with one symbol more in its place. The output ends with an empty row,
    which belongs to no symbol. A column of a row follows from the two columns of the row above that
    are nearest and from the row's own symbol.
    """

    name = "sort"
    options = ("base",)
    operands = 0
    unit = "symbols"
    train_length = 8

    def __init__(self, base: int | None = None):
        self.base = 10 if base is None else base
        if not 2 <= self.base <= 36:
            raise TaskError(f"an alphabet of {base} symbols is not possible: choose 2 to 36")
        self.symbols = self.row_words = tuple(DIGITS[: self.base])

    def begin(self, word: str | None, closer: str | None) -> Any:
        """The state: the row's symbol, and the symbol before in the row above."""
        return word, None

    def end(self, state: Any) -> Any:
        word, before = state
        return (word if before is None else max(word, before),)

    def step_below(self, state: Any, above: str, *word: str) -> Any:
        new, before = state
        if new is None:
            return state, END
        if before is not None and above < before:
            return None
        return (new, above), max(before or "", min(new, above))

    def read(self, output: str) -> str:
        rows = output.split(ROW)
        return " ".join(rows[-2].split()) if len(rows) > 1 else output


ORDERS = ("<", "=", ">")


class Compare(Whole):
    """The order of two numbers, as ``12?21 -> <``: of each column that of the numbers so far."""

    name = "compare"
    bases = (10, *range(2, 10))
    operator = "?"
    example = "11?101"
    operands = 2
    start = "="
    unit = "digits"
    train_length = 6

    def __init__(self, base: int | None = None):
        super().__init__(base)
        self.symbols = (*self.digits, *ORDERS)

    def step(self, state: str, a: str | None, b: str | None) -> Any:  # type: ignore[override]
        if a is None or b is None or {a, b} & {*ORDERS}:
            return None
        order = state if a == b else "<" if DIGITS.index(a) < DIGITS.index(b) else ">"
        return order, order

    def answer(self, rows: Sequence[tuple[list[str], str]]) -> str:
        return rows[0][0][-1]
