"""Tables on the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from abc_calib.evaluation import GridRow, Row, SequenceRow


def accuracy_table(rows_by_name: Mapping[str, Sequence[Row]]) -> Table:
    """Exact match: a line for every length, a column for every named series.

    A cell reads ``99.80 % [99.28, 99.95] of 1000``: the figure, its 95 % interval, the samples.
    """
    table = Table(caption="exact match, 95 % interval, samples", caption_justify="left")
    table.add_column("length", justify="right")
    for name in rows_by_name:
        table.add_column(Text(name), justify="right")
    cells = [{_size(row): row for row in rows} for rows in rows_by_name.values()]
    for length in sorted({length for column in cells for length in column}):
        table.add_row(
            "x".join(map(str, length)), *(Text(_cell(column.get(length))) for column in cells)
        )
    return table


def token_table(rows: Sequence[SequenceRow]) -> Table:
    """All metrics of a task on tokens: a line for every row of its evaluation."""
    table = Table(
        caption="percent of outputs, 95 % interval and samples; edits and squared words on average",
        caption_justify="left",
    )
    names = ("before end", "too early", "too late", "content", "edit distance", "attention loss")
    for name in ("set", "length", "exact match", *names):
        table.add_column(name, justify="left" if name == "set" else "right")
    for row in rows:
        values = (row.before_end, row.too_early, row.too_late, row.content, row.edit_distance)
        loss = "-" if row.attention_loss is None else f"{row.attention_loss:.2f}"
        cells = [row.set, str(row.length), _cell(row), *(f"{v:.2f}" for v in values), loss]
        table.add_row(*map(Text, cells))
    return table


def _size(row: Row) -> tuple[int, ...]:
    return (row.length, row.rows) if isinstance(row, GridRow) else (row.length,)


def _cell(row: Row | None) -> str:
    if row is None:
        return "-"
    # never rounded up to 100: one wrong answer in 30,000 is a wrong answer
    shown = math.floor(row.accuracy * 100 + 1e-6) / 100
    return f"{shown:.2f} % [{row.low:.2f}, {row.high:.2f}] of {row.n}"
