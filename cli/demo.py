"""``abc demo``."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

import abc_calib as abc
from abc_calib.config import StressOptions, build
from abc_calib.errors import AbcError
from abc_calib.progress import training
from abc_calib.text import grouped
from cli.command import Device, Seed, TaskArgument, command
from cli.console import Result, say
from cli.train import compared, say_lines

LENGTHS = (6, 10, 15, 20, 50, 100, 200, 500, 1000)
LONG, SETS = 50, ("random", "carry")
SAMPLES: dict[str, tuple[int | None, int]] = {"vanilla": (1000, 100), "calibrated": (None, 1000)}
"""Per length, up to ``LONG`` digits and beyond; None: as ``abc eval``. Without lines every sample
runs through all layers."""
Base = Annotated[int | None, typer.Option(min=2, max=36, help="Base of the digits, 2 to 36.")]
Lengths = Annotated[str | None, typer.Option(help="Lengths to evaluate, as in 6,50,1000.")]
Samples = Annotated[
    int | None,
    typer.Option(
        min=1, max=10**7, help="Per length; by default 10,000 up to 50 digits, then 1,000."
    ),
]


@command()
def demo(
    task: TaskArgument = "addition",
    base: Base = None,
    seed: Seed = 0,
    lengths: Lengths = None,
    samples: Samples = None,
    device: Device = "auto",
) -> Result:
    """Go from training on 6 digits to a certificate, in minutes.

    Trains, calibrates, retrains, evaluates up to 1,000 digits, certifies, and makes a page.

    Example: **abc demo multiplication --seed 1**
    """
    from abc_calib.plugins import make_task
    from abc_calib.reporting.page import write_page
    from abc_calib.reporting.tables import accuracy_table

    chosen = build(StressOptions, lengths=lengths).lengths
    rule = make_task(task, base=base)
    short = f"{task.replace('_', ' ')} with at most {rule.train_length} {rule.unit}"
    say(f"A small Transformer learns {short}; is it right on longer problems after calibration?")
    say("Five steps; for addition some three minutes in all.")
    started = time.perf_counter()
    work: Any = {"device": device, "progress": False}
    with training("1/5 training", None) as on_step:
        vanilla = abc.train(task, base=base, seed=seed, on_step=on_step, **work)
    with training("2/5 retraining", None) as on_step:
        work |= {"on_step": on_step, "on_lines": lambda _, calibration: say_lines(calibration)}
        calibrated = abc.calibrate(vanilla, on_check=lambda check: say(check.text), **work)
    if calibrated.history()[-1].get("over") == "windows":
        say("the retraining ended: every case that was looked at is right by 3 or more")
    say("3/5 evaluating both models")
    first = vanilla.config.train.length
    sizes = chosen or (first, *(length for length in LENGTHS if length > first))
    series: dict[str, list[Any]] = {}
    for when, run in ("before", vanilla), ("after", calibrated):
        for row in compare(run, sizes, samples, device):
            series.setdefault(f"{when}, {row['set']}", []).append(row)
    say("4/5 certifying: is the calibrated model right at every length?")
    certificate = abc.certify(calibrated)
    say("5/5 an example and the page")
    page = str(write_page([calibrated, vanilla], calibrated.path / "report.html", f"{task}: demo"))
    title = f"{calibrated}: {task}, trained on at most {first} digits, before and after calibration"
    records = [{"series": name, **row} for name, rows in series.items() for row in rows]
    return Result(
        {"run": str(calibrated), "task": task, "rows": records, "page": page},
        [
            accuracy_table(series, title=title, intervals=False),
            worked_example(calibrated, device),
            f"{certificate.outcome}: {grouped(certificate.reason)}",
            f"open the page, with the model in it: {page}",
        ],
        [*compared(calibrated), f"{(time.perf_counter() - started) / 60:.1f} minutes in all"],
    )


def compare(run: abc.Run, sizes: tuple[int, ...], samples: int | None, device: str) -> list[Any]:
    """Evaluate a run at every length, on random inputs and on carry chains."""
    rows: list[Any] = []
    for count, is_far in zip(SAMPLES[run.config.stage], (False, True), strict=True):
        if group := [size for size in sizes if (size > LONG) == is_far]:
            how: Any = {"sets": SETS, "device": device, "on_row": rows.append}
            abc.evaluate(run, group, samples=samples or count, **how)
    return rows


def worked_example(run: abc.Run, device: str = "auto") -> str:
    """Return a random problem of 40 digits, and what the model writes token by token."""
    from numpy.random import default_rng

    problems = run.task.sample(default_rng(40), 1, 40, "balanced", exact=True)
    problem = run.task.write(problems, 0)
    try:
        prediction = abc.predict(run, problem, device=device)
    except AbcError:  # it wrote no end
        return f"{problem}\n= no number (WRONG)"
    return f"{problem}\n= {prediction.answer} ({'right' if prediction.correct else 'WRONG'})"
