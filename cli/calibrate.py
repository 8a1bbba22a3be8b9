"""``abc calibrate`` and ``abc retrain``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cli import console
from cli.options import AsJson, Device, Out, Quiet, RunArgument, Threads
from cli.train import report


@console.command
def calibrate(
    run: RunArgument = None,
    dirs: Annotated[
        str, typer.Option(help="Directions of lines: diag, anti, vert, with commas between.")
    ] = "diag,anti,vert",
    fit: Annotated[
        str, typer.Option(help="nnls (lines from the delimiters) or mean (the paper's).")
    ] = "nnls",
    threshold: Annotated[
        float | None,
        typer.Option(
            help="nnls: least share of a head's attention on a line (default 0.2); "
            "mean: k, for lines above mean + k standard deviations (default 4)."
        ),
    ] = None,
    samples: Annotated[int, typer.Option(help="Training samples to read attention from.")] = 2048,
    layer: Annotated[
        str | None,
        typer.Option(help="Whose attention a layer's lines are from: own, first, last."),
    ] = None,
    sites: Annotated[
        str, typer.Option(help="Where to put lines: self, cross, encoder, with commas, or all.")
    ] = "all",
    anchors: Annotated[
        str | None, typer.Option(help="Lines count from a segment's delimiters, or the corner.")
    ] = None,
    closed: Annotated[
        float | None, typer.Option(help="Added off the lines, such as -5; by default -inf.")
    ] = None,
    values: Annotated[
        str | None, typer.Option(help="Lines fully open (hard), or as attended to (soft).")
    ] = None,
    empty: Annotated[
        str | None, typer.Option(help="Heads without lines: transparent, or closed on a delimiter.")
    ] = None,
    scheme: Annotated[str, typer.Option(help="Positions of the retrained model.")] = "none",
    no_retrain: Annotated[bool, typer.Option("--no-retrain", help="Stop before.")] = False,
    steps: Annotated[int | None, typer.Option(help="Steps of the retraining.")] = None,
    batch: Annotated[int | None, typer.Option(help="Samples a step.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Highest learning rate.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed; the first training's by default.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Even if the model has not interpolated.")
    ] = False,
    out: Out = None,
    device: Device = "auto",
    threads: Threads = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Find the lines that a trained model attends along, and retrain with them as biases.

    Examples: **abc calibrate --dirs diag,anti,vert** · **abc calibrate --fit mean --threshold 2
    --no-retrain**
    """
    from abc_calib import stages
    from abc_calib.config import PRESETS
    from abc_calib.runs import Run

    console.set_threads(threads, training=True)
    opened = Run.open(run)
    total = steps or PRESETS[opened.config.preset][2].steps
    given: dict[str, Any] = {
        "steps": steps,
        "batch": batch,
        "learning_rate": learning_rate,
        "seed": seed,
    }
    given |= {"layer": layer, "anchors": anchors, "closed": closed, "values": values}
    given |= {"empty": empty, "threshold": threshold, "seed": seed}
    if sites != "all":
        given["sites"] = split(sites)
    with console.training_progress("retraining", total, quiet) as on_step:
        made = stages.calibrate(
            opened if run else None,
            fit=fit,
            dirs=split(dirs),
            samples=samples,
            scheme=scheme,
            force=force,
            retrain=not no_retrain,
            out=out,
            device=device,
            on_step=on_step,
            on_check=lambda check: console.say(describe(check), quiet),
            on_lines=lambda _, found: None if as_json or quiet else show_lines(found),
            **{name: value for name, value in given.items() if value is not None},
        )
    from abc_calib.evaluation.memory import dense_note

    console.say(dense_note(made), quiet)
    if no_retrain:
        if as_json:
            console.print_json({"run": str(made), "retrained": False})
        else:
            console.say(f"{made}: calibrated; next: abc retrain", quiet)
        return
    report(made, quiet, as_json)
    if not as_json:
        console.say(time_ratio(made), quiet)


@console.command
def retrain(
    run: RunArgument = None,
    device: Device = "auto",
    threads: Threads = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train the model of a run that was calibrated with --no-retrain.

    Example: **abc retrain runs/addition-calibrated-seed0-1**
    """
    from abc_calib import stages
    from abc_calib.runs import Run

    console.set_threads(threads, training=True)
    opened = Run.open(run)
    with console.training_progress("retraining", opened.config.train.steps, quiet) as on_step:
        made = stages.retrain(opened, device=device, on_step=on_step)
    report(made, quiet, as_json)
    if not as_json:
        console.say(time_ratio(made), quiet)


def split(words: str) -> list[str]:
    """The words between commas."""
    return [word.strip() for word in words.split(",") if word.strip()]


def describe(check: Any) -> str:
    """One line about a candidate that was tried."""
    return (
        f"lines above {check.threshold:.0%} of a head's attention ({check.lines} different): "
        f"{100 * check.accuracy:.1f} % on training lengths that they were not trained on"
    )


def show_lines(found: Any) -> None:
    """The kept lines as a table."""
    from rich.table import Table

    table = Table(title=f"lines, from {found.samples} correctly decoded training samples")
    for name in ("site", "layer", "head", "line", "weight", "value", "note"):
        table.add_column(name, justify="right" if name in ("weight", "value") else "left")
    for row in found.table:
        layer = "last" if row.layer < 0 else str(row.layer)
        cells = (row.site, layer, str(row.head), row.line)
        table.add_row(*cells, f"{row.weight:.3f}", f"{row.value:.3f}", row.note)
    console.out.print(table)


def time_ratio(run: Any) -> str:
    """The retraining's time against the first training's, as the paper reports it.

    Empty where the first run is no longer there.
    """
    from abc_calib.errors import AbcError
    from abc_calib.runs import Run

    try:
        first = Run.open(run.config.parent).result
    except AbcError:
        return ""
    if not first:
        return ""
    whole = run.result["seconds"] / max(first["seconds"], 1e-9)
    right = [e for e in run.history() if e["validation_accuracy"] >= first["validation_accuracy"]]
    share = right[0]["seconds"] / max(first["seconds"], 1e-9) if right else 0.0
    again = f", and was as good on held-out numbers after {share:.2f} of it" if right else ""
    return (
        f"retraining took {whole:.2f} of the first training's time{again} (the paper: 0.01 to 0.1)"
    )
