"""``abc train``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from abc_calib.config import MODEL_OPTIONS, RecipeOptions, TaskOptions, TrainOptions
from abc_calib.errors import UsageError
from cli.command import Device, Out, Track, command
from cli.completion import run_names, task_names
from cli.console import Result

if TYPE_CHECKING:
    from abc_calib.runs import Run

Task = Annotated[
    str | None,
    typer.Argument(help="The task: see abc tasks. Not with --resume.", autocompletion=task_names),
]
Finetune = Annotated[
    str | None,
    typer.Option(
        help="Start from the weights of this run, with its model.", autocompletion=run_names
    ),
]
Resume = Annotated[
    str | None,
    typer.Option(
        help="Go on with this interrupted run; no other options.", autocompletion=run_names
    ),
]


@command(TaskOptions, RecipeOptions, TrainOptions, *MODEL_OPTIONS.values())
def train(
    task: Task = None,
    finetune: Finetune = None,
    resume: Resume = None,
    out: Out = None,
    device: Device = "auto",
    track: Track = None,
    **keywords: Any,
) -> Result:
    """Train a model on short problems until it has learned them.

    Examples: **abc train successor** · **abc train addition --base 16 --seed 3** ·
    **abc train --resume runs/addition-vanilla-seed3-1**
    """
    from abc_calib import stages

    if (task is None) == (resume is None):
        raise UsageError("name a task (abc tasks lists them), or a run to --resume")
    if task is not None:
        work: Any = {"out": out, "device": device, "track": track, "finetune": finetune}
        return trained(stages.train(task, **work, **keywords))
    if finetune or out or keywords:
        raise UsageError("--resume goes on as the run began: leave out the other options")
    return trained(stages.resume(resume, device=device, track=track))


def trained(run: Run, *remarks: str) -> Result:
    """Report how a training ended, what comes next, and ``remarks``."""
    from abc_calib.training.trainer import INTERPOLATED, THROUGHOUT

    result, stage, over = run.result, run.config.stage, run.history()[-1].get("over")
    assert result is not None
    right = result["validation_accuracy"]
    ended = (
        f"{run}: {right} % of {result['validation_samples']} held-out "
        f"problems of {run.config.train.length} {run.task.unit} after {result['steps']} steps, "
        f"{result['seconds']:.0f} s"
    )
    if over == "lines":
        then = "its lines decide what is written; next: abc calibrate"
    elif right < 100 * (THROUGHOUT if stage == "vanilla" else INTERPOLATED):
        wrong = f"{100 - right:.4g} % of held-out ones are wrong"
        then = (
            f"it has not learned its training problems: {wrong}; try another --seed or more --steps"
        )
    elif stage == "vanilla" and not run.fresh_model().no_lines:
        then = "next: abc calibrate --dirs diag,anti,vert"
    else:
        then = "next: abc eval --max-len 50" if stage == "calibrated" else "next: abc eval"
    if over == "windows":
        why = "every case is right, with a margin of at least 3 (--no-stop-early goes on)"
        remarks = (f"ended before step {run.config.train.steps:,}: {why}", *remarks)
    return Result({"run": str(run), **result}, remarks=[ended, *remarks, then])
