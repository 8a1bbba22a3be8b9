"""Where every token of a source and of an output stands.

A token has coordinates: the part it belongs to (an operand, or a row of the output) and its
column, counted from the part's last token, so that ``a0`` is the last digit of the first operand
whatever its length: ``$ a2 a1 a0 + b2 b1 b0 &`` is answered by ``y0 y1 y2 y3 &``. Labels of
figures, predictions, fits and certificates all come from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from string import ascii_lowercase
from typing import Any, NamedTuple


class Coordinate(NamedTuple):
    """A token of a source: the ``operand`` and its ``column``.

    ``part`` of the source, from 1 on. A delimiter has no operand, and as its part the one that it
    closes: 0 is SOS.
    """

    part: int
    operand: int | None
    column: int


class Part(NamedTuple):
    """One part of a source: whose token stands where, from its end on, in each of its columns."""

    operands: tuple[int, ...]
    columns: int

    @property
    def tokens(self) -> int:
        return len(self.operands) * self.columns


@dataclass(frozen=True)
class Layout:
    """One source: the ``widths`` of its operands, between ``delimiters``, SOS first and EOS last.

    ``aligned``: the operator first, then the digits of all operands column by column. ``words``:
    one operand that is counted from its first word, as a person counts words. ``hints``: before
    each digit a token that says its column.
    Widths are plain integers of any size: nothing here is as long as a source.
    """

    widths: tuple[int, ...]
    delimiters: tuple[str, ...]
    aligned: bool = False
    words: bool = False
    hints: bool = False

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """What stands between the delimiters."""
        operands = range(len(self.widths))
        if self.aligned:
            return Part((), 0), Part(tuple(operands)[::-1], self.widths[0])
        return tuple(Part((k, k) if self.hints else (k,), self.widths[k]) for k in operands)

    @property
    def stride(self) -> int:
        """Tokens that lines go on by in a row of the output: more than 1 if digits are aligned.

        Hints stand before the digits of an output as well.
        """
        return 1 if self.hints else len(self.parts[-1].operands)

    @cached_property
    def closes(self) -> tuple[int, ...]:
        """Positions of the delimiters: of SOS, and of what closes each part."""
        return (0, *accumulate(part.tokens + 1 for part in self.parts))

    @property
    def keys(self) -> int:
        """The length of the source, in tokens."""
        return self.closes[-1] + 1

    @property
    def anchors(self) -> tuple[int, ...]:
        """What lines are counted from: see ``abc_calib.geometry.lines``."""
        return (0, self.keys - 1, *self.closes)

    def coordinate(self, position: int) -> Coordinate:
        """Where the token at a position of the source stands."""
        number, behind = placed(self.closes, position)
        if behind < 0:
            return Coordinate(number, None, -1)
        operands = self.parts[number - 1].operands
        column, which = divmod(behind, len(operands))
        return Coordinate(number, operands[which], column)

    def label(self, position: int) -> str:
        """The name of a token: ``a0``, a word's number, or the delimiter itself."""
        part, operand, column = self.coordinate(position)
        if operand is None:
            return self.delimiters[part]
        if self.words:
            return str(position - 1)
        hint = self.hints and placed(self.closes, position)[1] % 2
        return ("#" if hint else "") + digit_name(operand, column)

    def labels(self) -> list[str]:
        """One label a token, such as ``$ a1 a0 + b1 b0 &``."""
        return [self.label(position) for position in range(self.keys)]


def placed(closes: Sequence[Any], position: Any) -> tuple[Any, Any]:
    """The part that a token belongs to, and how many tokens of it are behind; -1 for its delimiter.

    From the positions of the delimiters: plain integers, or arrays or tensors of one shape.
    """
    part, close = 0, closes[0]
    for before, after in pairwise(closes):
        later = position > before
        part, close = part + later, close + later * (after - before)
    return part, close - 1 - position


def digit_name(operand: int, column: int | str) -> str:
    """``b0``: the last digit of the second operand."""
    return f"{ascii_lowercase[operand % 26]}{column}"


def written_labels(steps: int, end: str) -> list[str]:
    """What each of ``steps`` rows writes: ``y0 y1 ... &``."""
    return [*(f"y{step}" for step in range(steps - 1)), end]


def read_labels(steps: int, start: str) -> list[str]:
    """What the decoder reads at each of ``steps`` positions: ``$ y0 y1 ...``."""
    return [start, *(f"y{step}" for step in range(steps - 1))]
