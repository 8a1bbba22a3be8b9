"""Division with remainder as rows, one subtraction or addition of the divisor a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tasks.ragged import Ragged, Rng
from tasks.whole import BOTH, CARRIED, DIGITS, Whole, ways
from tasks.word_rule import COLON
from tasks.words import WordTask

PLUS, MINUS = "+", "-"
TEN = tuple(DIGITS)
TIMES = {"8b": 8, "4b": 4, "2b": 2, "1b": 1}


class BitRows:
    """What the rows of a division in base 2 hold, column by column.

    Row ``r`` holds the rest ``2 R + a_r - b``, or ``2 R + a_r + b`` where the rest ``R`` above is
    negative, in as many bits as the divisor ``b`` has, last bit first. It closes with its sign, so
    that all columns of the next row see it, and the signs are the bits of the quotient. The last
    row belongs to no bit of ``a``: it adds ``b`` once more to a rest that is negative. A bit is
    written with what its column carries or borrows, as ``1'``.
    """

    symbols = ("0", "1", "0'", "1'", PLUS, MINUS)
    row_words = ("0", "1")
    each = 1

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
        *now, possible, before = state
        if not (possible := ways(possible, above, int(word[0]), before)):
            return None
        return self._column((*now, possible, int(CARRIED in above)), int(above[0]), word[0])

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

    end_below = end

    def quotient(self, signs: Sequence[int]) -> str:
        return f"{int(''.join(map(str, signs)), 2):b}"

    def words(self, digits: str) -> str:
        return " ".join(digits.replace(" ", ""))


class DigitRows:
    """What the rows of a division in base 10 hold: a digit of the quotient in four subtractions.

    A source has a word for each row: behind each digit ``d`` of the dividend ``8b 4b 2b 1b``. The
    row of a digit holds ``10 R + d``, with ``R`` what the row above holds. The others subtract 8,
    4, 2 and 1 times the divisor ``b`` where ``R`` is not negative, and add them where it is. The
    first of them then adds ``2 b``, since ``b`` is still to be added to ``R``, which is ``10 b`` a
    digit later. Rows have one digit more than ``b``, are written in ten's complement, last digit
    first, and close with their sign: the signs of four rows are the bits of a digit of the
    quotient. The last row adds ``b`` to a rest that is negative. Words in any other order are
    sources, too; their rows may overflow.
    """

    symbols = (*TEN, *TIMES, PLUS, MINUS)
    row_words = (*TEN, *TIMES)
    each = 5

    def begin(self, word: str | None, closer: str | None) -> Any:
        """The state: the row's word; is the rest above negative, is the divisor 0 so far, has the
        row one digit more than it; then what is carried or borrowed, or shifted."""
        return word, closer == MINUS, True, False, int(word) if word in TEN else 0

    def step(self, state: Any, word: str) -> Any:
        return self._column(state, 0, word)

    def step_below(self, state: Any, above: str | None, word: str | None) -> Any:
        if above not in TEN:
            return None
        return self._column(state, int(above), word)

    def _column(self, state: Any, rest: int, word: str | None) -> Any:
        row, negative, zero, over, carry = state
        if over or word not in (*TEN, None):
            return None
        b = int(word or 0)
        if row in TEN:
            digit, carry = carry, rest
        elif negative:
            times = {"8b": 2, None: 1}.get(row) or TIMES[row]
            carry, digit = divmod(rest + times * b + carry, 10)
        else:
            carry, digit = divmod(rest - (TIMES[row] if row else 0) * b - carry, 10)
        return (row, negative, zero and not b, word is None, abs(carry)), str(digit)

    def end(self, state: Any) -> Any:
        """Of the first row, to which the divisor has no last digit."""
        if (last := self._column(state, 0, None)) is None:
            return None
        state, digit = last
        return (closed := self.end_below(state)) and (digit, *closed)

    def end_below(self, state: Any) -> Any:
        row, negative, zero, over, carry = state
        if zero or not over:
            return None
        if row is None:
            return ()
        below = negative if row in TEN or not carry else not negative
        return (MINUS if below else PLUS,)

    def quotient(self, signs: Sequence[int]) -> str:
        fours = [signs[k + 1 : k + 5] for k in range(0, len(signs), 5)]
        return str(int("".join(str(8 * a + 4 * b + 2 * c + d) for a, b, c, d in fours)))

    def words(self, digits: str) -> str:
        """The words in front of a source, from the digits of its dividend, spaces left out."""
        return " ".join(f"{digit} {' '.join(TIMES)}" for digit in digits.replace(" ", ""))


class Division(Whole):
    """Quotient and remainder of two numbers, as ``1101/11 -> 100 r 1``."""

    name = "division"
    closers = (PLUS, MINUS)
    operator = "/"
    bases = (2, 10)
    rereads = True

    def __init__(self, base: int | None = None):
        super().__init__(base)
        self.by: BitRows | DigitRows = BitRows() if self.base == 2 else DigitRows()
        self.symbols, self.row_words = self.by.symbols, self.by.row_words
        self.unit, self.train_length = ("bits", 8) if self.base == 2 else ("digits", 4)
        self.example = f"{'1101' if self.base == 2 else '1234'}{self.operator}11"

    def begin(self, word: str | None, closer: str | None) -> Any:
        return self.by.begin(word, closer)

    def step(self, state: Any, word: Any) -> Any:
        return self.by.step(state, word)

    def step_below(self, state: Any, above: Any, *word: Any) -> Any:
        return self.by.step_below(state, above, *word)

    def end(self, state: Any) -> Any:
        return self.by.end(state)

    def end_below(self, state: Any) -> Any:
        return self.by.end_below(state)

    def parts(self, source: str) -> list[str]:
        if self.base == 10 and COLON in source:
            return WordTask.parts(self, source)
        front, behind = super().parts(source)
        return [self.by.words(front), behind]

    def write(self, problems: Any, row: int) -> str:
        front, behind = WordTask.write(self, problems, row).split(f" {COLON} ")
        if self.by.words(digits := "".join(front.split()[:: self.by.each])) != front:
            return f"{front} {COLON} {behind}"
        return f"{digits}{self.operator}{behind}".replace(" ", "")

    def fronts(self, rng: Rng, n: int, low: int, high: int) -> Ragged:
        """In base 10 half of those of several sizes are of words in any order."""
        each = self.by.each
        if each == 1:
            return super().fronts(rng, n, low, high)
        drawn = super().fronts(rng, n, low, each * high)
        digits = each * rng.integers(low, high + 1, n)
        order = np.arange(each * high) % each
        words = np.where(order, len(DIGITS) - 1 + order, rng.integers(0, 10, drawn.values.shape))
        divided = (rng.random(n) < 0.5) | (low == high)
        values = np.where(divided[:, None], words, drawn.values)
        return Ragged(values, np.where(divided, digits, drawn.lengths))

    def answer(self, rows: Sequence[tuple[list[str], str]]) -> str:
        signs = [int(closer == PLUS) for _, closer in rows[:-1]]
        rest = self.number(rows[-1][0])
        return f"{self.by.quotient(signs)} r {rest:{'b' if self.base == 2 else 'd'}}"


class Mod(Division):
    """The remainder of a division, as ``1101%11 -> 1``."""

    name = "mod"
    operator = "%"

    def answer(self, rows: Sequence[tuple[list[str], str]]) -> str:
        return super().answer(rows).split()[-1]
