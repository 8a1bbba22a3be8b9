"""The page of a certificate, from ``certificate.md.jinja`` and a table of its rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from abc_calib.plugins.registry import is_ours
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
        rule_table=rule_table(row, certificate["source"]) if certificate["lines"] else "",
    )


def filled(template: str, **values: Any) -> str:
    """Fill a template of Markdown with values."""
    from jinja2 import Environment

    environment = Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    text = environment.from_string(template).render(**values)
    return "\n".join(line.rstrip() for line in text.rstrip().split("\n")) + "\n"


def rule_table(row: dict[str, Any], source: dict[str, Any]) -> str:
    """One record for each of the first states of a transducer.

    What it writes under each column of letters, and the next state.
    """
    letters = [*(source.get("words") or map(str, range(row["base"])))]
    names = [*letters, "the end", "nothing", "the row's end before another row", "the last end"]
    records = []
    for state in range(min(len(row["next"]), MOST_STATES)):
        cells: dict[tuple[int, int], list[str]] = {}
        _collect(row["next"][state], row["written"][state], letters, "", cells)
        steps = "; ".join(
            f"{names[out]} and state {after}: {', '.join(columns[:MOST_COLUMNS])}"
            f"{' ...' if len(columns) > MOST_COLUMNS else ''}"
            for (out, after), columns in sorted(cells.items())[:20]
        )
        records.append([state, steps])
    return as_markdown(["state", "written and next state: columns"], records)


def _collect(
    after: Any, out: Any, names: list[str], letters: str, cells: dict[tuple[int, int], list[str]]
) -> None:
    """Collect the columns that begin with ``letters``, by what is written and the next state."""
    if isinstance(after, int):
        if after >= 0:
            cells.setdefault((out, after), []).append(letters.strip())
        return
    for letter, (following, written) in enumerate(zip(after, out, strict=True)):
        name = names[letter] if letter < len(names) else "–"
        _collect(following, written, names, f"{letters} {name}", cells)
