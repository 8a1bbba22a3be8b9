"""``abc demo``."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from abc_calib.config import StressOptions, build
from abc_calib.progress import training
from abc_calib.text import grouped
from cli.calibrate import compared, say_lines
from cli.command import Device, TaskArgument, command
from cli.console import Result, say


@command()
def demo(
    task: TaskArgument = "addition",
    base: Annotated[
        int | None, typer.Option(min=2, max=36, help="Base of the digits, 2 to 36.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="Seed of the weights, data and split.")
    ] = 0,
    lengths: Annotated[
        str | None, typer.Option(help="Lengths to evaluate, as in 6,50,1000.")
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(
            min=1, max=10**7, help="Per length; by default 10,000 up to 50 digits, then 1,000."
        ),
    ] = None,
    device: Device = "auto",
) -> Result:
    """Train on 6 digits, calibrate, retrain, evaluate to 1,000 digits and report, in minutes.

    Example: **abc demo multiplication --seed 1**
    """
    from abc_calib import stages
    from abc_calib.plugins import make_task
    from abc_calib.reporting.tables import accuracy_table
    from abc_calib.reproduction import demo as job

    chosen = build(StressOptions, lengths=lengths).lengths
    rule = make_task(task, base=base)
    short = f"{task.replace('_', ' ')} with at most {rule.train_length} {rule.unit}"
    say(f"A small Transformer learns {short}; is it right on longer problems after calibration?")
    started = time.perf_counter()
    work: Any = {"device": device, "progress": False}
    with training("1/5 training", None) as on_step:
        vanilla = stages.train(task, base=base, seed=seed, on_step=on_step, **work)
    with training("2/5 retraining", None) as on_step:
        calibrated = stages.calibrate(
            vanilla,
            on_step=on_step,
            on_check=lambda check: say(check.text),
            on_lines=lambda _, calibration: say_lines(calibration),
            **work,
        )
    say("3/5 evaluating both models")
    runs = {"vanilla": vanilla, "calibrated": calibrated}
    sizes = chosen or job.demo_lengths(vanilla.config.train.length)
    series = job.compare(runs, sizes, samples, device)
    title = f"{calibrated}: {task}, trained on at most {vanilla.config.train.length} digits"
    say("4/5 certifying: is the calibrated model right at every length?")
    certificate = stages.certify(calibrated)
    say("5/5 figures, an example and the page")
    problem, answer, right = example = job.worked_example(calibrated, device)
    folder = job.write_report(calibrated, series, example)
    page = str(folder / job.PAGE)
    return Result(
        {"run": str(calibrated), "task": task, "rows": job.as_rows(series), "page": page},
        [
            accuracy_table(job.shown(series), title=title, intervals=False),
            f"{problem}\n= {answer} ({'right' if right else 'WRONG'})",
            f"{certificate.outcome}: {grouped(certificate.reason)}",
            f"table, curve and heatmaps: {folder}",
            f"the page, with the model in it: {page}",
        ],
        [*compared(calibrated), f"{(time.perf_counter() - started) / 60:.1f} minutes in all"],
    )
