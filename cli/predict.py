"""``abc predict``."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Annotated, Any

import typer

from abc_calib.config import MachineOptions
from abc_calib.progress import busy
from cli import console
from cli.completion import run_names
from cli.options import AsJson, Force, opened, options

if TYPE_CHECKING:
    from abc_calib.evaluation import Prediction


@console.command
@options(MachineOptions)
def predict(
    problem: Annotated[str, typer.Argument(help='A problem of the run\'s task, as in "999+1".')],
    run: Annotated[
        str | None, typer.Option(help="A run; the latest by default.", autocompletion=run_names)
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Also which input digits each output digit read.")
    ] = False,
    force: Force = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Let a trained model answer one problem.

    Example: **abc predict "999999999999+1"**
    """
    from abc_calib import stages

    with busy("writing", None):
        found = stages.predict(opened(run, force), problem, show=show, **given)
    if as_json:
        console.print_json(
            {"problem": problem, "answer": found.answer, "correct": found.correct}
            | ({"attended": _named(found)} if show else {})
        )
        return
    console.tell(found.answer)
    if show:
        show_attention(found)
    if found.correct is None:
        console.say("nothing says whether this is right: its pairs follow no rule that is known")
    elif not found.correct:
        console.say("this is wrong: the model has not learned this one")


def _named(found: Prediction) -> list[list[dict[str, Any]]]:
    return [
        [{"place": found.places[k], "digit": found.tokens[k], "weight": w} for k, w in keys]
        for keys in found.attended
    ]


def show_attention(found: Prediction) -> None:
    """For each output token, the source tokens it attended to."""
    read = [
        "  ".join(f"{found.places[key]}={found.tokens[key]} ({weight:.2f})" for key, weight in keys)
        for keys in found.attended
    ]
    console.print_table(
        ("step", "writes", "reads (a0: last digit of the first operand)"),
        zip(count(1), found.output, read, strict=False),
        title="output, least significant digit first",
    )
