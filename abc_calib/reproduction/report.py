"""A reproduction as tables, records and figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from matplotlib.figure import Figure

from abc_calib.reporting.page.tables import tables_page
from abc_calib.text import as_latex, as_markdown


@dataclass(frozen=True)
class Table:
    """Cells as text; ``heading`` is above it, if there are several."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    heading: str = ""


@dataclass(frozen=True)
class Report:
    """What a reproduction shows: ``records`` are its numbers, one a row of CSV or JSON."""

    name: str
    title: str
    tables: Sequence[Table]
    records: Sequence[dict[str, Any]]
    notes: Sequence[str] = ()
    incomplete: Sequence[str] = ()
    figures: dict[str, Figure] = field(default_factory=dict)

    @property
    def markdown(self) -> str:
        parts = [f"# {self.title}\n"]
        parts += [f"Made by `abc reproduce {self.name}`; every seed is in {self.name}-seeds.csv.\n"]
        for table in self.tables:
            parts += [f"## {table.heading}\n"] if table.heading else []
            parts += [as_markdown(table.columns, table.rows)]
        parts += [f"![{name}]({name}.png)\n" for name in self.figures]
        parts += [f"{note}\n" for note in self.notes]
        if self.incomplete:
            parts += ["Not complete:\n", "".join(f"- {line}\n" for line in self.incomplete)]
        return "\n".join(parts)

    @property
    def html(self) -> str:
        """The tables, figures and notes as a page that needs no network."""
        parts = [(table.heading, table.columns, table.rows) for table in self.tables]
        return tables_page(self.title, parts, self.figures, [*self.notes, *self.incomplete])

    @property
    def latex(self) -> str:
        return "\n".join(as_latex(table.columns, table.rows) for table in self.tables)
