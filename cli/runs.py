"""``abc runs``, ``abc tasks`` and ``abc check-task``."""

from __future__ import annotations

from dataclasses import asdict, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

import typer

import abc_calib as abc
from abc_calib.config import TaskOptions
from abc_calib.errors import AbcError, UsageError
from abc_calib.text import Table
from cli.command import command, task_names
from cli.console import Result, say

Everything = Annotated[bool, typer.Option("--all", help="Also the jobs of sweeps.")]
COLUMNS = ("run", "task", "stage", "scheme", "preset", "seed", "held-out", "seconds")


@command(tables=True)
def runs(everything: Everything = False) -> Result:
    """List the runs, oldest first.

    Examples: **abc runs** · **abc runs --all --csv**
    """
    from abc_calib.files import runs_root
    from abc_calib.runs import list_runs
    from abc_calib.runs.run import STAGES

    records = [record_of(run) for run in list_runs(everything)]
    table = Table(COLUMNS, [*map(cells_of, records)], right=COLUMNS[5:], label="tab:runs")
    if records:
        rows = [[STAGES.get(str(cell), cell) for cell in row] for row in table.rows]
        return Result(records, [replace(table, rows=rows)], table=table)
    nothing = f"there is no run in {runs_root()} yet: abc train successor"
    return Result(records, remarks=[nothing], table=table)


def record_of(run: abc.Run) -> dict[str, Any]:
    """Return a run as its JSON has it."""
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


def cells_of(record: dict[str, Any]) -> list[object]:
    """Return the same for people: where it lies under the root, and what is wrong with it."""
    from abc_calib.files import runs_root

    path, root = Path(record["run"]), runs_root()
    name = str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
    state = record["state"]
    held_out, seconds, base = map(record.get, ("held_out", "seconds", "base"))
    return [
        f"{name} ({state})" if state.startswith("unreadable") else name,
        f"{record.get('task') or ''}{'' if base in (None, 10) else f', base {base}'}",
        *map(record.get, ("stage", "scheme", "preset", "seed")),
        state.partition(":")[0] if held_out is None else f"{held_out:.2f} %",
        None if seconds is None else f"{seconds:.0f}",
    ]


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
