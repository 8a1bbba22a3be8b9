"""From the results of every seed to the cells of a table, and how they compare with the paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from abc_calib.reproduction import paper
from abc_calib.reproduction.targets import ROWS, Target
from tasks import get_task

TOLERANCE = 1.0
"""Points of accuracy within which our median and the paper's number agree."""
SUCCEEDS = 99.0
"""Percent from which on a model interpolates or extrapolates (table 2)."""

AGREES, BETTER, DIFFERS = "agreement", "improvement", "disagreement"
MARKS = {AGREES: "=", BETTER: "+", DIFFERS: "≠"}


@dataclass(frozen=True)
class Cell:
    """One number of a table: the paper's, and ours over seeds, of ``n`` samples each.

    ``verdict``: agreement within ``TOLERANCE`` points of our median; improvement where we are
    above it in a row that the paper proposes (its baselines failing less is a different
    finding, not an improvement); else disagreement. Empty where one of both is missing.
    """

    task: str
    row: str
    length: int
    paper: float | None
    median: float | None
    min: float | None
    max: float | None
    seeds: int
    n: int
    verdict: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def cells(target: Target, results: pd.DataFrame) -> list[Cell]:
    """Every cell of a table, also those without a result."""
    return [
        cell(results, task, row, length)
        for task, rows in target.rows.items()
        for row in rows
        for length in target.lengths_of(task)
    ]


def cell(results: pd.DataFrame, task: str, row: str, length: int) -> Cell:
    """One cell from the results of every seed."""
    stage = "vanilla" if ROWS[row].calibrate is None else "calibrated"
    here = {"task": task, "row": row, "length": length, "stage": stage}
    mine = results[(results[list(here)] == pd.Series(here)).all(axis=1)]
    theirs = paper.number(task, row, length)
    if mine.empty:
        return Cell(task, row, length, theirs, None, None, None, 0, 0)
    found = mine["accuracy"]
    median = round(float(found.median()), 4)
    return Cell(
        task=task,
        row=row,
        length=length,
        paper=theirs,
        median=median,
        min=float(found.min()),
        max=float(found.max()),
        seeds=int(mine["seed"].nunique()),
        n=int(mine["n"].min()),
        verdict=verdict(theirs, median, ROWS[row].own),
    )


def verdict(theirs: float | None, ours: float | None, own: bool) -> str:
    """How our median compares with the paper's number; ``own``: in a row that it proposes."""
    if theirs is None or ours is None:
        return ""
    if abs(ours - theirs) <= TOLERANCE:
        return AGREES
    return BETTER if own and ours > theirs else DIFFERS


@dataclass(frozen=True)
class Ability:
    """A cell of table 2: does the vanilla model interpolate, or extrapolate, in every seed?"""

    cell: Cell
    column: str
    paper_answer: str
    answer: str
    verdict: str

    def as_dict(self) -> dict[str, Any]:
        mine = {k: v for k, v in asdict(self).items() if k != "cell"}
        return {**self.cell.as_dict(), **mine}


def abilities(target: Target, results: pd.DataFrame) -> list[Ability]:
    """Table 2: accuracy at the longest training length, and at the longest of all."""
    found = []
    for task, (row,) in target.rows.items():
        lengths = {
            "interpolation": get_task(task).train_length,
            "extrapolation": max(target.lengths),
        }
        for (column, length), theirs in zip(lengths.items(), paper.TABLE2[task], strict=True):
            one = cell(results, task, row, length)
            ours = None if one.min is None else one.min >= SUCCEEDS
            said = "" if ours is None else AGREES if ours == theirs else BETTER if ours else DIFFERS
            found.append(Ability(one, column, yes(theirs), yes(ours), said))
    return found


def yes(answer: bool | None) -> str:
    """The answer as a word."""
    return "" if answer is None else "yes" if answer else "no"


def shown(accuracy: float | None) -> str:
    """A percentage, never rounded up to 100."""
    if accuracy is None:
        return "–"
    return f"{math.floor(accuracy * 100 + 1e-6) / 100:g}"


def missing(found: Sequence[Cell], seeds: dict[tuple[str, str], int]) -> list[str]:
    """The rows that lack seeds or lengths, one line each."""
    fewest: dict[tuple[str, str], int] = {}
    for one in found:
        name = (one.task, one.row)
        fewest[name] = min(fewest.get(name, one.seeds), one.seeds)
    return [
        f"{task} {row}: {have} of {seeds[task, row]} seeds"
        for (task, row), have in fewest.items()
        if have < seeds[task, row]
    ]
