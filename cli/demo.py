"""``abc demo``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from abc_calib.config import DemoOptions, MachineOptions, TaskOptions, TrainOptions, build, taken
from abc_calib.progress import bar, training
from cli import console
from cli.calibrate import describe, show_lines, time_ratio
from cli.options import AsJson, Quiet, options

if TYPE_CHECKING:
    from abc_calib.evaluation import Row


@console.command
@options(
    TaskOptions,
    TrainOptions,
    DemoOptions,
    MachineOptions,
    only=("base", "seed", "lengths", "samples", "device", "threads"),
)
def demo(
    task: Annotated[str, typer.Argument(help="The task: see abc tasks.")] = "addition",
    quiet: Quiet = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """The main job, in minutes: train on 6 digits, calibrate, retrain, evaluate to 1,000.

    Example: **abc demo multiplication --seed 1**
    """
    from abc_calib import stages
    from abc_calib.reporting import accuracy_table
    from abc_calib.reproduction import demo as job

    console.set_threads(given.pop("threads", None), training=True)
    asked = build(DemoOptions, **taken(DemoOptions, given))
    device = given.get("device", "auto")
    started = time.perf_counter()
    with training("1/4 training", not quiet) as on_step:
        vanilla = stages.train(task, on_step=on_step, progress=False, **given)
    with training("2/4 retraining", not quiet) as on_step:
        calibrated = stages.calibrate(
            vanilla,
            device=device,
            on_step=on_step,
            progress=False,
            on_check=lambda check: console.say(describe(check), quiet),
            on_lines=lambda _, found: None if as_json or quiet else show_lines(found),
        )
    wanted = asked.lengths or job.demo_lengths(vanilla.config.train.length)
    total = 2 * len(job.SETS) * len(wanted)
    with bar("3/4 evaluating", not quiet, "rows") as update:
        done: list[Row] = []

        def on_row(name: str, row: Row) -> None:
            done.append(row)
            note = f"{name}, {row.set}, {row.length} digits: {row.accuracy:.2f} %"
            update(len(done), total, note, True)

        series = job.compare(
            {"vanilla": vanilla, "calibrated": calibrated},
            wanted,
            lambda n: asked.samples or job.demo_samples(vanilla.task.base, n),
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
