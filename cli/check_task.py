"""``abc check-task``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from abc_calib.config import TaskOptions
from abc_calib.errors import UsageError
from cli.command import command
from cli.completion import of
from cli.console import Result


@command(TaskOptions)
def check_task(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="[FILE] TASK",
            help="The task; of one's own, after the file that it is in.",
            autocompletion=of("task"),
        ),
    ],
    wanted: TaskOptions,
) -> Result:
    """Check, before any training, whether a task can be calibrated and certified.

    Does what it writes follow from a few columns? Do its answers and its rule agree? How many
    windows will there be?

    Examples: **abc check-task my_task.py minus** · **abc check-task automaton --name s5**
    """
    from abc_calib import stages

    *files, name = names
    if len(files) > 1:
        raise UsageError(f"abc check-task {' '.join(names)}: give a file and a task's name")
    for file in files:
        stages.load_plugin(file)
    found = stages.check_task(name, options=wanted)
    return Result(asdict(found), found.text)
