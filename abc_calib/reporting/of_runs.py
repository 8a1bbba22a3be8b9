"""The exact match of runs against length, as ``abc eval`` has measured it: rows and one figure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from abc_calib.config import DrawOptions, build
from abc_calib.errors import UsageError
from abc_calib.reporting.curves import Point, accuracy_curve
from abc_calib.reporting.style import font, save_figures
from abc_calib.runs import Run
from abc_calib.runs.rows import read_rows
from abc_calib.text import names

STEM = "curves"


def accuracy(run: Run) -> list[dict[str, Any]]:
    """Return the rows of a run by length, with their ``size`` in words and their ``series``."""
    rows = sorted(read_rows(run.path / "eval.csv"), key=lambda row: row["length"])
    for row in rows:
        length, high = row["length"], row.get("rows")
        row["size"] = f"{length:,}" if high is None else f"{length}x{high}"
        row["series"] = row["set"] + ("" if high in (None, length) else f", {high} rows")
    return rows


def accuracy_series(
    rows_by_name: Mapping[str, Sequence[Mapping[str, Any]]],
) -> dict[str, list[Point]]:
    """Return the curves of runs, named by run and by test set where a run has several.

    Of an unnamed run (``""``) by test set alone.
    """
    series: dict[str, list[Point]] = {}
    for name, rows in rows_by_name.items():
        several = not name or len({row["series"] for row in rows}) > 1
        for row in rows:
            label = ", ".join(filter(None, [name, row["series"] if several else ""]))
            point = row["length"], row["accuracy"], row["low"], row["high"]
            series.setdefault(label, []).append(point)
    return series


def curves(
    runs: Sequence[Run | Path | str],
    out: Path | str,
    *,
    labels: Sequence[str] | None = None,
    **keywords: Any,
) -> list[Path]:
    """Draw the exact match of runs against length in one figure; returns the files written.

    ``labels``: the names of the runs in the figure, in their order; by default those of their
    folders. ``keywords``: ``format``, ``width`` and ``font``. A run with several test sets has a
    curve for each. Raises ``UsageError`` for labels that are not one for each run, for a run that
    was not evaluated, and for runs whose lengths have different units.
    """
    look = build(DrawOptions, **keywords)
    opened = [Run.open(run) for run in runs]
    labels = [run.path.name for run in opened] if labels is None else names(labels)
    if not opened or len(labels) != len(opened) or len({*labels}) < len(labels):
        raise UsageError(
            f"{len(labels)} labels of {len(opened)} runs: give one for each run, in their order, "
            "no two the same"
        )
    units = dict.fromkeys(run.task.unit for run in opened)
    if len(units) > 1:
        raise UsageError(f"the lengths are {' and '.join(units)}: draw these runs apart")
    rows_by_name = {name: accuracy(run) for name, run in zip(labels, opened, strict=True)}
    for run, rows in zip(opened, rows_by_name.values(), strict=True):
        if not rows:
            raise UsageError(f"{run} was not evaluated: abc eval {shlex.quote(str(run))}")
    with font(look.font):
        figure = accuracy_curve(
            accuracy_series(rows_by_name),
            title="",
            train_length=min(run.config.train.length for run in opened),
            unit=next(iter(units)),
            width=look.inches,
        )
        return save_figures(figure, Path(out) / STEM, look.format)
