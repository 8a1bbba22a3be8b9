"""``abc calibrate`` and ``abc retrain``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from abc_calib.config import (
    RETRAIN,
    AdoptOptions,
    CalibrationOptions,
    MachineOptions,
    RetrainedOptions,
    build,
)
from abc_calib.config.options import taken
from abc_calib.errors import UsageError
from cli import console
from cli.options import AsJson, Out, Quiet, RunArgument, options
from cli.train import report

if TYPE_CHECKING:
    from abc_calib.calibration.fits.base import LineRow
    from abc_calib.calibration.pipeline import Calibration
    from abc_calib.calibration.trial import Check
    from abc_calib.nn.foreign.checks import Neutrality
    from abc_calib.runs import Run


@console.command
@options(
    CalibrationOptions,
    RetrainedOptions,
    RETRAIN,
    MachineOptions,
    AdoptOptions,
    without=("length", "format"),
    kept=("seed", "sampling"),
)
def calibrate(
    run: RunArgument = None,
    no_retrain: Annotated[bool, typer.Option("--no-retrain", help="Stop before.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Even if the model has not interpolated.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Show the lines of every head, one by one.")
    ] = False,
    out: Out = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Find the lines that a trained model attends along, and retrain with them as biases.

    Examples: **abc calibrate --dirs diag,anti,vert** · **abc calibrate --fit mean --threshold 2
    --no-retrain** · **abc calibrate --hf FOLDER --data pairs.jsonl --delimiters "+,="**
    """
    from abc_calib import stages
    from abc_calib.evaluation.memory import dense_note

    named = adopted(run, build(AdoptOptions, **taken(AdoptOptions, given)), given, quiet)
    made = stages.calibrate(
        named,
        force=force,
        retrain=not no_retrain,
        out=out,
        on_check=lambda check: console.say(describe(check), quiet),
        on_lines=lambda _, found: None if as_json or quiet else show_lines(found, everything),
        progress=not quiet,
        **given,
    )
    console.say(dense_note(made), quiet)
    if not no_retrain:
        _report(made, quiet, as_json)
    elif as_json:
        console.print_json({"run": str(made), "retrained": False})
    else:
        console.say(f"{made}: calibrated; next: abc retrain", quiet)


def adopted(
    run: str | None, asked: AdoptOptions, given: dict[str, Any], quiet: bool
) -> str | Run | None:
    """The run to calibrate: that of a model in a folder, where ``--hf`` names one."""
    if not asked.check():
        return run
    assert asked.hf is not None and asked.data is not None and asked.delimiters is not None
    from abc_calib import stages

    if run is not None:
        raise UsageError(f"{console.typed(run)}: a run has its model; leave out it or --hf")

    def checked(found: Neutrality) -> None:
        console.say(
            f"a bias of zeros changes its logits by at most {found.logits:.1g}, and its attention "
            f"by {found.attention:.1g}",
            quiet,
        )

    made = stages.adopt(
        asked.hf,
        asked.data,
        asked.delimiters,
        fit_lengths=asked.fit_lengths or "",
        check_lengths=asked.check_lengths or "",
        seed=given.get("seed") or 0,
        on_checked=checked,
    )
    console.say(f"{made}: the model as it is, {made.summary}", quiet)
    return made


@console.command
@options(MachineOptions)
def retrain(
    run: RunArgument = None, quiet: Quiet = False, as_json: AsJson = False, **given: Any
) -> None:
    """Train the model of a run that was calibrated with --no-retrain.

    Example: **abc retrain runs/addition-calibrated-seed0-1**
    """
    from abc_calib import stages

    _report(stages.retrain(run, progress=not quiet, **given), quiet, as_json)


def _report(run: Run, quiet: bool, as_json: bool) -> None:
    """How the retraining ended, beside the first training."""
    from abc_calib.stages import held_out_loss

    report(run, quiet, as_json)
    console.say(held_out_loss(run), quiet)
    if not as_json:
        console.say(time_ratio(run), quiet)


def describe(check: Check) -> str:
    """One line about a candidate that was tried."""
    return (
        f"lines above {check.threshold:.0%} of a head's attention ({check.lines}, about "
        f"{check.windows:.2g} windows): {100 * check.accuracy:.1f} % on lengths left out"
    )


SHORT = 18
"""Lines that are told unless all are asked for."""


def show_lines(found: Calibration, everything: bool = False) -> None:
    """What was found: each different line with its heads, or the row of every head."""
    if everything:
        show_rows(found)
        return
    console.tell(f"lines, from {found.samples} right training samples")
    groups: dict[tuple[str, int, str], list[LineRow]] = {}
    for row in found.table:
        if row.note not in HEADS_WITHOUT:
            groups.setdefault((row.site, row.layer, row.line), []).append(row)
    rows = [
        (
            *(site, "last" if layer < 0 else layer, line, ",".join(str(r.head) for r in mine)),
            f"{max(row.weight for row in mine):.2f}",
            ", ".join(sorted({row.note for row in mine if row.note})),
        )
        for (site, layer, line), mine in groups.items()
    ]
    columns = ("site", "layer", "line", "heads", "weight", "note")
    console.print_table(columns, rows[:SHORT], right=("weight",), whole=columns[:3])
    for note, words in HEADS_WITHOUT.items():
        if count := sum(row.note == note for row in found.table):
            console.tell(f"{count} heads {note}: {words}")
    if any(row.note == "assigned" for row in found.table):
        console.tell("assigned: a head without a line of its own takes one of its layer")
    if any("segment" in row.line for row in found.table):
        console.tell("segment 1, 2: counted within the first, the second operand of the source")
    if len(rows) > SHORT:
        console.tell(f"and {len(rows) - SHORT} more lines")
    console.tell("abc calibrate --all shows a row for every head; lines.csv holds them")


HEADS_WITHOUT = {
    "sink": "no line; closed onto a token that tells the row nothing new",
    "transparent": "no line; may look at everything",
}
"""Notes of heads without a line, and what they mean."""


def show_rows(found: Calibration) -> None:
    """The kept lines as a table, a row for every head."""
    console.print_table(
        ("site", "layer", "head", "line", "weight", "value", "note"),
        (
            (
                *(row.site, "last" if row.layer < 0 else row.layer, row.head, row.line),
                *(f"{row.weight:.3f}", f"{row.value:.3f}", row.note),
            )
            for row in found.table
        ),
        right=("weight", "value"),
        title=f"lines, from {found.samples} right training samples",
    )


def time_ratio(run: Run) -> str:
    """The retraining's time against the first training's, as the paper reports it.

    Empty where the first run is no longer there, or somebody else trained its model.
    """
    from abc_calib.stages import first_result

    first = first_result(run)
    if not first or not run.result or not first["seconds"]:
        return ""
    whole = run.result["seconds"] / first["seconds"]
    right = [e for e in run.history() if e["validation_accuracy"] >= first["validation_accuracy"]]
    share = right[0]["seconds"] / first["seconds"] if right else 0.0
    again = f", and was as good on held-out numbers after {share:.2f} of it" if right else ""
    return (
        f"retraining took {whole:.2f} of the first training's time{again} (the paper: 0.01 to 0.1)"
    )
