"""``abc demo``."""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING, Annotated, Any

import typer

from abc_calib.config import DemoOptions, MachineOptions, TaskOptions, TrainOptions
from abc_calib.progress import bar, training
from cli.calibrate import describe, lines, time_ratio
from cli.command import command
from cli.completion import of
from cli.console import Result, is_quiet, say, show_early

if TYPE_CHECKING:
    from abc_calib.evaluation import Row
    from abc_calib.reproduction.demo import Series
    from abc_calib.runs import Run


@command(
    *(TaskOptions, TrainOptions, MachineOptions),
    only=("base", "seed", "lengths", "samples", "device", "threads"),
)
def demo(
    asked: DemoOptions,
    task: Annotated[
        str, typer.Argument(help="The task: see abc tasks.", autocompletion=of("task"))
    ] = "addition",
    **given: Any,
) -> Result:
    """The main job, in minutes: train on 6 digits, calibrate, retrain, evaluate to 1,000.

    Example: **abc demo multiplication --seed 1**
    """
    from abc_calib import stages
    from abc_calib.reporting.tables import accuracy_table
    from abc_calib.reproduction import demo as job

    device = given.get("device", "auto")
    started = time.perf_counter()
    with training("1/4 training", None) as on_step:
        vanilla = stages.train(task, on_step=on_step, progress=False, **given)
    with training("2/4 retraining", None) as on_step:
        calibrated = stages.calibrate(
            vanilla,
            device=device,
            on_step=on_step,
            progress=False,
            on_check=lambda check: say(describe(check)),
            on_lines=lambda _, found: None if is_quiet() else show_early(*lines(found)),
        )
    series = _compared({"vanilla": vanilla, "calibrated": calibrated}, asked, device)
    say("4/4 figures, an example and the page")
    example = job.worked_example(calibrated, device)
    folder = job.write_report(calibrated, series, example)
    page = str(folder / job.PAGE)
    verdict = "right" if example.correct else "WRONG"
    return Result(
        {"run": str(calibrated), "task": task, "rows": job.as_rows(series), "page": page},
        [
            accuracy_table(series),
            f"{example.problem}\n= {example.answer} ({verdict})",
            f"table, curve and heatmaps: {folder}",
            f"the page, with the model in it: {page}",
        ],
        [time_ratio(calibrated), f"{(time.perf_counter() - started) / 60:.1f} minutes in all"],
    )


def _compared(runs: dict[str, Run], asked: DemoOptions, device: str) -> Series:
    """Every run at every length, with how far that is."""
    from abc_calib.reproduction import demo as job

    first = runs["vanilla"]
    wanted = asked.lengths or job.demo_lengths(first.config.train.length)
    total = len(runs) * len(job.SETS) * len(wanted)
    done = count(1)
    with bar("3/4 evaluating", None, "rows") as update:

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
