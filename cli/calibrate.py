"""``abc calibrate`` and ``abc retrain``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from abc_calib.config import (
    RETRAIN,
    AdoptOptions,
    CalibrationOptions,
    RetrainedOptions,
    TrainOptions,
)
from abc_calib.errors import AbcError, UsageError
from abc_calib.text import Table
from cli.command import Device, Out, RunArgument, Track, command
from cli.console import Result, say, typed
from cli.train import trained

if TYPE_CHECKING:
    from abc_calib.calibration.pipeline import Calibration
    from abc_calib.nn.foreign.checks import Neutrality
    from abc_calib.runs import Run

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
    """Find the lines that a trained model attends along, and retrain with them as biases.

    Examples: **abc calibrate --dirs diag,anti,vert** · **abc calibrate --fit mean --threshold 2
    --no-retrain** · **abc calibrate --hf FOLDER --data pairs.jsonl --delimiters "+,="**
    """
    from abc_calib import stages

    calibrated = stages.calibrate(
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

    Example: **abc retrain runs/addition-calibrated-seed0-1**
    """
    from abc_calib import stages

    retrained = stages.retrain(run, device=device, track=track)
    return trained(retrained, *compared(retrained))


def adopted(run: str | None, foreign: AdoptOptions, **work: Any) -> Any:
    """Return the run to work on: that of a model in a folder, where ``--hf`` names one."""
    if not foreign.is_given:
        return run
    from abc_calib import stages

    if run is not None:
        raise UsageError(f"{typed(run)}: a run has its model; leave out it or --hf")

    def say_change(change: Neutrality) -> None:
        logits, attention = f"{change.logits:.1g}", f"{change.attention:.1g}"
        say(f"a bias of zeros changes logits by at most {logits}, attention by {attention}")

    options = foreign.model_dump(exclude_none=True)
    adopted_run = stages.adopt(options.pop("hf"), on_checked=say_change, **options, **work)
    rule = adopted_run.task.follows
    follow = f"are {rule.description}" if rule else "follow no rule of abc tasks"
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
    say("assigned: no line found in these heads; they use one of their layer's")


def compared(run: Run) -> list[str]:
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
