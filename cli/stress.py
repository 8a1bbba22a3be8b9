"""``abc stress``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from abc_calib.config import MachineOptions, StressOptions
from abc_calib.text import Table
from cli.command import FREE, Force, RunArgument, command, opened
from cli.console import Result, Sentence

if TYPE_CHECKING:
    from abc_calib.evaluation.stress import Stressed


@command(MachineOptions, without=("device",), threads=FREE, tables=True)
def stress(wanted: StressOptions, run: RunArgument = None, force: Force = False) -> Result:
    """Look for inputs that a model gets wrong: carry chains, all nines, and a search.

    Writes stress.json into the run.

    Examples: **abc stress** · **abc stress RUN --lengths 6,50,200 --search 5000**
    """
    from abc_calib import stages
    from abc_calib.evaluation.stress import smallest

    found = opened(run, force)
    rows: list[Stressed] = []
    stages.stress(found, options=wanted, on_row=rows.append)
    least, path, table = smallest(rows), found.path / "stress.json", _table(rows)
    failure = (
        "nothing failed"
        if least is None
        else Sentence(f"smallest failure: {least.text()}; around it are {' / '.join(least.around)}")
    )
    told = json.loads(path.read_text())
    return Result(told, [table, failure], [f"written to {path}"], table)


def _table(rows: list[Stressed]) -> Table:
    lengths = sorted({row.length for row in rows})
    lines: dict[str, dict[int, str]] = {}
    for row in rows:
        lines.setdefault(row.family, {})[row.length] = f"{row.wrong}/{row.n}"
    if margins := {row.length: f"{row.margin:.2f}" for row in rows if row.margin is not None}:
        lines["smallest margin in the search"] = margins
    heads = [str(length) for length in lengths]
    cells = [[name, *map(found.get, lengths)] for name, found in lines.items()]
    return Table(["inputs", *heads], cells, right=heads, title="wrong of tried, by digits")
