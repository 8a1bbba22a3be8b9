"""One job: what is trained, and what it is tested on.

A job trains one model, and its key is a hash of that model's whole configuration: jobs that
want the same training share one folder, whichever sweep asked for it. What a job is tested on
is not part of its key, so that another sweep may ask for more lengths of a trained model.

    JOBS/<key>/log.txt   what its process wrote
               lock      held by the process that works on it
               run/      the run folder
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from pydantic import Field

from abc_calib.calibration.plan import plan_calibration
from abc_calib.config import Options, RunConfig
from abc_calib.config.commands import LONGEST, MOST_SAMPLES
from abc_calib.data import Data
from abc_calib.errors import AbcError, UsageError
from abc_calib.files import runs_root
from abc_calib.nn.build import build_model
from abc_calib.nn.skip_init import skip_init
from abc_calib.runs import Run
from abc_calib.runs.rows import ROWS, read_rows
from abc_calib.training.plan import plan_training


class Test(Options):
    """One row to measure: ``n`` samples of a kind at a length; fewer where there are fewer.

    One of the papers' sets of a task on tokens is measured whole, whatever the length.
    """

    __test__ = False  # no test case, whatever pytest thinks of the name

    length: int = Field(ge=1, le=LONGEST)
    n: int = Field(1000, ge=1, le=MOST_SAMPLES)
    set: str = "random"


class Job(Options):
    """A training, or with ``calibrate`` a calibration and retraining, and its tests.

    ``task_options`` go to ``tasks.get_task``. ``options`` are fields of ``ModelOptions`` and
    ``TrainOptions``, as ``stages.train`` takes them; ``calibrate`` what ``stages.calibrate``
    takes.
    """

    task: str
    base: int | None = None
    task_options: dict[str, int | str] = {}
    preset: str = "default"
    options: dict[str, Any] = {}
    calibrate: dict[str, Any] | None = None
    tests: tuple[Test, ...] = ()

    @cached_property
    def parent(self) -> Job | None:
        """The first training that a calibration needs, with the same tests."""
        if self.calibrate is None:
            return None
        return self.changed(calibrate=None)

    @cached_property
    def config(self) -> RunConfig:
        """The configuration of the run; ``UsageError`` if it is not possible."""
        if self.parent:
            return plan_calibration(self.parent.config, **(self.calibrate or {}))
        return plan_training(
            self.task,
            base=self.base,
            task_options=self.task_options,
            preset=self.preset,
            **self.options,
        )

    @cached_property
    def key(self) -> str:
        """A readable name and a hash of the whole configuration.

        Every option counts, at its default too: a default that changes makes another job.
        """
        chosen = self.config.chosen
        first = self.parent.key if self.parent else None
        digest = hashlib.sha256(json.dumps([chosen, first], sort_keys=True).encode()).hexdigest()
        first_config = self.parent.config if self.parent else self.config
        label = first_config.model.label.partition(":")[0]
        seed = self.config.train.seed
        return f"{self.task}-{label}-{self.config.stage}-seed{seed}-{digest[:12]}"

    def changed(self, **changes: Any) -> Job:
        """A changed copy, which forgets what was derived from this one."""
        return Job(**{name: getattr(self, name) for name in Job.model_fields} | changes)

    @cached_property
    def measures(self) -> tuple[Test, ...]:
        """The rows that its tests make: no more samples than there are, a named set once.

        The row of a named set is stored under the length of its longest target.
        """
        most: dict[tuple[str, int], int] = {}
        for test in self.tests:
            ((length, size),) = self.data.tests_of(test.set, [test.length])
            most[test.set, length] = max(min(test.n, size), most.get((test.set, length), 0))
        return tuple(Test(set=kind, length=length, n=n) for (kind, length), n in most.items())

    @cached_property
    def data(self) -> Data:
        """The data that it trains and is tested on."""
        return Run.draft(self.config).data

    def check(self) -> None:
        """Raise ``UsageError`` or ``TaskError`` for what would stop the job later."""
        data = self.data
        with torch.random.fork_rng(devices=[]), skip_init():
            build_model(self.config.kind, self.config.model, data, 0)
        data.training(0, 1)
        for kind in dict.fromkeys(test.set for test in self.tests):
            if kind not in data.tests:
                raise UsageError(f"unknown test set {kind!r}: choose {', '.join(data.tests)}")
            lengths = [test.length for test in self.tests if test.set == kind]
            data.test(max(data.tests_of(kind, lengths))[0], 1, kind)

    # Its folder

    def run(self, root: Path) -> Run | None:
        """Its run under ``root``, or None if there is none yet.

        Raises ``AbcError`` if the folder holds something else.
        """
        folder = root / self.key / "run"
        if not (folder / "config.json").is_file():
            return None
        run = Run.open(folder)
        expected = self.config if self.parent is None else self.config.as_wide_as(run.config)
        if run.config.difference(expected):
            raise AbcError(
                f"{folder} holds a run of another configuration (made by version "
                f"{run.config.code_version}): remove it or name another folder of jobs"
            )
        return run

    def missing_tests(self, root: Path) -> list[Test]:
        """The rows to measure that its run does not have."""
        measured = {(row["set"], row["length"]): row["n"] for row in self.rows(root)}
        return [test for test in self.measures if measured.get((test.set, test.length), 0) < test.n]

    def rows(self, root: Path) -> list[dict[str, Any]]:
        """The rows of its evaluation that its tests ask for, in their order."""
        rows = read_rows(root / self.key / "run" / "eval.csv")
        by_size = {
            (row["set"], row["length"], row.get(ROWS)): row for row in rows if row["test_seed"] == 0
        }
        sizes = ((test.set, self.data.named(test.length)) for test in self.measures)
        names = [(kind, size["length"], size.get(ROWS)) for kind, size in sizes]
        return [by_size[name] for name in names if name in by_size]

    def complete(self, root: Path) -> bool:
        """Is the model trained and are all tests measured?"""
        run = self.run(root)
        return bool(run and run.result) and not self.missing_tests(root)


def with_parents(jobs: Iterable[Job]) -> list[Job]:
    """Each job once, its tests joined, what it is calibrated from before it."""
    by_key: dict[str, Job] = {}
    for job in jobs:
        for member in filter(None, (job.parent, job)):
            same = by_key.get(member.key)
            by_key[member.key] = (
                same.changed(tests=(*same.tests, *member.tests)) if same else member
            )
    return list(by_key.values())


def share_of(jobs: Sequence[Job], number: int, of: int) -> list[Job]:
    """The share ``number`` of ``of``, from 1 on; calibrations go with their first training."""
    families = list(dict.fromkeys((job.parent or job).key for job in jobs))
    share = {key: 1 + n % of for n, key in enumerate(families)}
    return [job for job in jobs if share[(job.parent or job).key] == number]


def jobs_root(name: str | None = None) -> Path:
    """Where jobs lie: in the folder of that name, or in ``jobs`` in the folder of the runs."""
    return runs_root() / "jobs" if name is None else Path(name)
