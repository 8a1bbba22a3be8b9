"""The contract of a target: the models that it trains, their seeds and tests, and its report."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from abc_calib.reproduction.report import Report
from abc_calib.sweeps import Job, Test


@dataclass(frozen=True)
class Row:
    """A row of a table: how it is printed, and how its model is made.

    ``own`` marks what the paper proposes, against which it sets the others. ``preset``: its own,
    whatever the others are trained with.
    """

    label: str
    options: dict[str, Any] = field(default_factory=dict)
    calibrate: dict[str, Any] | None = None
    own: bool = True
    preset: str = ""

    @property
    def stage(self) -> str:
        """Of its results; a calibration also has those of its first training."""
        return "vanilla" if self.calibrate is None else "calibrated"


@dataclass(frozen=True)
class Entry:
    """One job of a reproduction, and where its results belong."""

    task: str
    row: str
    seed: int
    job: Job


@dataclass(frozen=True)
class Target(ABC):
    """A table, figure or list of questions: ``TARGETS`` has one line for each."""

    name: str
    title: str

    @abstractmethod
    def models(self) -> dict[tuple[str, str], Row]:
        """What is trained, by task and name of the row."""

    @abstractmethod
    def tests(self, task: str, row: str) -> tuple[Test, ...]:
        """What a model is tested on."""

    @abstractmethod
    def seeds_of(self, task: str, row: str) -> int:
        """Seeds by default."""

    @abstractmethod
    def report(self, results: pd.DataFrame, seeds: int | None = None) -> Report:
        """The report of the results of every seed."""

    def wanted(self, seeds: int | None = None) -> dict[tuple[str, str], int]:
        """Seeds by task and row: ``seeds``, or the default of each."""
        return {place: seeds or self.seeds_of(*place) for place in self.models()}

    def entries(self, preset: str = "small", seeds: int | None = None) -> list[Entry]:
        """Its jobs, all rows of seed 0 first."""
        models = self.models()
        found = []
        for (task, row), count in self.wanted(seeds).items():
            made, tests = models[task, row], self.tests(task, row)
            how: dict[str, Any] = {"calibrate": made.calibrate, "tests": tests}
            how["preset"] = made.preset or preset
            for seed in range(count):
                job = Job(task=task, options={**made.options, "seed": seed}, **how)
                found.append(Entry(task, row, seed, job))
        return sorted(found, key=lambda entry: entry.seed)
