"""What people read of a certificate: names of atoms and places, and its page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from abc_calib.geometry.layout import digit_name
from abc_calib.plugins.registry import is_ours
from abc_calib.proof.occurrence import Occurrence
from abc_calib.proof.operands import Atom
from abc_calib.text import as_markdown
from tasks import TASKS

TEMPLATE = Path(__file__).with_name("certificate.md.jinja")
MOST_STATES, MOST_COLUMNS = 12, 6
"""Of a transducer that is shown: states, and columns that are done alike in one."""


def page(certificate: dict[str, Any]) -> str:
    """Fill the template with the fields of a ``Certificate``: Markdown."""
    rule = certificate["rule"] or {}
    row = rule.get("later") or rule.get("first") or {}
    return filled(
        TEMPLATE.read_text("utf-8"),
        **certificate,
        number="{:,}".format,
        size=lambda length: "x".join(map(str, [length] if isinstance(length, int) else length)),
        ours=is_ours(TASKS.get(certificate["task"])),
        row=row,
        rule_table=rule_table(row, certificate["source"].get("words"))
        if certificate["lines"]
        else "",
    )


def filled(template: str, **values: Any) -> str:
    """Fill a template of Markdown with values."""
    from jinja2 import Environment

    environment = Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    text = environment.from_string(template).render(**values)
    return "\n".join(line.rstrip() for line in text.rstrip().split("\n")) + "\n"


def rule_table(row: dict[str, Any], words: list[str] | None) -> str:
    """One record for each of the first states of a transducer.

    What it writes under each column of letters, and the next state.
    """
    letters = [*(words or map(str, range(row["base"])))]
    names = [*letters, "the end", "nothing", "the row's end before another row", "the last end"]
    tables = (np.array(row[name][:MOST_STATES]) for name in ("next", "written"))
    records = []
    for state, (following, written) in enumerate(zip(*tables, strict=True)):
        cells: dict[tuple[int, int], list[str]] = {}
        for column, after in np.ndenumerate(following):
            if after >= 0:
                shown = " ".join([*letters, "–"][letter] for letter in column)
                cells.setdefault((written[column], after), []).append(shown)
        steps = "; ".join(
            f"{names[out]} and state {after}: {', '.join(columns[:MOST_COLUMNS])}"
            f"{' ...' if len(columns) > MOST_COLUMNS else ''}"
            for (out, after), columns in sorted(cells.items())[:20]
        )
        records.append([state, steps])
    return as_markdown(["state", "written and next state: columns"], records)


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
            shift = column.value - form.value
            return f"{name}[{mark}{shift:+d}]" if shift else f"{name}[{mark}]"
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
