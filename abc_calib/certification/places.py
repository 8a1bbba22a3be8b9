"""The vocabulary of receptive fields: places, atoms, tokens, cases.

A row or a column of digits is named by its ``Place``; what can stand there is an *atom*. How far
a row is from either end of the number is its ``Case``: beyond a few rows or columns the distance
no longer matters, and one number stands for all that are far enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from abc_calib.errors import AbcError
from abc_calib.geometry.layout import digit_name

FAR, WIDE = 10**12, 10**24
"""The row that stands for every row far from the first, and the width for every one far wider.

Places are worked out on plain numbers, by the arithmetic that the model uses, and read off
afterwards: ``FAR - 1`` is the row before the one in question, ``WIDE - 1`` the first column.
"""
ABOVE = -1
"""The operand that the row above is, where an output has several rows."""
NEAR = 10**6
"""A place is within so many rows or columns of what it is counted from."""


class Unbounded(AbcError):
    """The model's field has no bound, or none that is known; the message says why."""


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


class Other(NamedTuple):
    """The atom: a digit that may be any, whatever the others are: of what, and which."""

    of: str
    at: int | Place


class Phase(NamedTuple):
    """The atom: the row, or the width of the operands, modulo the period of the positions."""

    of: Literal["row", "width"]


Atom = Digit | Written | Constant | Other | Phase


class Token(NamedTuple):
    """A token that is read: a fixed ``symbol`` or the value of an ``atom``, and its position.

    The position is ``width * w + row * t + shift`` for operands of width ``w`` in row ``t``: of a
    token of the output counted from the first, of one of the source from the last.
    """

    symbol: int | None
    atom: Digit | Written | Constant | Other | None
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

    @property
    def numbers(self) -> tuple[int, int]:
        """The row, and the width of the operands, as numbers."""
        row = FAR if self.row is None else self.row
        return row, WIDE if self.left is None else row + self.left

    def number(self, place: Place) -> int:
        """The row or column of a place."""
        row, width = self.numbers
        top = width - 1 - place.at
        return {"low": place.at, "near": row + place.at, "top": top, "free": top - row}[place.kind]

    def place_of(self, number: int) -> Place:
        """The place of a row or column; ``Unbounded`` where it moves against its neighbours."""
        width, row, at = read_off(number)
        if (width, row) == (0, 0):
            return Place("low", at)
        if (width, row) == (0, 1):
            return Place("near", at)
        if (width, row) == (1, 0):
            return Place("top", -1 - at)
        if (width, row) == (1, -1):
            return Place("free", -1 - at)
        raise Unbounded(f"a line of {row} columns a row drifts through the digits")

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


def read_off(number: int) -> tuple[int, int, int]:
    """``number`` as so many widths, so many rows, and the rest."""
    width = (number + WIDE // 2) // WIDE
    row = (number - width * WIDE + FAR // 2) // FAR
    rest = number - width * WIDE - row * FAR
    if max(abs(row), abs(rest)) > NEAR:
        raise Unbounded("a line goes on by a part of a column a row, and drifts through the digits")
    return width, row, rest


def atom_name(atom: Atom) -> str:
    """``a[t-1]``: the first operand's digit one column before the row's own; ``y`` is output."""
    if isinstance(atom, Phase):
        return f"{atom.of} mod period"
    if isinstance(atom, Constant):
        return digit_name(atom.operand, "")
    if isinstance(atom, Other) and not isinstance(atom.at, Place):
        return f"{atom.of}{atom.at:+d}"
    column = atom.at if isinstance(atom, Other) else atom.column
    name = "y" if isinstance(atom, Written) else ""
    if isinstance(atom, Digit):
        name = "p" if atom.operand == ABOVE else digit_name(atom.operand, "")
    name = atom.of if isinstance(atom, Other) else name
    where, at = column  # type: ignore[misc]
    if where == "near":
        return f"{name}[t{at:+d}]" if at else f"{name}[t]"
    return f"{name}[{at}]" if where == "low" else f"{name}[{where} {at}]"


def column_of(place: Place, row: int, width: int) -> int:
    """The column of a place, for operands of ``width`` in ``row``."""
    against = width - 1 - place.at
    return {"near": row + place.at, "low": place.at, "top": against, "free": against - row}[
        place.kind
    ]
