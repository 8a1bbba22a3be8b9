"""One figure of several runs: exact match against length, as ``abc eval`` has measured it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from abc_calib.config import DrawOptions, build
from abc_calib.errors import UsageError
from abc_calib.reporting.curves import Point, accuracy_curve
from abc_calib.reporting.page.judged import accuracy
from abc_calib.reporting.style import font, save_figures
from abc_calib.runs import Run
from abc_calib.text import names

STEM = "curves"


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
    with font(look.font):
        figure = figure_of(opened, None if labels is None else names(labels), look.inches)
        return save_figures(figure, Path(out) / STEM, look.format)


def figure_of(runs: Sequence[Run], labels: Sequence[str] | None, width: float) -> Figure:
    """The figure, its curves named by ``labels``."""
    called = [run.path.name for run in runs] if labels is None else labels
    if not runs or len(called) != len(runs) or len({*called}) < len(called):
        raise UsageError(
            f"{len(called)} labels of {len(runs)} runs: give one for each run, in their order, no "
            "two the same"
        )
    units = dict.fromkeys(run.task.unit for run in runs)
    if len(units) > 1:
        raise UsageError(f"the lengths are {' and '.join(units)}: draw these runs apart")
    series: dict[str, list[Point]] = {}
    for run, name in zip(runs, called, strict=True):
        rows = accuracy(run)
        if not rows:
            raise UsageError(f"{run} was not evaluated: abc eval {shlex.quote(str(run))}")
        alone = len({row["series"] for row in rows}) == 1
        for row in rows:
            point = row["length"], row["accuracy"], row["low"], row["high"]
            series.setdefault(name if alone else f"{name}, {row['series']}", []).append(point)
    length, unit = min(run.config.train.length for run in runs), next(iter(units))
    return accuracy_curve(series, title="", train_length=length, unit=unit, width=width)
