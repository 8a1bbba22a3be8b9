"""``abc demo``."""

from __future__ import annotations

import time
from typing import Any

from abc_calib.config import DemoOptions, DeviceOptions, ThreadOptions
from abc_calib.progress import training
from cli.calibrate import compared, lines
from cli.command import TaskArgument, command
from cli.console import Result, is_quiet, say, show_early


@command(ThreadOptions)
def demo(options: DemoOptions, machine: DeviceOptions, task: TaskArgument = "addition") -> Result:
    """Train on 6 digits, calibrate, retrain, evaluate to 1,000 digits and report, in minutes.

    Example: **abc demo multiplication --seed 1**
    """
    from abc_calib import stages
    from abc_calib.reporting.tables import accuracy_table
    from abc_calib.reproduction import demo as job

    device = machine.device
    chosen: dict[str, Any] = {"base": options.base, "seed": options.seed}
    started = time.perf_counter()
    with training("1/4 training", None) as on_step:
        vanilla = stages.train(
            task, preset="quick", device=device, on_step=on_step, progress=False, **chosen
        )
    with training("2/4 retraining", None) as on_step:
        calibrated = stages.calibrate(
            vanilla,
            device=device,
            on_step=on_step,
            progress=False,
            on_check=lambda check: say(check.text),
            on_lines=lambda _, calibration: None if is_quiet() else show_early(*lines(calibration)),
        )
    say("3/4 evaluating")
    lengths = options.lengths or job.demo_lengths(vanilla.config.train.length)
    series = job.compare(
        {"vanilla": vanilla, "calibrated": calibrated}, lengths, options.samples, device
    )
    say("4/4 figures, an example and the page")
    problem, answer, right = example = job.worked_example(calibrated, device)
    folder = job.write_report(calibrated, series, example)
    page = str(folder / job.PAGE)
    return Result(
        {"run": str(calibrated), "task": task, "rows": job.as_rows(series), "page": page},
        [
            accuracy_table(series),
            f"{problem}\n= {answer} ({'right' if right else 'WRONG'})",
            f"table, curve and heatmaps: {folder}",
            f"the page, with the model in it: {page}",
        ],
        [*compared(calibrated), f"{(time.perf_counter() - started) / 60:.1f} minutes in all"],
    )
