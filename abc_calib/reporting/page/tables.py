"""The page of tables and figures: what ``abc reproduce`` writes beside its Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from abc_calib.reporting.page.filling import filled
from abc_calib.reporting.style import as_svg


def tables_page(
    title: str,
    tables: Sequence[tuple[str, Sequence[str], Sequence[Sequence[Any]]]],
    figures: Mapping[str, Figure],
    notes: Sequence[str],
) -> str:
    """One HTML file: tables as (heading, columns, rows), figures by name, and notes below."""
    shown = [
        (heading, columns, [["" if cell is None else cell for cell in row] for row in rows])
        for heading, columns, rows in tables
    ]
    images = {name: as_svg(figure) for name, figure in figures.items()}
    return filled("tables.html", title=title, tables=shown, figures=images, notes=notes)
