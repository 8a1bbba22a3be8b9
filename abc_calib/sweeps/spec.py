"""Sweep files: TOML to jobs, all of them checked.

``[sweep]`` names tasks, schemes, seeds and tests (``Section``), ``[options]`` what is the same for
all, ``[grid]`` values of options, every one with every other, and each ``[[jobs]]`` one more job;
``abc sweep --help`` shows a file.

The number of jobs is tasks x schemes x grid x seeds and the further ones. An option is one of
``abc train`` (a field of ``TrainOptions``, of the model's options or of ``RecipeOptions``), by its
name in Python; behind ``calibrate.`` one of ``abc calibrate``. All seed 0 jobs
come first.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from abc_calib.config import (
    MODEL_OPTIONS,
    CalibrationOptions,
    Options,
    RetrainedOptions,
    TrainOptions,
    build,
)
from abc_calib.config.commands import LARGEST_SEED, LONGEST, MOST_SAMPLES
from abc_calib.config.options import Word
from abc_calib.errors import UsageError, shortened
from abc_calib.files import read_text
from abc_calib.sweeps.jobs import Job, Test, check_jobs

Flat = dict[str, Any]
"""Options by name; those of the calibration begin with ``calibrate.``."""

CALIBRATION = "calibrate."


def _names(*kinds: type[Options]) -> list[str]:
    return list(dict.fromkeys(name for kind in kinds for name in kind.model_fields))


TRAIN = ["model", "epochs", *_names(TrainOptions, *MODEL_OPTIONS.values())]
CALIBRATE = _names(CalibrationOptions, RetrainedOptions, TrainOptions)
"""What a job's ``options`` and ``calibrate`` may hold."""
MOST_JOBS = 10_000
MOST_BYTES = 10**6
"""Of one file."""
AXES = {"task": "tasks", "scheme": "schemes", "seed": "seeds"}
"""Names of the axes in ``[sweep]``."""


Seed = Annotated[int, Field(ge=0, le=LARGEST_SEED)]
Length = Annotated[int, Field(ge=1, le=LONGEST)]


class Section(Options):
    """The ``[sweep]`` section."""

    tasks: list[Word] = []
    schemes: list[Word] | None = None
    seeds: Seed | list[Seed] = Field(1, examples=["3 for 0, 1 and 2, or [5, 7]"])
    base: int | None = Field(None, ge=2, le=36)
    task_options: dict[str, int | str] = {}
    preset: Word = "small"
    calibrate: bool = False
    lengths: list[Length] = Field([6, 10, 15, 20, 50], min_length=1)
    samples: int = Field(1000, ge=1, le=MOST_SAMPLES)
    sets: list[Word] = Field(["random"], min_length=1)

    @property
    def tests(self) -> tuple[Test, ...]:
        return tuple(
            build(Test, set=kind, length=length, n=self.samples)
            for kind in self.sets
            for length in self.lengths
        )


def read_sweep(path: Path) -> list[Job]:
    """Return the jobs of a sweep file.

    Raises ``UsageError``, before anything trains, for an unknown key, a value that is not
    possible, an empty product, and two jobs with one key.
    """
    try:
        data = tomllib.loads(read_text(path, MOST_BYTES))
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror})") from None
    except RecursionError:
        raise UsageError(f"{path} is nested too deeply: tables of tables are enough") from None
    except ValueError as error:
        raise UsageError(f"{path} is not TOML: {error}") from None
    try:
        jobs = expand(data)
        check_jobs(jobs)
        check_keys(jobs)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    return jobs


