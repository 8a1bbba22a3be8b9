"""One number of a table: the paper's and ours over seeds, and how they compare."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

SUCCEEDS = 99.0
"""Percent from which on a model interpolates or extrapolates."""

AGREES, BETTER, DIFFERS = "agreement", "improvement", "disagreement"
MARKS = {AGREES: "=", BETTER: "+", DIFFERS: "≠"}

MEAN = "mean"
"""Stands for a task where a paper has the mean over several."""

Place = tuple[str, str, str, int]
"""Measure, task, row and length of a cell."""


@dataclass(frozen=True)
class Measure:
    """A metric: ours agrees with a paper's number within ``tolerance`` or ``share`` of it.

    ``axis``: its name in a figure.
    """

    label: str
    tolerance: float = 1.0
    share: float = 0.0
    lower_is_better: bool = False
    axis: str = "exact match (%)"

    @property
    def percent(self) -> bool:
        return not self.lower_is_better

    def shown(self, value: float | None) -> str:
        """A value as text."""
        return shown(value) if self.percent else rounded(value)


NAMES = tomllib.loads((Path(__file__).parent / "papers" / "names.toml").read_text("utf-8"))
TITLES: dict[str, str] = NAMES["tasks"]
"""The papers' names of tasks."""
MEASURES = {name: Measure(**about) for name, about in NAMES["measures"].items()}
"""By the column of an evaluation."""
ACCURACY = MEASURES["accuracy"]


@dataclass(frozen=True)
class Cell:
    """One number of a table: the paper's, and ours over seeds, of ``n`` samples each."""

    measure: str
    task: str
    row: str
    length: int
    paper: float | None = None
    median: float | None = None
    mean: float | None = None
    min: float | None = None
    max: float | None = None
    seeds: int = 0
    n: int = 0
    verdict: str = ""

    @property
    def text(self) -> str:
        """``100 / 99.8 (99.9) =``: median / worst seed (the paper) verdict."""
        measure = MEASURES[self.measure]
        theirs = "" if self.paper is None else f" ({measure.shown(self.paper)})"
        if self.median is None:
            return f"–{theirs}"
        worst = self.max if measure.lower_is_better else self.min
        mark = f" {MARKS[self.verdict]}" if self.verdict else ""
        return f"{measure.shown(self.median)} / {measure.shown(worst)}{theirs}{mark}"


def make_cell(
    place: Place,
    found: pd.DataFrame | None,
    theirs: float | None = None,
    own: bool = True,
    spread: float = 0.0,
) -> Cell:
    """The cell of a place from the results of its seeds, if there are any."""
    if found is None or found.empty:
        return Cell(*place, paper=theirs)
    values = found[place[0]].astype(float)
    median = round(float(values.median()), 4)
    return Cell(
        *place,
        paper=theirs,
        median=median,
        mean=round(float(values.mean()), 4),
        min=round(float(values.min()), 4),
        max=round(float(values.max()), 4),
        seeds=int(found["seed"].nunique()),
        n=int(found["n"].min()),
        verdict=verdict(theirs, median, own, MEASURES[place[0]], spread),
    )


def verdict(
    theirs: float | None,
    ours: float | None,
    own: bool,
    measure: Measure = ACCURACY,
    spread: float = 0.0,
) -> str:
    """How our median compares with the paper's number, of standard deviation ``spread``.

    Agreement within the tolerance of ``measure``; improvement where ours is better in a row that
    the paper proposes, ``own`` (its baselines failing less is a different finding, not an
    improvement); else disagreement. Empty where one of both is missing.
    """
    if theirs is None or ours is None:
        return ""
    if abs(ours - theirs) <= max(measure.tolerance, measure.share * theirs, spread):
        return AGREES
    better = (ours < theirs) == measure.lower_is_better
    return BETTER if better and own else DIFFERS


def shown(percentage: float | None) -> str:
    """A percentage, never rounded up to 100."""
    return "–" if percentage is None else f"{math.floor(percentage * 100 + 1e-6) / 100:g}"


def rounded(value: float | None) -> str:
    """A distance or loss, or any number in a sentence."""
    return "–" if value is None else f"{value:.2f}".rstrip("0").rstrip(".")
