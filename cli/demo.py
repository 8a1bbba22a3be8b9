"""``abc demo``."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from cli import console
from cli.calibrate import describe, show_lines, time_ratio
from cli.evaluate import parse_lengths
from cli.options import AsJson, Device, Quiet, Seed, Threads


@console.command
def demo(
    task: Annotated[str, typer.Argument(help="The task: see abc tasks.")] = "addition",
    base: Annotated[int | None, typer.Option(help="Base of the digits, 2 to 36.")] = None,
    seed: Seed = 0,
    lengths: Annotated[
        str | None, typer.Option(help="Lengths to evaluate, as in 6,50,1000.")
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(help="Samples a length; by default 10000 up to 50 digits, 1000 beyond."),
    ] = None,
    device: Device = "auto",
    threads: Threads = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """The main job, in minutes: train on 6 digits, calibrate, retrain, evaluate to 1,000.

    Example: **abc demo multiplication --seed 1**
    """
    from abc_calib import stages
    from abc_calib.config import PRESETS
    from abc_calib.errors import UsageError
    from abc_calib.reporting import accuracy_table
    from abc_calib.reproduction import demo as job

    console.set_threads(threads, training=True)
    if samples is not None and samples < 1:
        raise UsageError(f"--samples {samples} is not possible: give 1 or more")
    wanted = parse_lengths(lengths, 1) if lengths else None
    started = time.perf_counter()
    _, first, second = PRESETS["small"]
    with console.training_progress("1/4 training", first.steps, quiet) as on_step:
        vanilla = stages.train(task, base=base, seed=seed, device=device, on_step=on_step)
    with console.training_progress("2/4 retraining", second.steps, quiet) as on_step:
        calibrated = stages.calibrate(
            vanilla,
            device=device,
            on_step=on_step,
            on_check=lambda check: console.say(describe(check), quiet),
            on_lines=lambda _, found: None if as_json or quiet else show_lines(found),
        )
    wanted = wanted or job.demo_lengths(vanilla.config.train.length)
    total = 2 * len(job.SETS) * len(wanted)
    with console.progress("3/4 evaluating", total, quiet, "rows") as update:
        done: list[Any] = []

        def on_row(name: str, row: Any) -> None:
            done.append(row)
            note = f"{name}, {row.set}, {row.length} digits: {row.accuracy:.2f} %"
            update(len(done), note, True)

        series = job.compare(
            {"vanilla": vanilla, "calibrated": calibrated},
            wanted,
            lambda n: samples or job.demo_samples(vanilla.task.base, n),
            device,
            on_row,
        )
    console.say("4/4 figures and an example", quiet)
    example = job.worked_example(calibrated, device)
    folder = job.write_report(calibrated, series, example)
    seconds = time.perf_counter() - started
    if as_json:
        rows = [{"series": name, **row.as_dict()} for name, rs in series.items() for row in rs]
        console.print_json({"run": str(calibrated), "task": task, "rows": rows})
        return
    console.out.print(accuracy_table(series))
    verdict = "right" if example.correct else "WRONG"
    typer.echo(f"{example.problem}\n= {example.answer} ({verdict})")
    console.say(time_ratio(calibrated), quiet)
    console.say(f"{seconds / 60:.1f} minutes in all", quiet)
    typer.echo(f"table, curve and heatmaps: {folder}")
