"""``abc train``, ``abc calibrate`` and ``abc retrain``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

import abc_calib as abc
from abc_calib.config import (
    MODEL_OPTIONS,
    RETRAIN,
    AdoptOptions,
    CalibrationOptions,
    RecipeOptions,
    RetrainedOptions,
    TaskOptions,
    TrainOptions,
)
from abc_calib.errors import AbcError, UsageError
from abc_calib.text import Table
from cli.command import Device, Out, RunArgument, Track, command, run_names, task_names
from cli.console import Result, say, typed

if TYPE_CHECKING:
    from abc_calib.calibration.pipeline import Calibration

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
    """Train a model on short problems.

    Examples: **abc train successor** · **abc train addition --base 16 --seed 3** ·
    **abc train --resume runs/addition-seed3-vanilla-1**
    """
    if (task is None) == (resume is None):
        raise UsageError("give either a task (abc tasks lists them) or a run to --resume")
    if task is not None:
        work: Any = {"out": out, "device": device, "track": track, "finetune": finetune}
        return trained(abc.train(task, **work, **keywords))
    if finetune or out or keywords:
        raise UsageError("--resume goes on as the run began: leave out the other options")
    return trained(abc.resume(resume, device=device, track=track))


def trained(run: abc.Run, *remarks: str) -> Result:
    """Report how a training ended, what comes next, and ``remarks``."""
    from abc_calib.reporting.page.commands import plugin_flags
    from abc_calib.training.trainer import INTERPOLATED, THROUGHOUT

    result, stage, over = run.result, run.config.stage, run.history()[-1].get("over")
    assert result is not None
    right = result["validation_accuracy"]
    ended = (
        f"{run}: {right} % of {result['validation_samples']} held-out problems of "
        f"{run.config.train.length} {run.task.unit} after {result['steps']} steps, "
        f"{result['seconds']:.0f} s"
    )
    flags = plugin_flags(run.config)
    if over == "lines":
        then = f"its lines decide what is written; next: abc calibrate{flags}"
    elif not over and right < 100 * (THROUGHOUT if stage == "vanilla" else INTERPOLATED):
        then = (
            f"it has not learned its training problems: {100 - right:.4g} % of held-out ones are "
            "wrong; try another --seed or more --steps"
        )
    elif stage == "vanilla" and not run.fresh_model().no_lines:
        then = f"next: abc calibrate --dirs diag,anti,vert{flags}"
    else:
        far = stage == "calibrated" and run.data.only_lengths is None
        then = f"next: abc eval{' --max-len 50' * far}{flags}"
    if over == "windows":
        why = "every case that was looked at is right by 3 or more (--no-stop-early goes on)"
        remarks = (f"ended before step {run.config.train.steps:,}: {why}", *remarks)
    return Result({"run": str(run), **result}, remarks=[ended, *remarks, then])


DEFAULTS = RETRAIN.chosen | dict.fromkeys(
    ("seed", "sampling", "length", "format"), "as in the first training"
)
NoRetrain = Annotated[bool, typer.Option("--no-retrain", help="Only find lines.")]
Force = Annotated[bool, typer.Option("--force", help="Even if the model is often wrong.")]


@command(defaults=DEFAULTS)
def calibrate(
    options: CalibrationOptions,
    retrained_with: RetrainedOptions,
    training: TrainOptions,
    foreign: AdoptOptions,
    run: RunArgument = None,
    no_retrain: NoRetrain = False,
    force: Force = False,
    out: Out = None,
    device: Device = "auto",
    track: Track = None,
) -> Result:
    """Find the lines of attention and retrain with them as biases.

    Examples: **abc calibrate --dirs diag,anti,vert** · **abc calibrate --fit mean --threshold 2
    --no-retrain** · **abc calibrate --hf FOLDER --data pairs.jsonl --delimiters "+,="**
    """
    calibrated = abc.calibrate(
        adopted(run, foreign, seed=training.seed),
        *(options, retrained_with, training),
        device=device,
        track=track,
        force=force,
        retrain=not no_retrain,
        out=out,
        on_check=lambda check: say(check.text),
        on_lines=lambda _, calibration: say_lines(calibration),
    )
    if no_retrain:
        next_step = f"{calibrated}: calibrated; next: abc retrain"
        return Result({"run": str(calibrated), "retrained": False}, remarks=[next_step])
    return trained(calibrated, *compared(calibrated))


@command()
def retrain(run: RunArgument = None, device: Device = "auto", track: Track = None) -> Result:
    """Train the model of a run that was calibrated with --no-retrain.

    Example: **abc retrain runs/addition-seed0-calibrated-1**
    """
    retrained = abc.retrain(run, device=device, track=track)
    return trained(retrained, *compared(retrained))


def adopted(run: str | None, foreign: AdoptOptions, **work: Any) -> Any:
    """Return the run to work on: that of a model in a folder, where ``--hf`` names one."""
    if not foreign.is_given:
        return run
    if run is not None:
        raise UsageError(f"{typed(run)}: a run has its model; leave out it or --hf")

    def say_change(change: float) -> None:
        say(f"a bias of zeros changes logits by at most {change:.1g}")

    options = foreign.model_dump(exclude_none=True)
    adopted_run = abc.adopt(options.pop("hf"), on_checked=say_change, **options, **work)
    rule = adopted_run.task.follows
    follow = f"are {rule.name}" if rule else "follow no rule that was recognised (--task names one)"
    count = f"{len(adopted_run.task.pairs):,} pairs"
    say(f"{adopted_run}: the model as it is, {adopted_run.summary}; its {count} {follow}")
    return adopted_run


NO_LINE = {
    "sink": "always read a token that tells them nothing",
    "transparent": "may read everything",
}
"""Notes of heads without a line, and what they mean."""


def closer(line: str) -> str:
    """Say what a line reads that stays on the end of a number; nothing of others."""
    number = re.fullmatch(r"vert \+0 segment ([1-9]\d*)", line)
    return f"the token that closes number {number[1]}" if number else ""


def say_lines(calibration: Calibration) -> None:
    """Show each different line with its heads."""
    groups: dict[tuple[str, int, str], list[Any]] = {}
    for row in calibration.table:
        if row.note not in NO_LINE:
            groups.setdefault((row.site, row.layer, row.line), []).append(row)
    rows = [
        (
            *(site, "last" if layer < 0 else layer, line, ",".join(str(r.head) for r in group)),
            f"{max(row.weight for row in group):.2f}",
            ", ".join(sorted({closer(line), *(row.note for row in group)} - {""})),
        )
        for (site, layer, line), group in groups.items()
    ]
    columns = ("site", "layer", "line", "heads", "weight", "note")
    title = f"lines, from {calibration.samples} right training samples"
    say(Table(columns, rows, right=("weight",), title=title))
    for note, meaning in NO_LINE.items():
        if count := sum(row.note == note for row in calibration.table):
            say(f"{count} heads have no line; they {meaning}")
    if any("assigned" in row[-1] for row in rows):
        say("assigned: these heads have no line of their own and use one of their layer's")


def compared(run: abc.Run) -> list[str]:
    """Say whether a retrained model is worse on held-out problems, and how long it took.

    Against the first training; empty where that is gone, or the model was trained elsewhere.
    """
    try:
        first, result = type(run).open(run.config.parent).result, run.result
    except AbcError:
        return []
    if not first or not result:
        return []
    before, after = first["validation_accuracy"], result["validation_accuracy"]
    remarks = []
    if after < min(before, 99.9):
        remarks.append(
            f"worse than before calibration: {after} % of held-out problems, {before} % before. "
            "Try another --threshold, more --steps or another --seed"
        )
    if first["seconds"]:
        share = 100 * result["seconds"] / first["seconds"]
        remarks.append(f"retraining took {share:.0f} % as long as the first training")
    return remarks
