"""Sweep files: TOML to jobs, all of them checked.

``[sweep]`` names tasks, schemes, seeds and tests (``Section``), ``[options]`` what is the same for
all, ``[grid]`` values of options, every one with every other, and each ``[[jobs]]`` one more job;
``abc sweep --help`` shows a file. An option is one of ``abc train`` by its name in Python; behind
``calibrate.`` one of ``abc calibrate``. All seed 0 jobs come first.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from abc_calib.config import Options, build
from abc_calib.config.commands import LARGEST_SEED, LONGEST, MOST_SAMPLES
from abc_calib.config.options import Word
from abc_calib.errors import UsageError
from abc_calib.files import read_text
from abc_calib.sweeps.jobs import Job, Test

CALIBRATION = "calibrate."
MOST_JOBS = 10_000
MOST_BYTES = 10**6
"""Of one file."""

Seed = Annotated[int, Field(ge=0, le=LARGEST_SEED)]
Length = Annotated[int, Field(ge=1, le=LONGEST)]
Table = dict[str, Any]


class Section(Options):
    """The ``[sweep]`` section."""

    group_title = "[sweep]"

    tasks: list[Word] | None = None
    schemes: list[Word] | None = None
    seeds: Annotated[int, Field(ge=1, le=LARGEST_SEED)] | list[Seed] = Field(
        1, examples=["3 for 0, 1 and 2, or [5, 7]"]
    )
    base: int | None = Field(None, ge=2, le=36)
    task_options: dict[str, int | str] = {}
    preset: Word = "default"
    calibrate: bool = False
    lengths: list[Length] = Field([6, 10, 15, 20, 50], min_length=1)
    samples: int = Field(1000, ge=1, le=MOST_SAMPLES)
    sets: list[Word] = Field(["random"], min_length=1)

    def job(self, options: Table, calibrate: bool) -> Job:
        """The job of a task with options, those of its calibration behind ``calibrate.``."""
        training = {k: v for k, v in options.items() if not k.startswith(CALIBRATION)}
        again = {k.removeprefix(CALIBRATION): options[k] for k in options.keys() - training.keys()}
        if again and not calibrate:
            raise UsageError(
                f"{CALIBRATION}{next(iter(again))} is given, and nothing is calibrated: "
                "set calibrate = true in [sweep], or leave it out"
            )
        if not isinstance(task := training.pop("task", None), str):
            raise UsageError(f"[[jobs]] task = {task!r}: name the task of each job")
        tests = [
            build(Test, set=kind, length=length, n=self.samples)
            for kind in self.sets
            for length in self.lengths
        ]
        return build(
            Job,
            task=task,
            base=self.base,
            task_options=training.pop("task_options", self.task_options),
            preset=self.preset,
            options=training,
            calibrate=again if calibrate else None,
            tests=tests,
        )


class SweepFile(Options):
    """What a sweep file holds."""

    group_title = "the file"

    sweep: Table = {}
    options: Table = {}
    grid: Table = {}
    jobs: list[Table] = []


def read_sweep(path: Path) -> list[Job]:
    """Return the jobs of a sweep file.

    Raises ``UsageError``, before anything trains, for an unknown key, a value that is not
    possible, an empty product, and two jobs with one key.
    """
    try:
        data = tomllib.loads(read_text(path, MOST_BYTES))
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}): name a TOML file") from None
    except (RecursionError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as TOML ({error}): mend it") from None
    try:
        jobs = [*expand(build(SweepFile, **data))]
        for job in {_without_seed(job): job for job in jobs}.values():
            job.check()
        key, count = Counter(job.key for job in jobs).most_common(1)[0]
        if count > 1:
            raise UsageError(f"two jobs have the key {key}: leave one out, or change its options")
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    return sorted(jobs, key=lambda job: (job.parent or job).config.train.seed)


def _without_seed(job: Job) -> str:
    """A job as text, but for its seed: those that differ in it alone are possible, or none is."""
    chosen = job.config.chosen
    chosen["train"]["seed"] = 0
    return json.dumps([chosen, [test.model_dump() for test in job.tests]], sort_keys=True)


def expand(file: SweepFile) -> Iterator[Job]:
    """Return the jobs of a sweep file's content: a product, and further ones by name."""
    section, fixed, grid = build(Section, **file.sweep), flat(file.options), flat(file.grid)
    if section.tasks is not None:
        for values in combinations(section, fixed, grid):
            yield section.job({**fixed, **values}, section.calibrate)
    elif grid or not file.jobs:
        raise UsageError("give tasks in [sweep], which [grid] multiplies, or [[jobs]]")
    for entry in file.jobs:
        calibrate = entry.get("calibrate", section.calibrate) is not False
        options = {k: v for k, v in flat(entry).items() if k != "calibrate"}
        shared = {k: v for k, v in fixed.items() if calibrate or not k.startswith(CALIBRATION)}
        yield section.job({**shared, **options}, calibrate)


def combinations(section: Section, fixed: Table, grid: Table) -> Iterator[Table]:
    """Every task with every scheme, value of the grid and seed."""
    seeds: Any = section.seeds
    seeds = range(min(seeds, MOST_JOBS + 1)) if isinstance(seeds, int) else seeds
    axes: Table = {"task": section.tasks, "scheme": section.schemes, "seed": seeds}
    axes = {name: values for name, values in axes.items() if values is not None}
    for name in [*grid.keys() & axes.keys(), *fixed.keys() & {*axes, *grid}]:
        raise UsageError(f"{name} is given twice, in [sweep], [options] or [grid]: keep one")
    axes |= grid
    for name, values in axes.items():
        if not isinstance(values, list | range) or not values:
            raise UsageError(f"{name} = {values!r}: give a list of one value or more")
    if (count := math.prod(map(len, axes.values()))) > MOST_JOBS:
        raise UsageError(f"{count:,} jobs or more: a sweep has at most {MOST_JOBS:,}")
    for values in product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def flat(table: Mapping[str, Any]) -> Table:
    """Return the options of a table, those of a table ``calibrate`` by ``calibrate.NAME``."""
    options = dict(table)
    if isinstance(again := options.get("calibrate"), dict):
        del options["calibrate"]
        options |= {f"{CALIBRATION}{name}": value for name, value in again.items()}
    return options
