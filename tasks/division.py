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

from tasks.whole import Whole

PLUS, MINUS = "+", "-"
CARRIED = "'"


class Division(Whole):
    """Quotient and remainder of two numbers, as ``13/3 -> 4 r 1``."""

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
        """The state: is the rest above negative, is this the last row; then, of a column, the bit
        of the rest above that is shifted into it, what is carried, the same of the rest compared
        with the divisor, and is the divisor 0 so far?"""
        negative = closer == MINUS
        return negative, word is None, int(word or 0), 0, 0, True

    def step(self, state: Any, word: Any) -> Any:
        return self.step_below(state, "0", word)

    def step_below(self, state: Any, above: str | None, *word: str) -> Any:
        if above is None or word[0] not in self.row_words:
            return None
        negative, last, shifted, carry, compared, zero = state
        rest, b = int(above[0]), int(word[0])
        compared = (rest + b + compared) // 2 if negative else (rest - b - compared) < 0
        x = rest if last else shifted
        if last and not negative:
            total, carry = x, 0
        elif negative:
            carry, total = divmod(x + b + carry, 2)
        else:
            borrow, total = divmod(x - b - carry, 2)
            carry = -borrow
        state = negative, last, rest, carry, int(compared), zero and not b
        return state, f"{total}{CARRIED * carry}"

    def end(self, state: Any) -> Any:
        """The sign; a rest is at least ``-b`` and below ``b``."""
        negative, last, shifted, carry, compared, zero = state
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
