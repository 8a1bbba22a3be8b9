"""``abc runs``, ``abc tasks`` and ``abc check-task``."""

from __future__ import annotations

import os
from dataclasses import asdict
from itertools import groupby
from operator import itemgetter
from typing import Annotated, Any

import typer

import abc_calib as abc
from abc_calib.config import TaskOptions
from abc_calib.errors import AbcError, UsageError
from abc_calib.text import Table
from cli.command import command, task_names
from cli.console import Result, say

Everything = Annotated[bool, typer.Option("--all", help="Also the jobs of sweeps.")]
COLUMNS = ("run", "task", "base", "stage", "scheme", "seed", "held_out", "state")


@command(tables=True)
def runs(everything: Everything = False) -> Result:
    """List the runs, oldest first.

    Examples: **abc runs** · **abc runs --all --csv**
    """
    from abc_calib.files import runs_root
    from abc_calib.runs import list_runs

    records = [record_of(run) for run in list_runs(everything)]
    names = [os.path.relpath(record["run"], runs_root()) for record in records]
    rows = [[n, *map(r.get, COLUMNS[1:])] for n, r in zip(names, records, strict=True)]
    table = Table(COLUMNS, rows, right=("base", "seed", "held_out"), label="tab:runs")
    if records:
        return Result(records, [table], table=table)
    nothing = f"there is no run in {runs_root()} yet: abc train successor"
    return Result(records, remarks=[nothing], table=table)


def record_of(run: abc.Run) -> dict[str, Any]:
    """Return a run as its JSON has it; ``state`` says what is wrong with it."""
    record: dict[str, Any] = {"run": str(run)}
    try:
        config = run.config
        record |= {"task": config.task, "base": config.base, "stage": config.stage}
        record |= {"scheme": config.model.label, "preset": config.preset}
        record["seed"] = config.train.seed
        result = run.result or {}
        record["state"] = "trained" if result else "not finished"
        record["held_out"] = result.get("validation_accuracy")
        record["seconds"] = result.get("seconds")
    except AbcError as error:
        record["state"] = f"unreadable: {error}"
    return record


@command(threads=None)
def tasks() -> Result:
    """List the tasks, with a sample each.

    Example: **abc tasks --json**
    """
    from abc_calib.plugins import KINDS, find
    from tasks import examples

    for name in KINDS["task"].installed:
        try:
            find("task", name)
        except UsageError as error:
            say(str(error))
    rows = examples()
    columns = ("task", "what", "sample", "trained on")
    tables = [
        Table(columns, [[*row.values()][1:] for row in records], title=group)
        for group, records in groupby(rows, key=itemgetter("group"))
    ]
    return Result(rows, [part for table in tables for part in (table, "")])


Names = Annotated[
    list[str],
    typer.Argument(
        metavar="[FILE] TASK",
        help="The task; of one's own, after the file that it is in.",
        autocompletion=task_names,
    ),
]


@command()
def check_task(names: Names, options: TaskOptions) -> Result:
    """Check, before any training, whether a task can be calibrated and certified.

    Does what it writes follow from a few columns? Do its answers and its rule agree? How many
    windows will there be?

    Examples: **abc check-task my_task.py minus** · **abc check-task automaton --name s5**
    """
    *files, name = names
    if len(files) > 1:
        raise UsageError(f"abc check-task {' '.join(names)}: give a file and a task's name")
    for file in files:
        abc.load_plugin(file)
    report = abc.check_task(name, options=options)
    return Result(asdict(report), report.text)
