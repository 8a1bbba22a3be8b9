"""Which of two numbers is larger, as running verdicts from the last digit on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks.whole import DIGITS, Whole

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
