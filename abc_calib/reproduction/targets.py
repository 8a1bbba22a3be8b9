"""What can be reproduced: tables, figures and questions of papers, read from ``papers/*.toml``.

A file has defaults of its targets, ``[rows]`` that they choose from and ``[targets.NAME]``; the
numbers that a paper prints are in a CSV file next to it.
"""

from __future__ import annotations

import tomllib
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from abc_calib.config import Options
from abc_calib.errors import UsageError
from abc_calib.sweeps import Job, Test
from tasks.base import unknown

PAPERS = Path(__file__).parent / "papers"
CELL = ["measure", "task", "row", "length"]
"""The columns that name a cell of a table."""


class Row(Options):
    """A row of a table: how it is printed, and how its model is made.

    ``proposed``: by the paper, which sets the others against it. ``tasks``: those that it is a row
    of, by default all.
    """

    label: str = ""
    options: dict[str, Any] = {}
    calibrate: dict[str, Any] | None = None
    proposed: bool = True
    preset: str = "default"
    tasks: tuple[str, ...] = ()

    @property
    def stage(self) -> str:
        """The stage of its results; a calibration also has those of its first training."""
        return "vanilla" if self.calibrate is None else "calibrated"


class Rule(Options):
    """Seeds and tests of some rows and tasks, by default all; a later rule wins.

    ``at``: samples at some of the ``lengths`` of calibrated rows, where they are not ``samples``.
    """

    tasks: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    seeds: int | None = None
    lengths: tuple[int, ...] | None = None
    samples: int | None = None
    at: dict[int, int] | None = None
    set: str | None = None


class Entry(NamedTuple):
    """One job of a reproduction, and where its results belong."""

    task: str
    row: str
    seed: int
    job: Job


class Target(Options):
    """A table, figure or list of questions.

    ``models``: names of rows by task, or every row of ``rows`` on every task of ``tasks``.
    ``averaged``: a measure of which the paper has only the mean over the tasks; ``drawn``:
    measures with a figure for each task; ``head`` names the column of the models.
    """

    name: str
    title: str
    all_rows: dict[str, Row]
    tasks: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    models: dict[str, tuple[str, ...]] = {}
    tests: tuple[Rule, ...] = ()
    numbers: str = ""
    head: str = "model"
    measures: tuple[str, ...] = ("accuracy",)
    averaged: str | None = None
    drawn: tuple[str, ...] = ()
    unit: str = ""
    notes: tuple[str, ...] = ()

    @cached_property
    def places(self) -> dict[tuple[str, str], Row]:
        """What is trained, by task and name of the row."""
        chosen = {name: self.all_rows[name] for name in self.rows} or self.all_rows
        models = self.models or {
            task: tuple(n for n, row in chosen.items() if task in (row.tasks or (task,)))
            for task in self.tasks
        }
        return {(task, row): self.all_rows[row] for task, rows in models.items() for row in rows}

    @cached_property
    def printed(self) -> pd.DataFrame:
        """The paper's numbers by cell, and the standard deviation of each; 0 where it has none."""
        if not self.numbers:
            return pd.DataFrame(columns=[*CELL, "value", "spread"]).set_index(CELL)
        return pd.read_csv(PAPERS / self.numbers).fillna({"spread": 0.0}).set_index(CELL)

    def rule(self, task: str, row: str) -> Rule:
        """All rules that hold for a row of a task, as one."""
        merged: dict[str, Any] = {}
        for rule in self.tests:
            if task in (rule.tasks or (task,)) and row in (rule.rows or (row,)):
                merged |= rule.model_dump(exclude={"tasks", "rows"}, exclude_none=True)
        return Rule(**merged)

    @cached_property
    def test_lists(self) -> dict[tuple[str, str], tuple[Test, ...]]:
        """What each model is tested on."""
        lists = {}
        for place, row in self.places.items():
            rule = self.rule(*place)
            at = {} if row.calibrate is None else rule.at or {}
            lists[place] = tuple(
                Test(set=rule.set or "random", length=x, n=at.get(x, rule.samples or 1000))
                for x in rule.lengths or ()
            )
        return lists

    def seed_counts(self, seeds: int | None = None) -> dict[tuple[str, str], int]:
        """The number of seeds by task and row: ``seeds``, or the default of each."""
        return {place: seeds or self.rule(*place).seeds or 1 for place in self.places}

    def entries(self, seeds: int | None = None) -> list[Entry]:
        """Its jobs, all rows of seed 0 first."""
        entries = []
        for place, count in self.seed_counts(seeds).items():
            row, tests = self.places[place], self.test_lists[place]
            how: dict[str, Any] = {"preset": row.preset, "calibrate": row.calibrate}
            for seed in range(count):
                options = {**row.options, "seed": seed}
                job = Job(task=place[0], options=options, tests=tests, **how)
                entries.append(Entry(*place, seed, job))
        return sorted(entries, key=lambda entry: entry.seed)


def read_targets(text: str) -> dict[str, Target]:
    """Read the targets of a file's text, by name; ``ValueError`` for an unknown key.

    A row that is ``like`` an earlier one has its keys, unless it says otherwise; what it does not
    say of a Transformer that is trained by the default recipe is in the section ``transformers``.
    """
    data = tomllib.loads(text)
    made_with = data.pop("transformers", {})
    keys: dict[str, dict[str, Any]] = {}
    for name, row in data.pop("rows").items():
        keys[name] = {"label": name, **keys.get(row.pop("like", ""), {}), **row}
    rows = {name: Row(**_filled(row, made_with)) for name, row in keys.items()}
    targets = {}
    for name, section in data.pop("targets").items():
        tests = [Rule(**rule) for rule in (*data.get("tests", ()), *section.get("tests", ()))]
        targets[name] = Target(name=name, all_rows=rows, **{**data, **section, "tests": tests})
    return targets


def _filled(row: dict[str, Any], made_with: dict[str, Any]) -> dict[str, Any]:
    """A row's keys with the options of ``made_with``, where they are of its kind."""
    if row.get("preset") or row.get("options", {}).get("model") == "gru":
        return row
    parts = ("options", "calibrate") if "calibrate" in row else ("options",)
    return row | {part: made_with.get(part, {}) | row.get(part, {}) for part in parts}


TARGETS: dict[str, Target] = {}
for _paper in (
    "duan_shi",
    "scaffolding",
    "published",
    "ablations",
    "reviewers",
    "attenders",
    "rivals",
):
    TARGETS |= read_targets((PAPERS / f"{_paper}.toml").read_text("utf-8"))


OTHERS = ("chomsky", "figure3", "figure4", "figure7", "figure8")
"""What ``abc reproduce`` makes besides tables of rows: ``chomsky.py`` and ``pipeline.DRAWN``."""
NAMES = (*TARGETS, *OTHERS)


def get_target(name: str) -> Target:
    """Return the target of that name; ``UsageError`` names the known ones."""
    if name not in TARGETS:
        raise UsageError(unknown("target", name, NAMES))
    return TARGETS[name]