def expand(data: Mapping[str, Any]) -> list[Job]:
    """Return the jobs of a sweep file's content, seed by seed."""
    _check_names(data, ("sweep", "options", "grid", "jobs"), "the file")
    tables = {name: _table(data, name) for name in ("sweep", "options", "grid")}
    _check_names(tables["sweep"], tuple(Section.model_fields), "[sweep]")
    section = build(Section, **tables["sweep"])
    fixed, grid = (_flat(tables[name], f"[{name}]") for name in ("options", "grid"))
    entries = data.get("jobs", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise UsageError("jobs is not a list of tables: write [[jobs]]")
    jobs = [
        *_product(section, fixed, grid),
        *(_entry(section, fixed, entry) for entry in entries),
    ]
    if not jobs:
        raise UsageError("there is nothing to do: give tasks in [sweep], or [[jobs]]")
    return sorted(jobs, key=lambda job: (job.parent or job).config.train.seed)


def check_keys(jobs: Sequence[Job]) -> None:
    """Raise ``UsageError`` where two jobs are the same."""
    seen: set[str] = set()
    for job in jobs:
        if job.key in seen:
            raise UsageError(
                f"two jobs have the key {job.key} (task {job.task}, options {job.options}): "
                "leave one of them out, or change an option of it"
            )
        seen.add(job.key)


def _product(section: Section, fixed: Flat, grid: Flat) -> Iterator[Job]:
    if not section.tasks and "tasks" not in section.model_fields_set:
        if grid:
            raise UsageError("[grid] multiplies the tasks of [sweep]: give tasks")
        return
    seeds = section.seeds
    if isinstance(seeds, int) and seeds > MOST_JOBS:
        raise UsageError(f"{seeds} jobs: give at most {MOST_JOBS} in one file")
    axes: dict[str, Any] = {"task": section.tasks}
    if section.schemes is not None:
        axes["scheme"] = section.schemes
    axes["seed"] = list(range(seeds)) if isinstance(seeds, int) else seeds
    for name in grid.keys() & axes.keys():
        raise UsageError(f"[grid] {name}: {AXES[name]} of [sweep] say it; leave one out")
    axes = {**axes, **grid, "seed": axes.pop("seed")}
    for name, values in axes.items():
        where = AXES.get(name, name)
        if not isinstance(values, list):
            raise UsageError(f"[grid] {name} = {values!r}: give a list of values")
        if not values:
            raise UsageError(f"{where} is empty, and so is the product: give one value or more")
        if name in fixed:
            raise UsageError(f"{name} is given in [options] and in {where}: leave one out")
    if (count := math.prod(map(len, axes.values()))) > MOST_JOBS:
        factors = " x ".join(f"{len(v)} {AXES.get(n, n)}" for n, v in axes.items())
        raise UsageError(f"{factors} are {count:,} jobs: a sweep has at most {MOST_JOBS:,}")
    for values in product(*axes.values()):
        yield _job(section, section.calibrate, {**fixed, **dict(zip(axes, values, strict=True))})


def _entry(section: Section, fixed: Flat, entry: Mapping[str, Any]) -> Job:
    """One of ``[[jobs]]``: a task, and options in addition to or instead of the fixed ones."""
    rest = dict(entry)
    calibrate = rest.get("calibrate", section.calibrate) is not False
    if isinstance(rest.get("calibrate"), bool):
        del rest["calibrate"]
    task_options = rest.pop("task_options", section.task_options)
    section = section.model_copy(update={"task_options": task_options})
    task = rest.pop("task", None)
    if not isinstance(task, str):
        raise UsageError(f"[[jobs]] task = {task!r}: name the task of each job")
    usual = fixed
    if not calibrate:  # the fixed options of calibrations are for the others
        usual = {k: v for k, v in fixed.items() if not k.startswith(CALIBRATION)}
    return _job(section, calibrate, {**usual, **_flat(rest, "[[jobs]]"), "task": task})


def _job(section: Section, calibrate: bool, flat: Flat) -> Job:
    options = {k: v for k, v in flat.items() if not k.startswith(CALIBRATION)}
    again = {k.removeprefix(CALIBRATION): v for k, v in flat.items() if k not in options}
    if again and not calibrate:
        raise UsageError(
            f"{CALIBRATION}{next(iter(again))} is given, and nothing is calibrated: "
            "set calibrate = true in [sweep], or leave it out"
        )
    return build(
        Job,
        task=options.pop("task"),
        base=section.base,
        task_options=section.task_options,
        preset=section.preset,
        options=options,
        calibrate=again if calibrate else None,
        tests=section.tests,
    )


def _table(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = data.get(name, {})
    if not isinstance(table, dict):
        raise UsageError(f"{name} = {table!r} is not a table: write [{name}]")
    return table


def _flat(table: Mapping[str, Any], where: str) -> Flat:
    """``calibrate.steps`` and the others by their full names, all of them known."""
    rest = dict(table)
    again = rest.pop("calibrate", {})
    if not isinstance(again, dict):
        raise UsageError(f"{where} calibrate = {again!r}: give its options, or set it in [sweep]")
    _check_names(rest, list(TRAIN), where)
    _check_names(again, list(CALIBRATE), f"{where} calibrate")
    return {**rest, **{f"{CALIBRATION}{name}": value for name, value in again.items()}}


def _check_names(names: Iterable[str], allowed: Sequence[str], where: str) -> None:
    for name in names:
        if name not in allowed:
            key = shortened(repr(name))
            raise UsageError(f"unknown key {key} in {where}: choose among {', '.join(allowed)}")
