"""``abc stress``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from abc_calib.config import MachineOptions, StressOptions
from cli import console
from cli.options import AsJson, Force, Quiet, RunArgument, opened, options

if TYPE_CHECKING:
    from abc_calib.evaluation.stress import Stressed


@console.command
@options(StressOptions, MachineOptions, without=("device",), in_parts=True)
def stress(
    run: RunArgument = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Look for inputs that a model gets wrong: carry chains, all nines, and a search.

    Writes stress.json into the run.

    Examples: **abc stress** · **abc stress RUN --lengths 6,50,200 --search 5000**
    """
    from abc_calib import stages
    from abc_calib.evaluation.stress import smallest

    found = opened(run, force, quiet)
    done: list[Stressed] = []
    stages.stress(found, progress=not quiet, on_row=done.append, **given)
    least = smallest(done)
    if as_json:
        console.print_json(json.loads((found.path / "stress.json").read_text()))
        return
    _show(done)
    if least is None:
        console.tell("nothing failed")
    else:
        console.tell_sentence(
            f"smallest failure: {least.text()}; around it are {' / '.join(least.around)}"
        )
    console.say(f"written to {found.path / 'stress.json'}", quiet)


def _show(rows: list[Stressed]) -> None:
    lengths = sorted({row.length for row in rows})
    lines: dict[str, dict[int, str]] = {}
    for row in rows:
        lines.setdefault(row.family, {})[row.length] = f"{row.wrong}/{row.n}"
    if margins := {row.length: f"{row.margin:.2f}" for row in rows if row.margin is not None}:
        lines["smallest margin in the search"] = margins
    heads = [str(length) for length in lengths]
    console.print_table(
        ["inputs", *heads],
        ([name, *map(cells.get, lengths)] for name, cells in lines.items()),
        right=heads,
        title="wrong of tried, by digits",
    )
