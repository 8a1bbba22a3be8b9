"""The charts of a page, as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from abc_calib.errors import shortened
from abc_calib.reporting.curves import accuracy_curve, history_curve
from abc_calib.reporting.style import COLUMN_WIDTH, TEXT_WIDTH, as_svg, font


def accuracy_chart(runs: Sequence[Mapping[str, Any]]) -> str:
    """Exact match of some runs by length; empty where nothing is measured."""
    series: dict[str, list[tuple[int, float, float, float]]] = {}
    for run in runs:
        for row in run["accuracy"]:
            alone = len(runs) == 1
            name = row["series"] if alone else f"{shortened(run['name'], 40)}, {row['series']}"
            point = (row["length"], row["accuracy"], row["low"], row["high"])
            series.setdefault(name, []).append(point)
    if not series:
        return ""
    with font("sans"):
        longest, unit = min(run["length"] for run in runs), runs[0]["unit"]
        width = TEXT_WIDTH if len(runs) > 1 else COLUMN_WIDTH
        return as_svg(
            accuracy_curve(series, title="", train_length=longest, unit=unit, width=width)
        )


def history_chart(history: Sequence[Mapping[str, Any]]) -> str:
    """Held-out accuracy by step; empty where there is nothing to draw."""
    points = [entry for entry in history if entry["validation_accuracy"] is not None]
    if len(points) < 2:
        return ""
    with font("sans"):
        return as_svg(history_curve(points))


def together(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The charts of several runs, one for each unit of length."""
    units = dict.fromkeys(run["unit"] for run in runs)
    groups = ([run for run in runs if run["unit"] == unit] for unit in units)
    return list(filter(None, map(accuracy_chart, groups)))
