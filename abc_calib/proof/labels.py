"""Names for people: of atoms, and of where a query stands."""

from __future__ import annotations

from typing import Any

from abc_calib.geometry.layout import digit_name
from abc_calib.proof.occurrence import Occurrence
from abc_calib.proof.operands import Atom


def atom_name(occurrence: Occurrence, atom: Atom) -> str:
    """``a[t-1]``: the first operand's digit one column before the query's.

    ``y`` is the output's own row, ``p`` the row above (``pp`` the one above that); ``a[2]`` is
    counted from the last digit, ``a[end-1]`` from the first, ``p[end-t]`` from the row's last
    token; ``a[2t+1]`` where a column reads two.
    """
    row = "p" * atom.of or "y"
    name = row if atom.kind == "written" else digit_name(atom.of, "")
    if atom.kind == "closer":
        return f"{'p' * atom.of or 'y'}[open]"
    if atom.column is None:
        return name
    query, column, times, rule = occurrence.query, atom.column, 1, occurrence.query.setup.rule
    if atom.kind == "other" and rule.of_row == atom.of:
        return f"{name}[r{column.value - query.row.value:+d}]"
    if atom.kind == "digit" and rule.stride > 1:
        first, times = min(rule.first.tapes), rule.stride
        name, column = digit_name(first, ""), column * times + (atom.of - first)
    if not any(column.slopes):
        return f"{name}[{column.value}]"
    now, unit = query.column * times, f"{times}t" if times > 1 else "t"
    end = query.above if atom.kind == "written" and query.above is not None else query.wide * times
    for mark, form in ((unit, now), ("end", end), (f"end-{unit}", end - now)):
        if form.slopes == column.slopes:
            beside = column.value - form.value
            return f"{name}[{mark}{beside:+d}]" if beside else f"{name}[{mark}]"
    return f"{name}[{column.value}]"


def described(occurrence: Occurrence) -> dict[str, Any]:
    """``where`` a query stands, as ``row 0, column 3 of 5``, and the names of its ``atoms``.

    "or more" where a gap may be larger.
    """
    query = occurrence.query
    where = f"column {_number(query.column)} of {_number(query.wide)}"
    if query.setup.rule.in_rows:
        where = f"row {_number(query.row)}{', the last' if query.last else ''}: {where}"
    return {"where": where, "atoms": [atom_name(occurrence, atom) for atom in occurrence.atoms]}


def _number(form: Any) -> str:
    open_ = zip(form.slopes, form.gaps.open, strict=True)
    return f"{form.value}{' or more' * any(slope and is_open for slope, is_open in open_)}"
