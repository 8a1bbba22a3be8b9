"""Tables on the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rich.table import Table
from rich.text import Text


class Measured(Protocol):
    """What a table shows of one row of an evaluation, such as a ``Row``."""

    @property
    def length(self) -> int:
        """Digits of an operand."""

    @property
    def accuracy(self) -> float:
        """Exact match in percent."""

    @property
    def n(self) -> int:
        """How many samples were tried."""

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval, in percent."""

    @property
    def high(self) -> float:
        """Upper end of the 95 % interval, in percent."""


def accuracy_table(rows_by_name: Mapping[str, Sequence[Measured]]) -> Table:
    """Exact match: a line for every length, a column for every named series.

    A cell reads ``99.80 % [99.28, 99.95] of 1000``: the figure, its 95 % interval, the samples.
    """
    table = Table(caption="exact match, 95 % interval, samples", caption_justify="left")
    table.add_column("length", justify="right")
    for name in rows_by_name:
        table.add_column(Text(name), justify="right")
    cells = [{row.length: row for row in rows} for rows in rows_by_name.values()]
    for length in sorted({length for column in cells for length in column}):
        table.add_row(str(length), *(Text(_cell(column.get(length))) for column in cells))
    return table


def token_table(rows: Sequence[Any]) -> Table:
    """All metrics of a task on tokens: a line for every row of its evaluation.

    ``rows`` are ``abc_calib.evaluation.exact.TokenRow``.
    """
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


def _cell(row: Measured | None) -> str:
    if row is None:
        return "-"
    # never rounded up to 100: one wrong answer in 30,000 is a wrong answer
    shown = math.floor(row.accuracy * 100 + 1e-6) / 100
    return f"{shown:.2f} % [{row.low:.2f}, {row.high:.2f}] of {row.n}"
