"""``abc predict``."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Annotated, Any

import typer

from abc_calib.config import MachineOptions
from abc_calib.progress import busy
from abc_calib.text import Table
from cli.command import Force, command, opened
from cli.completion import run_names
from cli.console import Result

if TYPE_CHECKING:
    from abc_calib.evaluation import Prediction


@command(MachineOptions)
def predict(
    problem: Annotated[str, typer.Argument(help='A problem of the run\'s task, as in "999+1".')],
    run: Annotated[
        str | None, typer.Option(help="A run; the latest by default.", autocompletion=run_names)
    ] = None,
    show: Annotated[
        bool,
        typer.Option(
            "--show", help="Also all rows, and which input digits each output digit read."
        ),
    ] = False,
    force: Force = False,
    **given: Any,
) -> Result:
    """Let a trained model answer one problem.

    Example: **abc predict "999999999999+1"**
    """
    from abc_calib import stages
    from tasks.rules import ROW

    with busy("writing", None):
        found = stages.predict(opened(run, force), problem, show=show, **given)
    data: dict[str, Any] = {"problem": problem, "answer": found.answer, "correct": found.correct}
    remark = found.remark if found.correct else "this is wrong: the model has not learned this one"
    if found.correct is None:
        remark = "nothing says whether this is right: its pairs follow no rule that is known"
    if not show:
        return Result(data, [found.answer], [remark])
    rows = " ".join(found.output[:-1]).replace(f" {ROW} ", f" {ROW}\n")
    several = [f"rows\n{rows}"] if ROW in found.output else []
    data |= {"attended": _named(found), "output": found.output}
    return Result(data, [found.answer, *several, _attention(found)], [remark])


def _named(found: Prediction) -> list[list[dict[str, Any]]]:
    return [
        [{"place": found.places[k], "digit": found.tokens[k], "weight": w} for k, w in keys]
        for keys in found.attended
    ]


def _attention(found: Prediction) -> Table:
    """For each output token, the source tokens it attended to."""
    read = [
        "  ".join(f"{found.places[key]}={found.tokens[key]} ({weight:.2f})" for key, weight in keys)
        for keys in found.attended
    ]
    return Table(
        ("step", "writes", "reads (a0: the last token of the first operand)"),
        list(zip(count(1), found.output, read, strict=False)),
        2,
        title="output, in the order of writing",
    )
