"""Division with remainder in base 10 as rows: a digit of the quotient in four subtractions.

A source has a word for each row: behind each digit ``d`` of the dividend ``8b 4b 2b 1b``. The row
of a digit holds ``10 R + d``, with ``R`` what the row above holds. The others subtract 8, 4, 2 and
1 times the divisor ``b`` where ``R`` is not negative, and add them where it is. The first of them
then adds ``2 b``, since ``b`` is still to be added to ``R``, which is ``10 b`` a digit later. Rows
have one digit more than ``b``, are written in ten's complement, last digit first, and close with
their sign: the signs of four rows are the bits of a digit of the quotient. The last row adds ``b``
to a rest that is negative. Words in any other order are sources, too; their rows may overflow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks import whole

PLUS, MINUS = "+", "-"
DIGITS = tuple(whole.DIGITS)
TIMES = {"8b": 8, "4b": 4, "2b": 2, "1b": 1}


class DigitRows:
    """What the rows of a division in base 10 hold, column by column."""

    symbols = (*DIGITS, *TIMES, PLUS, MINUS)
    row_words = (*DIGITS, *TIMES)
    each = 5

    def begin(self, word: str | None, closer: str | None) -> Any:
        """The state: the row's word; is the rest above negative, is the divisor 0 so far, has the
        row one digit more than it; then what is carried or borrowed, or shifted."""
        return word, closer == MINUS, True, False, int(word) if word in DIGITS else 0

    def step(self, state: Any, word: str) -> Any:
        return self._column(state, 0, word)

    def step_below(self, state: Any, above: str | None, word: str | None) -> Any:
        if above not in DIGITS:
            return None
        return self._column(state, int(above), word)

    def _column(self, state: Any, rest: int, word: str | None) -> Any:
        row, negative, zero, over, carry = state
        if over or word not in (*DIGITS, None):
            return None
        b = int(word or 0)
        if row in DIGITS:
            made, carry = carry, rest
        elif negative:
            times = {"8b": 2, None: 1}.get(row) or TIMES[row]
            carry, made = divmod(rest + times * b + carry, 10)
        else:
            carry, made = divmod(rest - (TIMES[row] if row else 0) * b - carry, 10)
        return (row, negative, zero and not b, word is None, abs(carry)), str(made)

    def end(self, state: Any) -> Any:
        """Of the first row, to which the divisor has no last digit."""
        if (last := self._column(state, 0, None)) is None:
            return None
        state, made = last
        return (closed := self.end_below(state)) and (made, *closed)

    def end_below(self, state: Any) -> Any:
        row, negative, zero, over, carry = state
        if zero or not over:
            return None
        if row is None:
            return ()
        below = negative if row in DIGITS or not carry else not negative
        return (MINUS if below else PLUS,)

    def quotient(self, signs: Sequence[int]) -> str:
        fours = [signs[k + 1 : k + 5] for k in range(0, len(signs), 5)]
        return str(int("".join(str(8 * a + 4 * b + 2 * c + d) for a, b, c, d in fours)))

    def words(self, digits: str) -> str:
        """The words in front of a source, from the digits of its dividend, spaces left out."""
        return " ".join(f"{digit} {' '.join(TIMES)}" for digit in digits.replace(" ", ""))
