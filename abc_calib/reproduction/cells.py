"""The numbers of a target: the paper's and ours over seeds, one record per cell of a table."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from typing import Any

import pandas as pd

from abc_calib.reproduction.targets import CELL, PAPERS, Target

AGREES, BETTER, DIFFERS = "agreement", "improvement", "disagreement"
MARKS = {AGREES: "=", BETTER: "+", DIFFERS: "≠", "": ""}
MEAN = "mean"
"""Stands for a task where a paper has the mean over several."""


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

    def shown(self, value: float) -> str:
        """A value as text; a percentage is never rounded up to 100."""
        if self.lower_is_better:
            return f"{value:.2f}".rstrip("0").rstrip(".")
        return f"{math.floor(value * 100 + 1e-6) / 100:g}"

    def verdict(self, theirs: float, ours: float, proposed: bool, spread: float = 0.0) -> str:
        """Compare our median with the paper's number, of standard deviation ``spread``.

        Agreement within the tolerance; improvement where ours is better in a row that is
        ``proposed`` by the paper (a baseline that fails less is a different finding, not an
        improvement); else disagreement. Empty where one of both is missing.
        """
        if math.isnan(theirs) or math.isnan(ours):
            return ""
        if abs(ours - theirs) <= max(self.tolerance, self.share * theirs, spread):
            return AGREES
        better = (ours < theirs) == self.lower_is_better
        return BETTER if better and proposed else DIFFERS


_names = tomllib.loads((PAPERS / "names.toml").read_text("utf-8"))
TITLES: dict[str, str] = _names["tasks"]
"""The papers' names of tasks."""
MEASURES = {name: Measure(**fields) for name, fields in _names["measures"].items()}
"""By the column of an evaluation."""


def measured(target: Target, results: pd.DataFrame) -> pd.DataFrame:
    """Return the results of the stage that each row shows, one record per measure and seed."""
    names = ["task", "row", "length", "seed", "n", "stage"]
    table = results.reindex(columns=[*names, *target.measures])
    stages = {name: row.stage for name, row in target.all_rows.items()}
    table = table[table["stage"] == table["row"].map(stages)].drop(columns="stage")
    table = table.melt(names[:-1], target.measures, "measure").dropna(subset=["length", "value"])
    table = table.astype({"length": int, "value": float})
    if target.averaged is None:
        return table
    tasks = {task for task, _ in target.places}
    some = table[(table["measure"] == target.averaged) & table["task"].isin(tasks)]
    groups = some.groupby(["measure", "row", "length", "seed"])
    means = groups[["value", "n"]].mean()[groups["task"].nunique() == len(tasks)]
    return pd.concat([table, means.reset_index().assign(task=MEAN)])


def make_cells(target: Target, results: pd.DataFrame) -> pd.DataFrame:
    """Return a record for every cell of every measure, also for those without a result."""
    lengths = {place: [test.length for test in tests] for place, tests in target.test_lists.items()}
    first = next(iter(target.places))[0]
    means = {(MEAN, row): lengths[task, row] for task, row in lengths if task == first}
    keys = [
        (measure, task, row, length)
        for measure in target.measures
        for (task, row), columns in (
            (means if measure == target.averaged else {}) | lengths
        ).items()
        for length in columns
    ]
    groups = measured(target, results).groupby(CELL)
    ours = groups["value"].agg(["median", "mean", "min", "max"]).map(lambda x: round(float(x), 4))
    counts = groups.agg(seeds=("seed", "nunique"), n=("n", "min"))
    index = pd.MultiIndex.from_tuples(keys, names=CELL)
    paper = target.printed.reindex(index)
    cells = pd.DataFrame({"paper": paper["value"]}, index=index).join(ours)
    cells = cells.join(counts.reindex(index).fillna(0).astype(int))
    cells["verdict"] = [
        MEASURES[measure].verdict(theirs, median, target.all_rows[row].proposed, spread)
        for (measure, _, row, _), theirs, median, spread in zip(
            keys, cells["paper"], cells["median"], paper["spread"].fillna(0.0), strict=True
        )
    ]
    return cells.reset_index()


def cell_texts(cells: pd.DataFrame) -> list[str]:
    """Return each cell as ``100 / 99.8 (99.9) =``: median / worst seed (the paper) verdict."""
    texts = []
    records: Any = cells.itertuples()
    for cell in records:
        measure = MEASURES[cell.measure]
        paper = "" if pd.isna(cell.paper) else f" ({measure.shown(cell.paper)})"
        if pd.isna(cell.median):
            texts.append(f"–{paper}")
        else:
            worst = measure.shown(cell.max if measure.lower_is_better else cell.min)
            text = f"{measure.shown(cell.median)} / {worst}{paper} {MARKS[cell.verdict]}"
            texts.append(text.rstrip())
    return texts
