"""``abc train``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from abc_calib.config import (
    MODEL_OPTIONS,
    MachineOptions,
    RecipeOptions,
    TaskOptions,
    TrainOptions,
)
from abc_calib.config.training import TRAINING
from abc_calib.errors import UsageError
from cli import console
from cli.completion import run_names, task_names
from cli.options import AsJson, Out, Quiet, options

if TYPE_CHECKING:
    from abc_calib.runs import Run


@console.command
@options(TaskOptions, RecipeOptions, TrainOptions, *MODEL_OPTIONS.values(), MachineOptions)
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
    quiet: Quiet = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Train a model on short problems until it interpolates.

    Examples: **abc train successor** · **abc train addition --base 16 --seed 3** ·
    **abc train --resume runs/addition-vanilla-seed3-1**
    """
    from abc_calib import stages

    if (task is None) == (resume is None):
        raise UsageError("name a task (abc tasks lists them), or a run to --resume")
    given["progress"] = not quiet
    if task is not None:
        run = stages.train(task, finetune=finetune, out=out, **given)
    elif finetune or out or given.keys() - {"device", "progress"}:
        raise UsageError("--resume goes on as the run began: leave out the other options")
    else:
        run = stages.resume(resume, **given)
    report(run, quiet, as_json)


def report(run: Run, quiet: bool, as_json: bool) -> None:
    """How a training ended, and what comes next."""
    result = run.result
    assert result is not None
    if as_json:
        console.print_json({"run": str(run), **result})
        return
    console.say(
        f"{run}: {result['validation_accuracy']} % of {result['validation_samples']} held-out "
        f"problems of {run.config.train.length} {run.task.unit} after {result['steps']} steps, "
        f"{result['seconds']:.0f} s",
        quiet,
    )
    if not result["interpolated"]:
        console.say("it has not interpolated: try another --seed, or more --steps", quiet)
    elif run.fresh_model().no_lines:
        console.say("next: abc eval, or abc inspect --input ...", quiet)
    elif run.config.stage == "vanilla":
        console.say("next: abc calibrate --dirs diag,anti,vert", quiet)
    else:
        console.say("next: abc eval --max-len 50", quiet)
