"""Tables on the terminal, which fit it: what is too wide goes on in a further table below."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions
from rich.table import Table
from rich.text import Text

from abc_calib.evaluation import GridRow, Row, SequenceRow
from abc_calib.text import as_latex, visible

SAYS = 1.0
"""An interval of so many points or more says something beside its number."""


@dataclass(frozen=True)
class Fitting:
    """Cells as one table, or where that is too wide as several, each with the first ``keys``.

    None is an empty cell; columns of ``right`` are aligned there.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    keys: int = 1
    right: Collection[str] = ()
    title: str = ""
    caption: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
        parts = list(self.parts(options.max_width))
        for number, part in enumerate(parts):
            if number:
                yield ""
            yield self._table(
                part,
                self.title if not number else "",
                self.caption if number == len(parts) - 1 else "",
            )

    def parts(self, width: int) -> Iterator[list[int]]:
        """The columns of each table, by their numbers."""
        texts = [[_shown(row[i]) for row in self.rows] for i in range(len(self.columns))]
        sizes = [
            max(
                *(len(word) for word in visible(name).split() or [""]),
                *(len(line) for cell in cells for line in cell.split("\n") or [""]),
                1,
            )
            + 2  # between two columns
            for name, cells in zip(self.columns, texts, strict=True)
        ]
        first = sum(sizes[: self.keys])
        part: list[int] = []
        for number in range(self.keys, len(sizes)):
            if part and first + sum(sizes[i] for i in part) + sizes[number] > width:
                yield [*range(self.keys), *part]
                part = []
            part.append(number)
        yield [*range(min(self.keys, len(sizes))), *part]

    def _table(self, part: Sequence[int], title: str, caption: str) -> Table:
        table = Table(
            box=box.SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
            collapse_padding=True,
            title=Text(title) if title else None,
            title_justify="left",
            caption=Text(caption) if caption else None,
            caption_justify="left",
        )
        for i in part:
            right: Any = "right" if self.columns[i] in self.right else "left"
            table.add_column(Text(visible(self.columns[i])), justify=right, overflow="fold")
        for row in self.rows:
            table.add_row(*(Text(_shown(row[i])) for i in part))
        return table


def _shown(cell: object) -> str:
    return "" if cell is None else "\n".join(map(visible, str(cell).split("\n")))


def accuracy_table(rows_by_name: Mapping[str, Sequence[Row]]) -> Fitting:
    """Exact match: a line for every length, a column for every named series.

    With the 95 % interval below a number where it is wide; the samples are a column of their own,
    unless series have others.
    """
    cells = [{_size(row): row for row in rows} for rows in rows_by_name.values()]
    lines = []
    for length in sorted({length for column in cells for length in column}):
        found = [column.get(length) for column in cells]
        counts = {row.n for row in found if row is not None}
        alike = len(counts) == 1
        lines.append(
            [
                "x".join(map(str, length)),
                *(_cell(row, with_n=not alike) for row in found),
                f"{counts.pop()}" if alike else None,
            ]
        )
    columns = ["length", *rows_by_name, "samples"]
    return Fitting(columns, lines, right=columns, caption="exact match in percent, 95 % intervals")


def accuracy_latex(rows_by_name: Mapping[str, Sequence[Row]], caption: str, label: str) -> str:
    """The same as a LaTeX table: numbers alone, one below the other."""
    cells = [{_size(row): row for row in rows} for rows in rows_by_name.values()]
    lines = [
        ["x".join(map(str, length)), *(_number(column.get(length)) for column in cells)]
        for length in sorted({length for column in cells for length in column})
    ]
    names = ["length", *rows_by_name]
    return as_latex(names, lines, caption=caption, label=label, sides="r" * len(names))


def token_table(rows: Sequence[SequenceRow]) -> Fitting:
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
    return Fitting(columns, lines, keys=2, right=columns[1:], caption=caption)


def _size(row: Row) -> tuple[int, ...]:
    return (row.length, row.rows) if isinstance(row, GridRow) else (row.length,)


def _number(row: Row | None) -> str:
    """Never rounded up to 100: one wrong answer in 30,000 is a wrong answer."""
    return "-" if row is None else f"{math.floor(row.accuracy * 100 + 1e-6) / 100:.2f}"


def _cell(row: Row | None, with_n: bool = False) -> str:
    if row is None:
        return "-"
    samples = f" of {row.n}" if with_n else ""
    said = row.high - row.low >= SAYS or 0 < row.accuracy < 100
    return f"{_number(row)}{samples}" + (f"\n[{row.low:.1f}, {row.high:.1f}]" if said else "")
