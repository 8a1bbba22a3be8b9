"""The exact match of runs against length, as ``abc eval`` has measured it: rows and one figure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from abc_calib.config import DrawOptions, build
from abc_calib.errors import AbcError, UsageError
from abc_calib.reporting.curves import Point, accuracy_curve
from abc_calib.reporting.style import font, save_figures
from abc_calib.reporting.tables import accuracy_table
from abc_calib.runs import Run
from abc_calib.runs.rows import Row, read_rows
from abc_calib.runs.run import STAGES
from abc_calib.text import Table, counted, names

STEM = "curves"
RIGHT = 99.0
"""Percent of problems from which a length is solved."""


def accuracy(run: Run) -> list[Row]:
    """Return the rows of a run by length, with their ``size`` in words and their ``series``.

    Random problems come before the other sets of a length.
    """
    rows = read_rows(run.path / "eval.csv")
    rows.sort(key=lambda row: (row["length"], row["set"] != "random"))
    for row in rows:
        length, high = row["length"], row.get("rows")
        row["size"] = f"{length:,}" if high is None else f"{length}x{high}"
        row["series"] = row["set"] + ("" if high in (None, length) else f", {high} rows")
    return rows


def parent_of(run: Run) -> Run | None:
    """Return the run that it came from; None where there is none, or it is gone."""
    try:
        return Run.open(run.config.parent) if run.config.parent else None
    except AbcError:
        return None


def about(run: Run) -> dict[str, Any]:
    """Return what tells a run from others: task, position scheme, stage, seed and folder.

    The scheme of a calibrated run is that of its first training, None where that is gone.
    """
    config, parent = run.config, parent_of(run)
    first = parent.config if parent else config if config.stage == "vanilla" else None
    return {
        "task": config.task + ("" if config.base in (None, 10) else f" in base {config.base}"),
        "scheme": first.model.label if first else None,
        "stage": STAGES[config.stage],
        "seed": f"seed {(first or config).train.seed}",
        "name": run.path.resolve().name,
    }


def labels_of(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a name for each run, from what ``about`` says of it: the parts in which they differ.

    Runs that are alike in all of these also get the name of their folder, and a run without any of
    them has that name alone.
    """
    parts = ["task", "scheme", "stage", "seed"]
    if len({(run["task"], run["stage"]) for run in runs}) == len(runs):
        parts = ["task", "stage"]
    differ = [part for part in parts if len({run[part] for run in runs}) > 1] or ["stage"]
    labels = [", ".join(run[part] for part in differ if run[part]) or run["name"] for run in runs]
    return [
        f"{label}, {run['name']}" if labels.count(label) > 1 else label
        for label, run in zip(labels, runs, strict=True)
    ]


def verdict(rows: Sequence[Mapping[str, Any]], length: int, unit: str) -> str:
    """Say how far a run gets that was trained up to a length; empty where nothing is measured."""
    rows = [row for row in rows if row["set"] == "random"]
    if not rows:
        return ""
    wrong = [row for row in rows if row["accuracy"] < RIGHT]
    row = wrong[0] if wrong else rows[-1]
    text = f"right on {row['correct']:,} of {row['n']:,} problems of {row['size']} {unit}"
    if not wrong or row["length"] <= length:
        return text
    good = max((x["length"] for x in rows if x["length"] < row["length"]), default=length)
    return f"fails beyond {good} {unit}: {text}"


def series_of(rows_by_name: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
    """Return the rows of runs by series, named by run and by test set where a run has several.

    Of an unnamed run (``""``) by test set alone.
    """
    series: dict[str, list[Row]] = {}
    for name, rows in rows_by_name.items():
        several = not name or len({row["series"] for row in rows}) > 1
        for row in rows:
            label = ", ".join(filter(None, [name, row["series"] if several else ""]))
            series.setdefault(label, []).append(row)
    return series


def accuracy_series(rows_by_name: Mapping[str, Sequence[Row]]) -> dict[str, list[Point]]:
    """Return the same as the points of curves; test sets of a run with equal points are one."""
    curves: dict[tuple[str, tuple[Point, ...]], str] = {}
    for label, rows in series_of(rows_by_name).items():
        points = tuple((row["length"], row["accuracy"], row["low"], row["high"]) for row in rows)
        name, _, kind = label.rpartition(", ")
        same = curves.get((name, points))
        curves[name, points] = f"{same} and {kind}" if same else label
    return {label: [*points] for (_, points), label in curves.items()}


def measured(
    runs: Sequence[Run | Path | str], labels: Sequence[str] | None = None
) -> tuple[list[Run], dict[str, list[Row]]]:
    """Return the runs, and the rows of each under its label.

    ``labels``: one for each run; by default its task, scheme, stage and seed, where they differ.
    Raises ``UsageError`` for labels that are not one for each run, for a run that was not
    evaluated, and for runs whose lengths have different units.
    """
    opened = [Run.open(run) for run in ([runs] if isinstance(runs, str | Path) else runs)]
    labels = labels_of([*map(about, opened)]) if labels is None else names(labels)
    if not opened:
        raise UsageError("no run is given: give at least one")
    if len(labels) != len(opened) or len({*labels}) < len(labels):
        raise UsageError(
            f"labels {', '.join(labels) or 'none'}, {counted(len(opened), 'runs')}: give one label "
            "for each run, in their order, no two the same"
        )
    units = dict.fromkeys(run.task.unit for run in opened)
    if len(units) > 1:
        raise UsageError(f"the lengths are {' and '.join(units)}: draw these runs apart")
    rows = {label: accuracy(run) for label, run in zip(labels, opened, strict=True)}
    for run, measures in zip(opened, rows.values(), strict=True):
        if not measures:
            raise UsageError(f"{run} was not evaluated: abc eval {shlex.quote(str(run))}")
    return opened, rows


def curves(
    runs: Sequence[Run | Path | str],
    out: Path | str,
    *,
    labels: Sequence[str] | None = None,
    **keywords: Any,
) -> list[Path]:
    """Draw the exact match of runs against length in one figure; returns the files written.

    ``labels``: as of ``measured``. ``keywords``: ``format``, ``width`` and ``font``. A run with
    several test sets has a curve for each. Raises ``UsageError`` as ``measured`` does.
    """
    look = build(DrawOptions, **keywords)
    opened, rows_by_name = measured(runs, labels)
    counts = sorted({row["n"] for rows in rows_by_name.values() for row in rows})
    problems = " to ".join(f"{n:,}" for n in sorted({counts[0], counts[-1]}))
    with font(look.font):
        figure = accuracy_curve(
            accuracy_series(rows_by_name),
            title="",
            train_length=min(run.config.train.length for run in opened),
            unit=f"{opened[0].task.unit}, {problems} problems each",
            width=look.inches,
        )
        if not look.title:
            figure.axes[0].set_xlabel(opened[0].task.unit)
        return save_figures(figure, Path(out) / STEM, look.format)


def table(runs: Sequence[Run | Path | str], labels: Sequence[str] | None = None) -> Table:
    """Return exact match by length, a column for each run; ``labels``: as of ``measured``."""
    opened, rows_by_name = measured(runs, labels)
    trained = dict.fromkeys(
        f"{about(run)['task']}, trained on at most {run.config.train.length} {run.task.unit}"
        for run in opened
    )
    caption = f"Exact match in percent by length: {'; '.join(trained)}"
    label = "tab:" + "-".join(dict.fromkeys(run.config.task for run in opened))
    return accuracy_table(series_of(rows_by_name), caption, label, intervals=False)
