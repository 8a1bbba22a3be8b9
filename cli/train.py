"""``abc train``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from abc_calib.config import (
    MODEL_OPTIONS,
    DeviceOptions,
    RecipeOptions,
    TaskOptions,
    ThreadOptions,
    TrackOptions,
    TrainOptions,
)
from abc_calib.config.training import TRAINING
from abc_calib.errors import UsageError
from cli.command import Out, command
from cli.completion import run_names, task_names
from cli.console import Result

if TYPE_CHECKING:
    from abc_calib.runs import Run


@command(
    TaskOptions,
    RecipeOptions,
    TrainOptions,
    *MODEL_OPTIONS.values(),
    DeviceOptions,
    ThreadOptions,
    TrackOptions,
)
def train(
    task: Annotated[
        str | None,
        typer.Argument(
            help="The task: see abc tasks. Not with --resume.", autocompletion=task_names
        ),
    ] = None,
    finetune: Annotated[
        str | None,
        typer.Option(
            help="Start from the weights of this run, with its model.",
            rich_help_panel=TRAINING,
            autocompletion=run_names,
        ),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            help="Go on with this interrupted run; no other options.",
            rich_help_panel=TRAINING,
            autocompletion=run_names,
        ),
    ] = None,
    out: Out = None,
    **keywords: Any,
) -> Result:
    """Train a model on short problems until it interpolates.

    Examples: **abc train successor** · **abc train addition --base 16 --seed 3** ·
    **abc train --resume runs/addition-vanilla-seed3-1**
    """
    from abc_calib import stages

    if (task is None) == (resume is None):
        raise UsageError("name a task (abc tasks lists them), or a run to --resume")
    if task is not None:
        return trained(stages.train(task, finetune=finetune, out=out, **keywords))
    if finetune or out or keywords.keys() - {"device", "track"}:
        raise UsageError("--resume goes on as the run began: leave out the other options")
    return trained(stages.resume(resume, **keywords))


ENDED = "every window is right by 3 logits or more (--no-stop-early goes on)"


def trained(run: Run, *remarks: str) -> Result:
    """How a training ended, what comes next, and what else is to be said."""
    result = run.result
    assert result is not None
    ended = (
        f"{run}: {result['validation_accuracy']} % of {result['validation_samples']} held-out "
        f"problems of {run.config.train.length} {run.task.unit} after {result['steps']} steps, "
        f"{result['seconds']:.0f} s"
    )
    over = run.history()[-1].get("over")
    if over == "lines":
        then = "its lines decide what is written; next: abc calibrate"
    elif not result["interpolated"]:
        then = "it has not interpolated: try another --seed, or more --steps"
    elif run.fresh_model().no_lines:
        then = "next: abc eval"
    elif run.config.stage == "vanilla":
        then = "next: abc calibrate --dirs diag,anti,vert"
    else:
        then = "next: abc eval --max-len 50"
    if over == "windows":
        remarks = (f"ended before step {run.config.train.steps:,}: {ENDED}", *remarks)
    return Result({"run": str(run), **result}, remarks=[ended, *remarks, then])
