"""Names for people: of atoms, and of where a query stands."""

from __future__ import annotations

from typing import Any

from abc_calib.geometry.layout import digit_name
from abc_calib.proof.graph import Atom
from abc_calib.proof.windows import Place


def atom_name(place: Place, atom: Atom) -> str:
    """``a[t-1]``: the first operand's digit one column before the query's.

    ``y`` is the output's own row, ``p`` the row above (``pp`` the one above that); ``a[2]`` is
    counted from the last digit, ``a[end-1]`` from the first.
    """
    row = "p" * atom.of or "y"
    name = row if atom.kind == "written" else digit_name(atom.of, "")
    if atom.kind == "closer":
        return f"{'p' * atom.of or 'y'}[open]"
    if atom.column is None:
        return name
    size = place.size
    if atom.kind == "other" and size.shape.rule.of_row == atom.of:
        return f"{name}[r{atom.column.value - size.row.value:+d}]"
    if not any(atom.column.slopes):
        return f"{name}[{atom.column.value}]"
    for mark, form in (("t", size.column), ("end", size.wide)):
        if form.slopes == atom.column.slopes:
            beside = atom.column.value - form.value
            return f"{name}[{mark}{beside:+d}]" if beside else f"{name}[{mark}]"
    return f"{name}[{atom.column.value}]"


def where(place: Place) -> str:
    """``row 0, column 3 of 5``; "or more" where a gap may be larger."""
    size = place.size
    column = f"column {_number(size.column)} of {_number(size.wide)}"
    if not size.shape.rule.in_rows:
        return column
    row = f"row {_number(size.row)}{', the last' if size.last else ''}"
    return f"{row}: {column}"


def _number(form: Any) -> str:
    open_ = zip(form.slopes, form.gaps.open, strict=True)
    return f"{form.value}{' or more' * any(slope and one for slope, one in open_)}"
