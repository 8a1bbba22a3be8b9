"""The tables of evaluations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from abc_calib.evaluation import GridRow, Row, SequenceRow
from abc_calib.text import Table

SAYS = 1.0
"""From this width on, in points, an interval is shown next to its number."""


def accuracy_table(rows_by_name: Mapping[str, Sequence[Row]]) -> Table:
    """Exact match: a line for every length, a column for every named series.

    With the 95 % interval below a number where it is wide; the samples are a column of their own,
    unless series have others.
    """
    lines = []
    for length, rows in _by_length(rows_by_name):
        counts = {row.n for row in rows if row is not None}
        alike = len(counts) == 1
        cells = (_cell(row, with_n=not alike) for row in rows)
        lines.append([length, *cells, f"{counts.pop()}" if alike else None])
    columns = ["length", *rows_by_name, "samples"]
    return Table(columns, lines, right=columns, caption="exact match in percent, 95 % intervals")


def plain_accuracy_table(
    rows_by_name: Mapping[str, Sequence[Row]], caption: str, label: str, intervals: bool = False
) -> Table:
    """The same as papers have it: a number a cell, and its interval if that is asked for.

    The caption goes on with what a cell is of: how many samples, and which interval.
    """
    lines: list[list[object]] = []
    for length, rows in _by_length(rows_by_name):
        lines.append([length])
        for row in rows:
            lines[-1].append(_number(row))
            if intervals:
                lines[-1].append("-" if row is None else f"[{row.low:.2f}, {row.high:.2f}]")
    each = [[name, f"{name}, 95 %"] if intervals else [name] for name in rows_by_name]
    names = ["length", *(name for pair in each for name in pair)]
    counts = {row.n for rows in rows_by_name.values() for row in rows}
    samples = " to ".join(f"{n:,}" for n in sorted({min(counts), max(counts)})) if counts else "no"
    note = f". {samples} samples a number" + ("; in brackets: 95 % intervals" * intervals)
    return Table(names, lines, right=names, caption=caption and caption + note, label=label)


def _by_length(
    rows_by_name: Mapping[str, Sequence[Row]],
) -> Iterator[tuple[str, list[Row | None]]]:
    """Each length, and the row of each series if it has one."""
    cells = [{_size(row): row for row in rows} for rows in rows_by_name.values()]
    for length in sorted({length for column in cells for length in column}):
        yield "x".join(map(str, length)), [column.get(length) for column in cells]


def token_table(rows: Sequence[SequenceRow]) -> Table:
    """All metrics of a task on tokens: a line for every row of its evaluation."""
    names = ("before end", "too early", "too late", "content", "edit distance", "attention loss")
    lines = []
    for row in rows:
        values = (row.before_end, row.too_early, row.too_late, row.content, row.edit_distance)
        loss = "-" if row.attention_loss is None else f"{row.attention_loss:.2f}"
        numbers = [_cell(row), row.n, *(f"{v:.2f}" for v in values), loss]
        lines.append([row.set, row.length, *numbers])
    columns = ("set", "length", "exact match", "samples", *names)
    caption = "percent of outputs, 95 % intervals; edits and squared words on average"
    return Table(columns, lines, right=columns[1:], caption=caption)


def _size(row: Row) -> tuple[int, ...]:
    return (row.length, row.rows) if isinstance(row, GridRow) else (row.length,)


def _number(row: Row | None) -> str:
    """Never rounded up to 100: one wrong answer in 30,000 is a wrong answer."""
    return "-" if row is None else f"{math.floor(row.accuracy * 100 + 1e-6) / 100:.2f}"


def _cell(row: Row | None, with_n: bool = False) -> str:
    if row is None:
        return "-"
    samples = f" of {row.n}" if with_n else ""
    wide = row.high - row.low >= SAYS or 0 < row.accuracy < 100
    return f"{_number(row)}{samples}" + (f"\n[{row.low:.1f}, {row.high:.1f}]" if wide else "")
