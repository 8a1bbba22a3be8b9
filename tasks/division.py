"""Division with remainder as rows, one subtraction or addition of the divisor a row.

Non-restoring division in base 2. Row ``r`` holds the rest ``2 R + a_r - b``, or ``2 R + a_r + b``
where the rest ``R`` above is negative, in as many bits as the divisor ``b`` has, last bit first. It
closes with its sign, so that all columns of the next row see it, and the signs are the bits of the
quotient. The last row belongs to no bit of ``a``: it adds ``b`` once more to a rest that is
negative. A bit is written with what its column carries or borrows, as ``1'``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks.whole import BOTH, CARRIED, Whole, ways

PLUS, MINUS = "+", "-"


class Division(Whole):
    """Quotient and remainder of two numbers, as ``1101/11 -> 100 r 1``."""

    name = "division"
    symbols = ("0", "1", "0'", "1'", PLUS, MINUS)
    row_words = ("0", "1")
    closers = (PLUS, MINUS)
    operator = "/"
    example = "1101/11"
    rereads = True
    unit = "bits"
    train_length = 8

    def begin(self, word: str | None, closer: str | None) -> Any:
        """The state: is the rest above negative, is this the last row, and is the divisor 0 so far?

        Then, of a column, the bit of the rest above that is shifted into it, what is carried, and
        the same of the rest compared with the divisor; and how the row above may have been written,
        with what is carried in it.
        """
        return closer == MINUS, word is None, True, int(word or 0), 0, 0, BOTH, 0

    def step(self, state: Any, word: Any) -> Any:
        return self._column(state, 0, word)

    def step_below(self, state: Any, above: str | None, *word: str) -> Any:
        if above is None or word[0] not in self.row_words:
            return None
        *now, known, before = state
        if not (known := ways(known, above, int(word[0]), before)):
            return None
        return self._column((*now, known, int(CARRIED in above)), int(above[0]), word[0])

    def _column(self, state: Any, rest: int, word: str) -> Any:
        if word not in self.row_words:
            return None
        negative, last, zero, shifted, carry, compared, *above = state
        b = int(word)
        compared = (rest + b + compared) // 2 if negative else int(rest - b - compared < 0)
        x = rest if last else shifted
        if last and not negative:
            bit, carry = x, 0
        else:
            carry, bit = divmod(x + b + carry if negative else x - b - carry, 2)
        state = negative, last, zero and not b, rest, abs(carry), compared, *above
        return state, f"{bit}{CARRIED * abs(carry)}"

    def end(self, state: Any) -> Any:
        """The sign; a rest is at least ``-b`` and below ``b``."""
        negative, last, zero, shifted, carry, compared, *_ = state
        if zero or not compared:
            return None
        if last:
            return ()
        return (PLUS if shifted + carry == 2 or not (negative or carry > shifted) else MINUS,)

    def answer(self, rows: Sequence[tuple[list[str], str]]) -> str:
        quotient = int("".join(str(int(closer == PLUS)) for _, closer in rows[:-1]), 2)
        return f"{quotient:b} r {self.number(rows[-1][0]):b}"


class Mod(Division):
    """The remainder of a division, as ``1101%11 -> 1``."""

    name = "mod"
    operator = "%"
    example = "1101%11"

    def answer(self, rows: Sequence[tuple[list[str], str]]) -> str:
        return super().answer(rows).split()[-1]
