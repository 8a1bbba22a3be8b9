"""The tables of evaluations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from abc_calib.evaluation.metrics import MISTAKES
from abc_calib.runs.rows import ROWS, Row, size_of
from abc_calib.text import Table, counted


def accuracy_table(
    rows_by_name: Mapping[str, Sequence[Row]],
    caption: str = "Exact match in percent, by length",
    label: str = "",
    intervals: bool = True,
    title: str = "",
) -> Table:
    """Return exact match in percent: a line per length, a column per named series.

    ``intervals``: with a column for the 95 % interval of each, and following lengths with the same
    numbers in one line. The caption says how many samples a
    number is of.
    """
    cells = [{size_of(row): row for row in rows} for rows in rows_by_name.values()]
    sizes = {
        size_of(r): (r["length"], r.get(ROWS) or 0) for rows in rows_by_name.values() for r in rows
    }
    lines: list[list[object]] = []
    for size in sorted(sizes, key=sizes.__getitem__):
        lines.append([size])
        for row in (column.get(size) for column in cells):
            lines[-1].append("-" if row is None else _number(row))
            if intervals:
                lines[-1].append("-" if row is None else _interval(row))
    if intervals:
        lines = [*_folded(lines)]
    names = ["length"]
    for name in rows_by_name:
        names += [name, f"{name}, 95 % interval"] if intervals else [name]
    counts = {row["n"] for column in cells for row in column.values()}
    if any(row.get("set") == "carry" for rows in rows_by_name.values() for row in rows):
        caption = caption and f"{caption} (carry: problems with long carries)"
    samples = " to ".join(f"{n:,}" for n in sorted({min(counts), max(counts)})) if counts else "no"
    caption = caption and f"{caption}. {counted(samples, 'problems')} per length"
    return Table(names, lines, right=names, title=title, caption=caption, label=label)


def _folded(lines: Sequence[list[object]]) -> Iterator[list[object]]:
    """Lines of lengths that follow each other and have the same numbers as one: ``5 to 50``."""

    def kind(place: tuple[int, list[object]]) -> object:
        number, (size, *cells) = place
        return (int(str(size)) - number if str(size).isdigit() else size, cells)

    for _, group in groupby(enumerate(lines), kind):
        same = [line for _, line in group]
        (first, *cells), (last, *_) = same[0], same[-1]
        yield [first if first == last else f"{first} to {last}", *cells]


def token_table(rows: Sequence[Row], title: str = "") -> Table:
    """Return all metrics of a task on tokens: a line for every row of its evaluation."""
    names = ("before end", "too early", "too late", "content", "edit distance", "attention loss")
    lines = []
    for row in rows:
        values = [row[name] for name in ("before_end", *MISTAKES, "edit_distance")]
        loss = "-" if row["attention_loss"] is None else f"{row['attention_loss']:.2f}"
        numbers = [_number(row), _interval(row), row["n"]]
        lines.append([row["set"], row["length"], *numbers, *(f"{v:.2f}" for v in values), loss])
    columns = ("set", "length", "exact match", "95 % interval", "samples", *names)
    caption = "percent of outputs; edits and squared words on average"
    return Table(columns, lines, right=columns[1:], title=title, caption=caption)


def _number(row: Row) -> str:
    """Never rounded up to 100: one wrong answer in 30,000 is a wrong answer."""
    return f"{math.floor(row['accuracy'] * 100 + 1e-6) / 100:.2f}"


def _interval(row: Row) -> str:
    if row["low"] == row["high"]:
        return f"all {row['n']:,}"
    return f"[{row['low']:.2f}, {row['high']:.2f}]"
