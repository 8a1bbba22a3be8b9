"""The results of a sweep as one table: a row for each job, test set and length.

``pandas.read_csv(path)`` reads it. Columns: ``key``, ``stage``, the options of the first
training under their own names (its length as ``train_length``), those of the task as
``task_...``, those of calibration and retraining as ``calibrate_...`` (empty in vanilla rows),
how the training ended, then the columns of an evaluation. A job that failed has one row, its
reason in ``error``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from abc_calib.errors import UsageError
from abc_calib.files import make_folder
from abc_calib.runs.rows import ROWS
from abc_calib.sweeps.engine import Outcome
from abc_calib.sweeps.jobs import Job, with_parents

MEASURES = (
    "set", "length", "n", "correct", "accuracy", "low", "high", "test_seed", "test_hash", "seconds",
)  # fmt: skip


def results_table(
    jobs: Sequence[Job], root: Path, outcomes: Sequence[Outcome] = ()
) -> pd.DataFrame:
    """What has been measured under ``root`` for ``jobs`` and what they are calibrated from."""
    reasons = {o.job.key: o.reason for o in outcomes if o.state in ("failed", "blocked")}
    rows: list[dict[str, Any]] = []
    for job in with_parents(jobs):
        failed = job.key in reasons
        about = describe(job, None if failed else root)
        if failed:
            rows.append({**about, "error": reasons[job.key]})
        else:
            for row in job.rows(root):  # of tokens with the kinds of mistakes
                measures = dict.fromkeys((*MEASURES, *(n for n in row if n != ROWS)))
                rows.append({**about, **{n: row[n] for n in measures}, "error": None})
    return pd.DataFrame(rows, columns=None if rows else ["key", *MEASURES, "error"])


def describe(job: Job, root: Path | None) -> dict[str, Any]:
    """The columns of a job that do not depend on a test; without ``root`` not how it ended."""
    first = job.parent.config if job.parent else job.config
    about: dict[str, Any] = {
        "key": job.key,
        "stage": job.config.stage,
        "task": first.task,
        "base": first.base,
        "preset": first.preset,
    }
    about |= {f"task_{name}": value for name, value in first.task_options.items()}
    groups = {**first.model.model_dump(), **first.train.model_dump()}
    for name, value in groups.items():  # the training's length is not the test's
        about[f"train_{name}" if name in MEASURES else name] = _plain(value)
    if job.config.calibration is not None:
        again = {
            **job.config.calibration.model_dump(),
            "scheme": job.config.model.label,
            **job.config.train.model_dump(),
        }
        about |= {f"calibrate_{name}": _plain(value) for name, value in again.items()}
    run = job.run(root) if root else None
    ended = (run.result if run else None) or {}
    return about | {
        "steps_taken": ended.get("steps"),
        "train_seconds": ended.get("seconds"),
        "held_out": ended.get("validation_accuracy"),
        "interpolated": ended.get("interpolated"),
    }


def _plain(value: Any) -> Any:
    """A value that a cell can hold."""
    if isinstance(value, dict):
        return ",".join(f"{name}={_plain(item)}" for name, item in value.items())
    return "+".join(map(str, value)) if isinstance(value, tuple | list) else value


def check_writable(path: Path) -> None:
    """Make the folder of a table; ``UsageError`` unless one can be written there."""
    if path.suffix.lower() != ".csv":
        raise UsageError(f"{path}: results cannot be written as {path.suffix!r}: choose .csv")
    if os.path.lexists(path) and not path.is_file():
        raise UsageError(f"{path} is not a file: name another one for the results")
    make_folder(path.parent, path)
