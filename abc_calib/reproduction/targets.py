"""What can be reproduced: tables, figures and questions of papers, read from ``papers/*.toml``.

A file has defaults of its targets, ``[rows]`` that they choose from and ``[targets.NAME]``; the
numbers that a paper prints are in a CSV file next to it.
"""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict

from abc_calib.errors import UsageError
from abc_calib.reproduction.cells import Place
from abc_calib.sweeps import Job, Test
from tasks.base import unknown

PAPERS = Path(__file__).parent / "papers"


class Data(BaseModel):
    """Base of what stands in a file: nothing else may stand there."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Row(Data):
    """A row of a table: how it is printed, and how its model is made.

    ``own`` marks what a paper proposes, against which it sets the others; ``preset`` its own,
    whatever the others are trained with; ``tasks`` those that it is a row of, by default all;
    ``published`` what its own paper reports, by task; ``panel`` and ``short`` place it in a figure.
    """

    label: str = ""
    options: dict[str, Any] = {}
    calibrate: dict[str, Any] | None = None
    own: bool = True
    preset: str = ""
    tasks: tuple[str, ...] = ()
    published: dict[str, str] = {}
    panel: str = ""
    short: str = ""

    @property
    def stage(self) -> str:
        """Of its results; a calibration also has those of its first training."""
        return "vanilla" if self.calibrate is None else "calibrated"


class Rule(Data):
    """Seeds and tests of some rows and tasks, by default all; a later rule wins.

    ``at``: samples at some of the ``lengths``, where they are not ``samples``.
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


class Target(Data):
    """A table, figure or list of questions.

    ``models``: names of rows by task, or every row of ``rows`` on every task of ``tasks``.
    ``averaged``: a measure of which the paper has only the mean over the tasks; ``drawn``:
    measures with a figure for each task; ``head`` names the column of the models, ``columns`` are
    those of the records, ``layout`` arranges the tables (``layouts.LAYOUTS``). A note in braces is
    one that is made of the results (``remarks.REMARKS``). ``answers``: does a task's model
    interpolate, and extrapolate?
    """

    name: str
    title: str
    known: dict[str, Row]
    tasks: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    models: dict[str, tuple[str, ...]] = {}
    tests: tuple[Rule, ...] = ()
    numbers: str = ""
    head: str = "model"
    columns: tuple[str, ...] = ()
    layout: str = "lengths"
    measures: tuple[str, ...] = ("accuracy",)
    averaged: str | None = None
    drawn: tuple[str, ...] = ()
    unit: str = ""
    notes: tuple[str, ...] = ()
    answers: dict[str, tuple[bool, bool]] = {}

    @cached_property
    def places(self) -> dict[tuple[str, str], Row]:
        """What is trained, by task and name of the row."""
        chosen = {name: self.known[name] for name in self.rows} or self.known
        models = self.models or {
            task: tuple(n for n, row in chosen.items() if task in (row.tasks or (task,)))
            for task in self.tasks
        }
        return {(task, row): self.known[row] for task, rows in models.items() for row in rows}

    @cached_property
    def printed(self) -> Mapping[Place, tuple[float, float]]:
        """The paper's numbers, and the standard deviation of each; 0 where it prints none."""
        if not self.numbers:
            return {}
        with (PAPERS / self.numbers).open(newline="", encoding="utf-8") as file:
            return {
                (one["measure"], one["task"], one["row"], int(one["length"])): (
                    float(one["value"]),
                    float(one["spread"] or 0),
                )
                for one in csv.DictReader(file)
            }

    def rule(self, task: str, row: str) -> Rule:
        """What the rules of a place come to."""
        found: dict[str, Any] = {}
        for one in self.tests:
            if task in (one.tasks or (task,)) and row in (one.rows or (row,)):
                found |= one.model_dump(exclude={"tasks", "rows"}, exclude_none=True)
        return Rule(**found)

    @cached_property
    def test_lists(self) -> dict[tuple[str, str], tuple[Test, ...]]:
        """What each model is tested on."""
        found = {}
        for place, row in self.places.items():
            rule = self.rule(*place)
            at = {} if row.calibrate is None else rule.at or {}
            found[place] = tuple(
                Test(set=rule.set or "random", length=x, n=at.get(x, rule.samples or 1000))
                for x in rule.lengths or ()
            )
        return found

    @property
    def tasks_shown(self) -> list[str]:
        """Its tasks, in their order."""
        return list(dict.fromkeys(task for task, _ in self.places))

    def lengths_of(self, task: str, row: str | None = None) -> list[int]:
        """The lengths of a row, or of the first one of a task."""
        name = row or next(name for of, name in self.places if of == task)
        return [test.length for test in self.test_lists[task, name]]

    def wanted(self, seeds: int | None = None) -> dict[tuple[str, str], int]:
        """Seeds by task and row: ``seeds``, or the default of each."""
        return {place: seeds or self.rule(*place).seeds or 1 for place in self.places}

    def entries(self, preset: str = "small", seeds: int | None = None) -> list[Entry]:
        """Its jobs, all rows of seed 0 first."""
        found = []
        for place, count in self.wanted(seeds).items():
            row = self.places[place]
            how: dict[str, Any] = {"preset": row.preset or preset, "tests": self.test_lists[place]}
            again = row.calibrate
            if again is not None and how["preset"] != "quick":  # a paper's steps to their end
                again = {"stop_early": False, **again}
            how["calibrate"] = again
            for seed in range(count):
                job = Job(task=place[0], options={**row.options, "seed": seed}, **how)
                found.append(Entry(*place, seed, job))
        return sorted(found, key=lambda entry: entry.seed)


def read_targets(text: str) -> dict[str, Target]:
    """The targets of a file's text, by name; ``ValueError`` for a key that there is not.

    A row that is ``like`` an earlier one has its keys, unless it says otherwise.
    """
    data = tomllib.loads(text)
    keys: dict[str, dict[str, Any]] = {}
    for name, own in data.pop("rows").items():
        keys[name] = {"label": name, **keys.get(own.pop("like", ""), {}), **own}
    rows = {name: Row(**row) for name, row in keys.items()}
    found = {}
    for name, own in data.pop("targets").items():
        tests = [Rule(**rule) for rule in (*data.get("tests", ()), *own.get("tests", ()))]
        found[name] = Target(name=name, known=rows, **{**data, **own, "tests": tests})
    return found


TARGETS: dict[str, Target] = {}
for _paper in ("duan_shi", "published", "reviewers", "attenders", "rivals"):
    TARGETS |= read_targets((PAPERS / f"{_paper}.toml").read_text("utf-8"))


OTHERS = ("chomsky", "figure3", "figure4", "figure7", "figure8")
"""What ``abc reproduce`` makes besides tables of rows: ``chomsky.py`` and ``pipeline.DRAWN``."""
NAMES = (*TARGETS, *OTHERS)


def get_target(name: str) -> Target:
    """The target of that name; ``UsageError`` names the known ones."""
    if name not in TARGETS:
        raise UsageError(unknown("target", name, NAMES))
    return TARGETS[name]
