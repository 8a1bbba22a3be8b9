"""``abc runs`` and ``abc tasks``."""

from __future__ import annotations

from typing import Any

from cli import console
from cli.options import AsJson


@console.command
def runs(as_json: AsJson = False) -> None:
    """List the runs, oldest first.

    Example: **abc runs --json**
    """
    from abc_calib.errors import AbcError
    from abc_calib.files import runs_root
    from abc_calib.runs import list_runs

    rows: list[dict[str, Any]] = []
    for run in list_runs():
        row: dict[str, Any] = {"run": str(run)}
        rows.append(row)
        try:
            config = run.config
            row |= {"task": config.task, "base": config.base, "stage": config.stage}
            row["seed"] = config.train.seed
            run.check(contents=False)
            result = run.result or {}
            row["state"] = "trained" if result else "not finished"
            row["held_out"] = result.get("validation_accuracy")
            row["seconds"] = result.get("seconds")
        except AbcError as error:
            row["state"] = f"unreadable: {error}"
    if as_json:
        console.print_json(rows)
        return
    if not rows:
        console.say(f"there is no run in {runs_root()} yet: abc train successor")
        return
    names = ("run", "task", "base", "stage", "seed", "state", "held_out", "seconds")
    heads = (name.replace("_", "-") for name in names)
    console.print_table(heads, ([row.get(name) for name in names] for row in rows))


@console.command
def tasks(as_json: AsJson = False) -> None:
    """List the tasks, with a sample each.

    Example: **abc tasks --json**
    """
    from abc_calib.errors import UsageError
    from abc_calib.plugins import KINDS, find
    from tasks import examples

    for name in KINDS["task"].installed:
        try:
            find("task", name)
        except UsageError as error:
            console.say(str(error))
    rows = examples()
    if as_json:
        console.print_json(rows)
        return
    console.print_table(("task", "what", "sample", "trained on"), (row.values() for row in rows))
