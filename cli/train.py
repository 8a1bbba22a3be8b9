"""``abc train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cli import console
from cli.options import AsJson, Device, Out, Quiet, Seed, Threads

TASK = "Task and data"
POSITIONS = "Positions"
TRANSFORMER = "Transformer"
RECURRENT = "Recurrent models (--model gru)"
TRAINING = "Training"
"""Panels of the help."""


@console.command
def train(
    task: Annotated[
        str | None, typer.Argument(help="The task: see abc tasks. Not with --resume.")
    ] = None,
    base: Annotated[
        int | None, typer.Option(help="Base of the digits, 2 to 36.", rich_help_panel=TASK)
    ] = None,
    tables: Annotated[
        int | None,
        typer.Option(
            help="Lookup: random tables that compose, instead of t1 to t6.", rich_help_panel=TASK
        ),
    ] = None,
    tables_seed: Annotated[
        int | None, typer.Option(help="Lookup: seed of random tables.", rich_help_panel=TASK)
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="SCAN, CFQ: the folder of the public files.", rich_help_panel=TASK),
    ] = None,
    model: Annotated[str | None, typer.Option(help="transformer or gru.")] = None,
    attender: Annotated[
        str | None,
        typer.Option(
            help="How the decoder looks at its source; content by default.",
            rich_help_panel=RECURRENT,
        ),
    ] = None,
    body: Annotated[
        str | None,
        typer.Option(
            help="ray_chowdhury or dubois; as in the attender's paper.", rich_help_panel=RECURRENT
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            help="gru: passes through the training set, instead of steps.", rich_help_panel=TRAINING
        ),
    ] = None,
    dev: Annotated[
        str | None,
        typer.Option(
            help="Token tasks: train by held-out problems of the same or longer lengths.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    enough: Annotated[
        int | None,
        typer.Option(
            help="Validations without a mistake that end the training.", rich_help_panel=TRAINING
        ),
    ] = None,
    preset: Annotated[str, typer.Option(help="small (minutes on a CPU) or paper.")] = "small",
    seed: Seed = 0,
    digits: Annotated[
        int | None,
        typer.Option(
            help="Longest training operand; 6 by default (parity: 20).", rich_help_panel=TASK
        ),
    ] = None,
    law: Annotated[
        str | None,
        typer.Option(help="Sampling: uniform, balanced, carry or mixed.", rich_help_panel=TASK),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format", help="free, aligned (in columns) or fixed:N.", rich_help_panel=TASK
        ),
    ] = None,
    scheme: Annotated[
        str | None,
        typer.Option(
            help="Positions: sinusoidal, none, learned, randomized, alibi, rope, rpe, t5 or xl; "
            "options behind a colon, such as rpe:clip=8 or alibi:cross=end.",
            rich_help_panel=POSITIONS,
        ),
    ] = None,
    encoder_scheme: Annotated[
        str | None,
        typer.Option(
            help="Positions of the source; --scheme by default.", rich_help_panel=POSITIONS
        ),
    ] = None,
    decoder_scheme: Annotated[
        str | None,
        typer.Option(
            help="Positions of the output; --scheme by default.", rich_help_panel=POSITIONS
        ),
    ] = None,
    cross_scheme: Annotated[
        str | None,
        typer.Option(
            help="Positions in cross-attention; --scheme by default.", rich_help_panel=POSITIONS
        ),
    ] = None,
    cyclic: Annotated[
        int | None, typer.Option(help="Positions modulo this.", rich_help_panel=POSITIONS)
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(
            help="Attend to so many keys beside the answer's line; see --format aligned.",
            rich_help_panel=POSITIONS,
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Most optimiser steps.", rich_help_panel=TRAINING)
    ] = None,
    batch: Annotated[
        int | None, typer.Option(help="Samples a step.", rich_help_panel=TRAINING)
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Highest learning rate.", rich_help_panel=TRAINING)
    ] = None,
    encoder_layers: Annotated[
        int | None, typer.Option(help="0: embeddings only.", rich_help_panel=TRANSFORMER)
    ] = None,
    decoder_layers: Annotated[
        int | None, typer.Option(help="Decoder layers.", rich_help_panel=TRANSFORMER)
    ] = None,
    heads: Annotated[
        int | None, typer.Option(help="Attention heads.", rich_help_panel=TRANSFORMER)
    ] = None,
    width: Annotated[int | None, typer.Option(help="Model width.")] = None,
    feedforward: Annotated[
        int | None, typer.Option(help="Feed-forward width.", rich_help_panel=TRANSFORMER)
    ] = None,
    layers: Annotated[
        int | None,
        typer.Option(help="Layers of encoder and decoder each.", rich_help_panel=RECURRENT),
    ] = None,
    embedding: Annotated[
        int | None, typer.Option(help="Width of the embeddings.", rich_help_panel=RECURRENT)
    ] = None,
    head: Annotated[
        int | None, typer.Option(help="Width of queries and keys.", rich_help_panel=RECURRENT)
    ] = None,
    value: Annotated[
        int | None, typer.Option(help="Width of the values.", rich_help_panel=RECURRENT)
    ] = None,
    dropout: Annotated[float | None, typer.Option(help="Dropout.")] = None,
    finetune: Annotated[
        str | None,
        typer.Option(
            help="Start from the weights of this run, with its model.", rich_help_panel=TRAINING
        ),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            help="Go on with this interrupted run; no other options.", rich_help_panel=TRAINING
        ),
    ] = None,
    out: Out = None,
    device: Device = "auto",
    threads: Threads = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train a model on short problems until it interpolates.

    Examples: **abc train successor** · **abc train addition --base 16 --seed 3** ·
    **abc train --resume runs/addition-vanilla-seed3-1**
    """
    from abc_calib import stages
    from abc_calib.errors import UsageError
    from abc_calib.runs import Run

    console.set_threads(threads, training=True)
    if (task is None) == (resume is None):
        raise UsageError("name a task (abc tasks lists them), or a run to --resume")
    overrides = {
        "seed": seed,
        "length": digits,
        "law": law,
        "format": format_,
        "scheme": scheme,
        "encoder_scheme": encoder_scheme,
        "decoder_scheme": decoder_scheme,
        "cross_scheme": cross_scheme,
        "cyclic": cyclic,
        "window": window,
        "steps": steps,
        "batch": batch,
        "learning_rate": learning_rate,
        "encoder_layers": encoder_layers,
        "decoder_layers": decoder_layers,
        "heads": heads,
        "width": width,
        "feedforward": feedforward,
        "layers": layers,
        "embedding": embedding,
        "head": head,
        "value": value,
        "dropout": dropout,
        "attender": attender,
        "body": body,
        "epochs": epochs,
        "dev": dev,
        "enough": enough,
    }
    options = {
        "tables": tables,
        "seed": tables_seed,
        "data": None if data is None else str(data.resolve()),
    }
    if resume is not None:
        begun = {"seed": 0, "preset": "small"}
        given = {**overrides, "preset": preset, "base": base, "out": out, "finetune": finetune}
        given["model"] = model
        given |= {f"task {name}": value for name, value in options.items()}
        if any(value not in (None, begun.get(name)) for name, value in given.items()):
            raise UsageError("--resume goes on as the run began: leave out the other options")
        run = Run.open(resume)
        steps_in_all = run.config.train.steps
        with console.training_progress(f"training {run.config.task}", steps_in_all, quiet) as step:
            run = stages.resume(run, device=device, on_step=step)
    else:
        assert task is not None
        chosen: dict[str, Any] = {
            name: value for name, value in overrides.items() if value is not None
        }
        start = None if finetune is None else Run.open(finetune)
        chosen |= {"preset": preset, "model": model, "finetune": start}
        steps_in_all = 3000
        with console.training_progress(f"training {task}", steps_in_all, quiet) as step:
            run = stages.train(
                task,
                base=base,
                task_options=options,
                out=out,
                device=device,
                on_step=step,
                **chosen,
            )
    report(run, quiet, as_json)


def report(run: Any, quiet: bool, as_json: bool) -> None:
    """How a training ended, and what comes next."""
    result = run.result
    if as_json:
        console.print_json({"run": str(run), **result})
        return
    accuracy = result["validation_accuracy"]
    console.say(
        f"{run}: {accuracy} % of {result['validation_samples']} held-out problems of "
        f"{run.config.train.length} {run.task.unit} after {result['steps']} steps, "
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
