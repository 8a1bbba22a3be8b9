"""The vocabulary of receptive fields: places, atoms, tokens, cases, and how a source is laid out.

A row or a column of digits is named by its ``Place``; what can stand there is an *atom*. How far
a row is from either end of the number is its ``Case``: beyond a few rows or columns the distance
no longer matters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple


class Place(NamedTuple):
    """A row, or a column of digits counted from the last one.

    ``low``: counted from the beginning, 0 being the first row and the last digit. ``near``:
    relative to the row in question. ``top``: a column counted from the first digit. ``free``: a
    column that runs against the rows, and may be any.
    """

    kind: Literal["low", "near", "top", "free"]
    at: int


class Digit(NamedTuple):
    """The atom: a digit of an operand."""

    operand: int
    column: Place


class Written(NamedTuple):
    """The atom: the digit written for a column; for the column after the last, a final carry."""

    column: Place


class Constant(NamedTuple):
    """The atom: the digit of an operand that has only one."""

    operand: int


class Phase(NamedTuple):
    """The atom: the row, or the width of the operands, modulo the period of the positions."""

    of: Literal["row", "width"]


Atom = Digit | Written | Constant | Phase


class Token(NamedTuple):
    """A token that is read: a fixed ``symbol`` or the value of an ``atom``, and its position.

    The position is ``width * w + row * t + shift`` for operands of width ``w`` in row ``t``: of a
    token of the output counted from the first, of one of the source from the last.
    """

    symbol: int | None
    atom: Digit | Written | Constant | None
    width: int
    row: int
    shift: int


class Key(NamedTuple):
    """One key of a head: a row of the layer below, or a token of the source, and its bias."""

    row: Place | None
    token: Token | None
    bias: float


@dataclass(frozen=True)
class Case:
    """Where a row stands: ``row`` rows from the first, ``left`` columns from the last one.

    None where the number is so long that the distance does not matter.
    """

    row: int | None
    left: int | None

    @property
    def width(self) -> int | None:
        """The width of the operands, where it is fixed."""
        return self.row + self.left if self.row is not None and self.left is not None else None

    @property
    def place(self) -> Place:
        return Place("near", 0) if self.row is None else Place("low", self.row)

    def label(self) -> str:
        """A name for people."""
        if self.width is not None:
            return f"operands of {self.width}, row {self.row}"
        if self.row is not None:
            return f"row {self.row} of a long number"
        if self.left is not None:
            ends = {-1: "after a final carry", 0: "after the last column", 1: "one column left"}
            return ends.get(self.left, f"{self.left} columns left")
        return "inside a long number"


@dataclass(frozen=True)
class Segment:
    """One part of a source: which operand each of its tokens belongs to, from its end on.

    ``operands`` are repeated for every column; ``columns`` is 1 for an operand of one digit, 0
    for a part without digits, and None for one as wide as the problem.
    """

    operands: tuple[int, ...]
    columns: int | None = None


@dataclass(frozen=True)
class Layout:
    """How a source is written: ``$ segment [delimiter segment ...] &``.

    ``symbols`` are the delimiters' token ids, SOS first and EOS last; ``constant`` the operand
    that is one digit, if there is one.
    """

    segments: tuple[Segment, ...]
    symbols: tuple[int, ...]
    constant: int | None = None

    def behind(self, delimiter: int) -> tuple[int, int]:
        """Tokens behind a delimiter, to the end of the source: (a width, in any case)."""
        wide, fixed = 0, len(self.segments) - delimiter
        for segment in self.segments[delimiter:]:
            if segment.columns is None:
                wide += len(segment.operands)
            else:
                fixed += segment.columns * len(segment.operands)
        return wide, fixed


def atom_name(atom: Atom) -> str:
    """``a[t-1]``: the first operand's digit one column before the row's own; ``y`` is output."""
    if isinstance(atom, Phase):
        return f"{atom.of} mod period"
    if isinstance(atom, Constant):
        return "abcdefgh"[atom.operand]
    name = "y" if isinstance(atom, Written) else "abcdefgh"[atom.operand]
    where, at = atom.column
    if where == "near":
        return f"{name}[t{at:+d}]" if at else f"{name}[t]"
    return f"{name}[{at}]" if where == "low" else f"{name}[{where} {at}]"
