"""The greatest common divisor as rows, one halving or subtraction a row (Stein 1967).

A column of a row has a bit of both numbers, which of them is larger as far as they were read, and
which are odd: ``a`` the second, ``b`` the first, ``c`` both. Columns in which both are 0 from the
start are written ``o`` and stay, since so often 2 divides both. A row closes with what the next one
does: the first number is halved (``a``) or the second one (``b``), or the larger of two odd ones
becomes half their difference (``c>``, ``c<``). Of two equal ones the row is the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from tasks.rules import END
from tasks.whole import Whole

PREFIX = "o"
EVEN = {"01": "a", "10": "b", "11": "c"}
"""What the first column says in which one of two bits is 1."""


class Gcd(Whole):
    """The greatest common divisor of two numbers, as ``1100,10010 -> 110``."""

    name = "gcd"
    closers = ("a", "b", "c<", "c>")
    symbols = (
        *("0", "1", PREFIX),
        *map("".join, product("01", "01", "<>", "ab")),
        *map("".join, product("01", "01", "<=>", "c")),
        *closers,
    )
    operator = ","
    example = "1100,10010"
    operands = 2
    ahead_below = 1
    unit = "bits"
    train_length = 8

    def begin(self, word: str | None, closer: str | None) -> Any:
        """The state: what is done in this row, the column before in the row above, how the numbers
        compare so far and which are odd, both of this row."""
        return closer, None, "=", None

    def step(self, state: Any, first: str | None, second: str | None) -> Any:  # type: ignore[override]
        if first not in ("0", "1") or second not in ("0", "1"):
            return None
        _, nonzero, order, odd = state
        x, y = nonzero or "00"
        order, odd, cell = self._next(order, odd, first + second)
        return (None, max(x, first) + max(y, second), order, odd), cell

    def _next(self, order: str, odd: str | None, bits: str) -> tuple[str, str | None, str]:
        """How they compare now, which are odd, and what is written for two bits."""
        odd = odd or EVEN.get(bits)
        if odd is None:
            return "=", None, PREFIX
        order = {"01": "<", "10": ">"}.get(bits, order)
        return order, odd, bits + order + odd

    def end(self, state: Any) -> Any:
        _, nonzero, order, odd = state
        if odd is None or nonzero != "11":  # one of them is 0
            return None
        if order == "=":
            return (END,)
        return (odd + order if odd == "c" else odd,)

    def step_below(self, state: Any, above: str, *word: str) -> Any:
        """What the column before it becomes, now that the next one is known."""
        does, previous, order, odd = state
        before, whose = ("=", None) if previous in (None, PREFIX) else (previous[2], previous[3])
        if above != self._next(before, whose, _bits(above))[2]:
            return None
        if previous is None:
            return (does, above, order, odd), PREFIX  # written behind the last column
        order, odd, cell = self._next(order, odd, self._becomes(does, previous, _bits(above)))
        return (does, above, order, odd), cell

    def _becomes(self, does: str, column: str, following: str) -> str:
        """The bits of a column in the next row, from it and the one behind it."""
        x, y = _bits(column)[0], _bits(column)[1]
        next_x, next_y = following[0], following[1]
        if column == PREFIX or does == "b":
            return x + (next_y if does == "b" and column != PREFIX else y)
        if does == "a":
            return next_x + y
        borrows = column[2] == {">": "<", "<": ">"}[does[1]]  # the larger one is smaller so far
        half = str((int(next_x) + int(next_y) + borrows) % 2)
        return half + y if does == "c>" else x + half

    def end_below(self, state: Any) -> Any:
        does, previous, order, odd = state
        if previous == PREFIX or (previous[3] + previous[2])[: len(does)] != does:
            return None
        bits = self._becomes(does, previous, "00")
        if bits == "00":  # a column less
            return self.end((None, "11", order, odd))
        order, odd, word = self._next(order, odd, bits)
        closing = self.end((None, "11", order, odd))
        return closing and (word, *closing)

    def answer(self, rows: Sequence[tuple[list[str], str]]) -> str:
        bits = [_bits(word)[1] for word in rows[-1][0]]
        return f"{int(''.join(reversed(bits)), 2):b}"


def _bits(word: str) -> str:
    return "00" if word == PREFIX else word[:2]
