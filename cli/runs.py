"""``abc runs``, ``abc tasks`` and ``abc check-task``."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import asdict
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

import typer

import abc_calib as abc
from abc_calib.config import TaskOptions
from abc_calib.errors import AbcError, UsageError
from abc_calib.text import Table
from cli.command import command, run_names, task_names
from cli.console import Result, say, typed

Action = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[rm RUN...]", help="With rm: remove these runs.", autocompletion=run_names
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Remove without asking.")]
Everything = Annotated[bool, typer.Option("--all", help="Also the jobs of sweeps.")]
COLUMNS = ("run", "task", "stage", "scheme", "held-out", "verdict")
FIELDS = ["run", "task", "base", "stage", "scheme", "preset", "seed", "state", "held_out"]
FIELDS += ["certificate", "seconds"]
UNCHECKED = ", unchecked"
"""Behind the verdict on a run whose task or scheme is not known here."""


@command(tables=True)
def runs(action: Action = None, everything: Everything = False, yes: Yes = False) -> Result:
    """List the runs, oldest first, or remove some.

    Examples: **abc runs --all --csv** · **abc runs rm RUN OTHER**
    """
    from abc_calib.files import runs_root
    from abc_calib.runs import folders

    if action:
        return removed(action, yes)
    records = [record_of(abc.Run(path)) for path in folders.by_age(everything)]
    cells = [[record.get(name) for name in FIELDS] for record in records]
    table = Table(FIELDS, cells, caption="Runs", label="tab:runs")
    if records:
        shown = Table(COLUMNS, [*map(cells_of, records)], right=("held-out",))
        states = [record["state"] for record in records]
        remarks = [state for state in states if state.startswith("unreadable")]
        if any((record.get("certificate") or "").endswith(UNCHECKED) for record in records):
            remarks.append("unchecked: name the file of its task or scheme with --plugin")
        return Result(records, [shown], remarks, table)
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
        record["certificate"] = verdict_of(run)
        record["seconds"] = result.get("seconds")
    except AbcError as error:
        record["state"] = f"unreadable: {error}"
    return record


def verdict_of(run: abc.Run) -> str | None:
    """Return what its certificate says, "out of date" if that is of another model; None without."""
    from abc_calib.files import read_json
    from abc_calib.proof.certificate import FILE, Certificate

    if not (run.path / FILE).is_file():
        return None
    try:
        return Certificate.load(run).outcome
    except UsageError:  # its task or its scheme is not known here
        with suppress(OSError, ValueError, KeyError, TypeError):
            return f"{read_json(run.path / FILE)['outcome']}{UNCHECKED}"
    except AbcError:
        pass
    return "out of date"


def cells_of(record: dict[str, Any]) -> list[object]:
    """Return the same for people: where it lies under the root."""
    from abc_calib.files import runs_root
    from abc_calib.runs.run import STAGES

    path, root = Path(record["run"]), runs_root()
    held_out, base = map(record.get, ("held_out", "base"))
    return [
        str(path.relative_to(root) if path.is_relative_to(root) else path),
        f"{record.get('task') or ''}{'' if base in (None, 10) else f', base {base}'}",
        STAGES.get(record.get("stage", ""), "").partition(" ")[0],
        record.get("scheme"),
        record["state"].partition(":")[0] if held_out is None else f"{held_out:.2f} %",
        record.get("certificate"),
    ]


def removed(words: list[str], yes: bool) -> Result:
    """Remove the named runs, all of them or none: whole ones in the folder of runs alone."""
    from abc_calib.files import locked, runs_root
    from abc_calib.runs import folders

    verb, *names = words
    if verb != "rm" or not names:
        usage = "abc runs lists the runs, abc runs rm RUN removes some"
        raise UsageError(f"abc runs {typed(verb)}: {usage}")
    root = runs_root().resolve()
    removable = {path.absolute() for path in folders.by_age(jobs=True)}
    paths = list(dict.fromkeys(folders.find(Path(name)) for name in names))
    for path in paths:
        if path.absolute() not in removable or path.is_symlink():
            raise UsageError(f"{path} is not a run of its own in {root}: remove it yourself")
    if not yes:
        for path in paths:
            say(str(path))
        try:
            typer.confirm(f"Remove these {len(paths)} for good?", abort=True, err=True)
        except typer.Abort:
            raise AbcError("nothing was removed (--yes removes without asking)") from None
    for path in paths:
        with locked(path, f"{path} is being trained: wait until it has ended"):
            shutil.rmtree(path)
    deleted = [str(path) for path in paths]
    table = Table(("removed",), [[name] for name in deleted])
    return Result(deleted, [f"removed {name}" for name in deleted], table=table)


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
    """Check whether a task can be certified, before any training.

    Does what it writes follow from a few columns? Do its answers and its rule agree? How many
    windows will there be?

    Examples: **abc check-task my_task.py minus** · **abc check-task automaton --name s5**
    """
    *files, name = names
    if len(files) > 1:
        raise UsageError(f"abc check-task {' '.join(names)}: give a file and a task's name")
    from tasks import TASKS

    if name.endswith(".py") and not files:
        files, name = [name], ""
    for file in files:
        classes = abc.load_plugin(file)
        contents = [x for x in classes if x in TASKS]
        if name not in contents:
            hint = f"name a task of this file: {' or '.join(contents) or 'it has none'}"
            if name in classes:
                trial = f"abc train TASK --scheme {name} --steps 1 --plugin {typed(file)}"
                hint = f"{name} is a scheme; try it: {trial}"
            raise UsageError(f"abc check-task {' '.join(names)}: {hint}")
    report = abc.check_task(name, options=options)
    return Result(asdict(report), report.text)
