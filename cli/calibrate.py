"""``abc calibrate`` and ``abc retrain``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from abc_calib.config import (
    RETRAIN,
    AdoptOptions,
    CalibrationOptions,
    DeviceOptions,
    RetrainedOptions,
    ThreadOptions,
    TrackOptions,
    TrainOptions,
)
from abc_calib.errors import AbcError, UsageError
from abc_calib.progress import is_quiet
from abc_calib.text import Table
from cli.command import Out, RunArgument, command
from cli.console import Result, say, show_early, typed
from cli.train import trained

if TYPE_CHECKING:
    from abc_calib.calibration.fits.base import LineRow
    from abc_calib.calibration.pipeline import Calibration
    from abc_calib.nn.foreign.checks import Neutrality
    from abc_calib.runs import Run


KEPT = dict.fromkeys(("seed", "sampling"), "as in the first training")


@command(
    *(CalibrationOptions, RetrainedOptions, RETRAIN, DeviceOptions, ThreadOptions, TrackOptions),
    without=("length", "format"),
    defaults=KEPT,
)
def calibrate(
    options: CalibrationOptions,
    training: TrainOptions,
    retrained_with: RetrainedOptions,
    machine: DeviceOptions,
    follow: TrackOptions,
    foreign: AdoptOptions,
    run: RunArgument = None,
    no_retrain: Annotated[bool, typer.Option("--no-retrain", help="Stop before.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Even if the model has not interpolated.")
    ] = False,
    out: Out = None,
) -> Result:
    """Find the lines that a trained model attends along, and retrain with them as biases.

    Examples: **abc calibrate --dirs diag,anti,vert** · **abc calibrate --fit mean --threshold 2
    --no-retrain** · **abc calibrate --hf FOLDER --data pairs.jsonl --delimiters "+,="**
    """
    from abc_calib import stages

    calibrated = stages.calibrate(
        adopted(run, foreign, seed=training.seed),
        *(options, training),
        scheme=retrained_with.scheme,
        device=machine.device,
        track=follow.track,
        force=force,
        retrain=not no_retrain,
        out=out,
        on_check=lambda check: say(check.text),
        on_lines=lambda _, calibration: None if is_quiet() else show_early(*lines(calibration)),
    )
    if no_retrain:
        next_step = f"{calibrated}: calibrated; next: abc retrain"
        return Result({"run": str(calibrated), "retrained": False}, remarks=[next_step])
    return retrained(calibrated)


def adopted(run: str | None, foreign: AdoptOptions, **how: Any) -> Any:
    """The run to work on: that of a model in a folder, where ``--hf`` names one."""
    if not foreign.check():
        return run
    from abc_calib import stages

    if run is not None:
        raise UsageError(f"{typed(run)}: a run has its model; leave out it or --hf")

    def checked(change: Neutrality) -> None:
        say(
            f"a bias of zeros changes its logits by at most {change.logits:.1g}, and its attention "
            f"by {change.attention:.1g}"
        )

    options = foreign.model_dump(exclude_none=True)
    adopted_run = stages.adopt(options.pop("hf"), on_checked=checked, **options, **how)
    rule = adopted_run.task.follows
    description = (
        f"are {rule.description}" if rule else "follow no rule of abc tasks: their rule is unknown"
    )
    say(f"{adopted_run}: the model as it is, {adopted_run.summary}; its pairs {description}")
    return adopted_run


@command(DeviceOptions, ThreadOptions, TrackOptions)
def retrain(run: RunArgument = None, **keywords: Any) -> Result:
    """Train the model of a run that was calibrated with --no-retrain.

    Example: **abc retrain runs/addition-calibrated-seed0-1**
    """
    from abc_calib import stages

    return retrained(stages.retrain(run, **keywords))


def retrained(run: Run) -> Result:
    """How the retraining ended, compared with the first training."""
    return trained(run, *compared(run))


SEGMENT = re.compile(r"segment (\d+)")
MOST_LINES = 18
"""Lines that are shown unless all are asked for."""
WITHOUT = {
    "sink": "no line; closed onto a token that tells the row nothing new",
    "transparent": "no line; may look at everything",
}
"""Notes of heads without a line, and what they mean."""


def lines(calibration: Calibration) -> list[str | Table]:
    """What was found: each different line with its heads."""
    groups: dict[tuple[str, int, str], list[LineRow]] = {}
    for row in calibration.table:
        if row.note not in WITHOUT:
            groups.setdefault((row.site, row.layer, row.line), []).append(row)
    rows = [
        (
            *(site, "last" if layer < 0 else layer, line, ",".join(str(r.head) for r in group)),
            f"{max(row.weight for row in group):.2f}",
            ", ".join(sorted({row.note for row in group if row.note})),
        )
        for (site, layer, line), group in groups.items()
    ]
    columns = ("site", "layer", "line", "heads", "weight", "note")
    shown: list[str | Table] = [
        f"lines, from {calibration.samples} right training samples",
        Table(columns, rows[:MOST_LINES], right=("weight",)),
    ]
    counts = {note: sum(row.note == note for row in calibration.table) for note in WITHOUT}
    shown += [f"{count} heads {note}: {WITHOUT[note]}" for note, count in counts.items() if count]
    if any(row.note == "assigned" for row in calibration.table):
        shown.append("assigned: a head without a line of its own takes one of its layer")
    segments = sorted({number for row in calibration.table for number in SEGMENT.findall(row.line)})
    if segments[-1:] > ["1"]:
        shown.append("segment 1, 2: counted within the first, the second operand of the source")
    elif segments:
        shown.append("segment 1: counted within the source, 0 being what opens it")
    if len(rows) > MOST_LINES:
        shown.append(f"and {len(rows) - MOST_LINES} more lines")
    return [*shown, "lines.csv has a row for every head"]


def compared(run: Run) -> list[str]:
    """Is a retrained model worse on held-out problems, and how long did its training take?

    Against the first training, as the paper reports it. Empty where that run is gone, or its model
    was trained elsewhere.
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
        times = [e["seconds"] for e in run.history() if e["validation_accuracy"] >= before]
        share = f"{times[0] / first['seconds']:.2f}" if times else ""
        again = f", and was as good on held-out numbers after {share} of it" if share else ""
        remarks.append(
            f"retraining took {result['seconds'] / first['seconds']:.2f} of the first training's "
            f"time{again} (the paper: 0.01 to 0.1)"
        )
    return remarks
