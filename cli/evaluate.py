"""``abc eval``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from abc_calib.config import EvaluateOptions, MachineOptions
from abc_calib.text import counted
from cli.command import FREE, Force, RunArgument, command, opened
from cli.console import Result

if TYPE_CHECKING:
    from abc_calib.evaluation import Row


class Evaluate(TyperCommand):
    """The command, with ``--stress`` alone for ``--stress hard``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--stress" in args:
            after = args.index("--stress") + 1
            if after == len(args) or args[after].startswith("-"):
                args = [*args[:after], "hard", *args[after:]]
        return super().parse_args(ctx, args)


@command(MachineOptions, threads=FREE, tables=True)
def evaluate(
    wanted: EvaluateOptions,
    run: RunArgument = None,
    force: Force = False,
    intervals: Annotated[
        bool, typer.Option("--intervals", help="With --latex and --csv: the 95 % intervals, too.")
    ] = False,
    **given: Any,
) -> Result:
    """Exact match of whole outputs at each length, with 95 % intervals.

    Examples: **abc eval --max-len 50 --json** · **abc eval --lengths 100,1000 --samples 1000
    --stress** · **abc eval --stress carry**
    """
    from abc_calib import stages
    from abc_calib.evaluation import SequenceRow
    from abc_calib.reporting.tables import accuracy_table, plain_accuracy_table, token_table
    from abc_calib.runs.rows import kept_rows

    found = opened(run, force)
    rows: list[Row] = []
    stages.evaluate(found, options=wanted, on_row=rows.append, **given)
    by_set = {kind: [row for row in rows if row.set == kind] for kind in wanted.sets}
    words = [row for row in rows if isinstance(row, SequenceRow)]
    file = found.path / "eval.csv"
    remark = f"written to {file}"
    if kept := kept_rows(file, (row.as_dict() for row in rows)):
        remark += (
            f", which keeps {kept} of {counted(len(rows), 'rows')}, measured with more samples"
        )
    caption = f"Exact match in percent of {found.config.task} ({found.config.stage}), by length"
    return Result(
        {"run": str(found), "task": found.config.task, "rows": [row.as_dict() for row in rows]},
        [token_table(words) if words else accuracy_table(by_set)],
        [remark],
        plain_accuracy_table(by_set, caption, f"tab:{found.config.task}", intervals),
    )
