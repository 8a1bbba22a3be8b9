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
from abc_calib.errors import OptionError, UsageError, shortened
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
    """The jobs of a sweep file.

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
        return checked(expand(data))
    except UsageError as error:
        raise UsageError(f"{path}: {_where(data, error)}{error}") from None


def _where(data: Mapping[str, Any], error: UsageError) -> str:
    """The section and the key of what an error is about, unless it says so itself."""
    if str(error).startswith(("[", "unknown key")):
        return ""
    if isinstance(error, OptionError):
        found = ((w, k) for w, k, v in _places(data) if k[-1] == error.option and v == error.value)
        where, keys = next(found, ("", ()))
        return where and f"{where} {''.join(f'{key}.' for key in keys[:-1])}"
    for where, keys, value in _places(data):
        if (isinstance(value, str) and repr(value) in str(error)) or repr(keys[-1]) in str(error):
            return f"{where} {'.'.join(keys)}: "
    return ""


def _places(data: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    """Each value in a file, those of lists one by one, with its section and its keys."""
    tables = [(f"[{name}]", table) for name, table in data.items() if isinstance(table, dict)]
    jobs = data.get("jobs")
    several = enumerate(jobs if isinstance(jobs, list) else (), 1)
    tables += [(f"[[jobs]] {n}:", one) for n, one in several if isinstance(one, dict)]
    for where, table in tables:
        for name, value in table.items():
            inner = value.items() if isinstance(value, dict) else [("", value)]
            for key, held in inner:
                keys = (name, key) if key else (name,)
                yield from ((where, keys, v) for v in (held if isinstance(held, list) else [held]))


def expand(data: Mapping[str, Any]) -> list[Job]:
    """The jobs of a sweep file's content, seed by seed."""
    _known(data, ("sweep", "options", "grid", "jobs"), "the file")
    given = _table(data, "sweep")
    _known(given, tuple(Section.model_fields), "[sweep]")
    try:
        section = build(Section, **given)
    except OptionError as error:
        raise UsageError(f"[sweep] {error}") from None
    fixed = _flat(_table(data, "options"), "[options]")
    extra = data.get("jobs", [])
    if not isinstance(extra, list) or not all(isinstance(entry, dict) for entry in extra):
        raise UsageError("jobs is not a list of tables: write [[jobs]]")
    jobs = [
        *_product(section, fixed, _flat(_table(data, "grid"), "[grid]")),
        *(_entry(section, fixed, entry) for entry in extra),
    ]
    if not jobs:
        raise UsageError("there is nothing to do: give tasks in [sweep], or [[jobs]]")
    return sorted(jobs, key=lambda job: (job.parent or job).config.train.seed)


def checked(jobs: Sequence[Job]) -> list[Job]:
    """``jobs``, if each is possible and no two of them are the same."""
    seen: dict[str, Job] = {}
    check_jobs(jobs)
    for job in jobs:
        if job.key in seen:
            raise UsageError(
                f"two jobs have the key {job.key} (task {job.task}, options {job.options}): "
                "leave one of them out, or change an option of it"
            )
        seen[job.key] = job
    return list(jobs)


def _product(section: Section, fixed: Flat, grid: Flat) -> Iterator[Job]:
    schemes, seeds = section.schemes, section.seeds
    if isinstance(seeds, int) and seeds > MOST_JOBS:
        raise UsageError(f"{seeds} jobs: give at most {MOST_JOBS} in one file")
    seeds = list(range(seeds)) if isinstance(seeds, int) else seeds
    wanted = {} if schemes is None else {"scheme": schemes}
    axes: dict[str, Sequence[Any]] = {"task": section.tasks, **wanted, **grid, "seed": seeds}
    if not section.tasks and "tasks" not in section.model_fields_set:
        if grid:
            raise UsageError("[grid] multiplies the tasks of [sweep]: give tasks")
        return
    for name in grid.keys() & {"seed", *wanted}:
        raise UsageError(f"[grid] {name}: {AXES[name]} of [sweep] say it; leave one out")
    for name, values in axes.items():
        where = AXES.get(name, name)
        if not isinstance(values, list):
            raise UsageError(f"[grid] {name} = {values!r}: give a list of values")
        if not values:
            raise UsageError(f"{where} is empty, and so is the product: give one value or more")
        if name in fixed:
            raise UsageError(f"{name} is given in [options] and in {where}: leave one out")
    if (count := math.prod(map(len, axes.values()))) > MOST_JOBS:
        raise UsageError(
            f"{' x '.join(f'{len(v)} {AXES.get(n, n)}' for n, v in axes.items())} are {count:,} "
            f"jobs: a sweep has at most {MOST_JOBS:,}"
        )
    for values in product(*axes.values()):
        yield _job(section, section.calibrate, {**fixed, **dict(zip(axes, values, strict=True))})


def _entry(section: Section, fixed: Flat, entry: Mapping[str, Any]) -> Job:
    """One of ``[[jobs]]``: a task, and options in addition to or instead of the fixed ones."""
    rest = dict(entry)
    calibrate = rest.get("calibrate", section.calibrate) is not False
    if isinstance(rest.get("calibrate"), bool):
        del rest["calibrate"]
    section = section.model_copy(
        update={"task_options": rest.pop("task_options", section.task_options)}
    )
    task = rest.pop("task", None)
    if not isinstance(task, str):
        raise UsageError(f"[[jobs]] task = {task!r}: name the task of each job")
    given = {**fixed, **_flat(rest, "[[jobs]]")}
    if not calibrate:  # the fixed options of calibrations are for the others
        given = {k: v for k, v in given.items() if not k.startswith(CALIBRATION) or k not in fixed}
    return _job(section, calibrate, {"task": task, **given})


def _job(section: Section, calibrate: bool, given: Flat) -> Job:
    again = {k.removeprefix(CALIBRATION): v for k, v in given.items() if k.startswith(CALIBRATION)}
    if again and not calibrate:
        raise UsageError(
            f"{CALIBRATION}{next(iter(again))} is given, and nothing is calibrated: "
            "set calibrate = true in [sweep], or leave it out"
        )
    options = {k: v for k, v in given.items() if not k.startswith(CALIBRATION) and k != "task"}
    return build(
        Job,
        task=given["task"],
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
    _known(rest, TRAIN, where)
    _known(again, CALIBRATE, f"{where} calibrate")
    return {**rest, **{f"{CALIBRATION}{name}": value for name, value in again.items()}}


def _known(given: Iterable[str], allowed: Sequence[str], where: str) -> None:
    for name in given:
        if name not in allowed:
            key = shortened(repr(name))
            raise UsageError(f"unknown key {key} in {where}: choose among {', '.join(allowed)}")
