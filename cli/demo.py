"""``abc demo``."""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING, Annotated, Any

import typer

from abc_calib.config import DemoOptions, MachineOptions, TaskOptions, TrainOptions, build, taken
from abc_calib.progress import bar, training
from cli import console
from cli.calibrate import describe, show_lines, time_ratio
from cli.completion import task_names
from cli.options import AsJson, Quiet, options

if TYPE_CHECKING:
    from abc_calib.evaluation import Row
    from abc_calib.reproduction.demo import Series
    from abc_calib.runs import Run


@console.command
@options(
    TaskOptions,
    TrainOptions,
    DemoOptions,
    MachineOptions,
    only=("base", "seed", "lengths", "samples", "device", "threads"),
)
def demo(
    task: Annotated[
        str, typer.Argument(help="The task: see abc tasks.", autocompletion=task_names)
    ] = "addition",
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
    series = _compared({"vanilla": vanilla, "calibrated": calibrated}, asked, device, quiet)
    console.say("4/4 figures, an example and the page", quiet)
    example = job.worked_example(calibrated, device)
    folder = job.write_report(calibrated, series, example)
    seconds = time.perf_counter() - started
    if as_json:
        rows = job.as_rows(series)
        page = str(folder / job.PAGE)
        console.print_json({"run": str(calibrated), "task": task, "rows": rows, "page": page})
        return
    console.out.print(accuracy_table(series))
    verdict = "right" if example.correct else "WRONG"
    console.tell(f"{example.problem}\n= {example.answer} ({verdict})")
    console.say(time_ratio(calibrated), quiet)
    console.say(f"{seconds / 60:.1f} minutes in all", quiet)
    console.tell(f"table, curve and heatmaps: {folder}")
    console.tell(f"the page, with the model in it: {folder / job.PAGE}")


def _compared(runs: dict[str, Run], asked: DemoOptions, device: str, quiet: bool) -> Series:
    """Every run at every length, with how far that is."""
    from abc_calib.reproduction import demo as job

    first = runs["vanilla"]
    wanted = asked.lengths or job.demo_lengths(first.config.train.length)
    total = len(runs) * len(job.SETS) * len(wanted)
    done = count(1)
    with bar("3/4 evaluating", not quiet, "rows") as update:

        def on_row(name: str, row: Row) -> None:
            note = f"{name}, {row.set}, {row.length} digits: {row.accuracy:.2f} %"
            update(next(done), total, note, True)

        return job.compare(
            runs,
            wanted,
            lambda n: asked.samples or job.demo_samples(first.task.base, n),
            device,
            on_row,
        )
