"""The main job from end to end: train on six digits, calibrate, retrain, go to a thousand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from abc_calib import stages
from abc_calib.data.digits import MOST_SAMPLES, default_samples
from abc_calib.errors import AbcError
from abc_calib.evaluation import Row
from abc_calib.files import make_folder, write_text
from abc_calib.reporting.curves import accuracy_curve
from abc_calib.reporting.page import write_page
from abc_calib.reporting.style import save_figures
from abc_calib.reporting.views import draw_heatmaps
from abc_calib.runs import Run
from abc_calib.text import as_markdown

LENGTHS = (6, 10, 15, 20, 50, 100, 200, 500, 1000)
SETS = ("random", "carry")
LONG = 50
LONG_SAMPLES = 1000
EXAMPLE_DIGITS = 40
PAGE = "report.html"

Series = dict[str, list[Row]]


@dataclass(frozen=True)
class Example:
    """One worked problem: what was asked, what the model wrote, whether it is right."""

    problem: str
    answer: str
    correct: bool


def demo_lengths(train_length: int) -> list[int]:
    """The training length and the demo's lengths beyond it."""
    return [train_length, *(length for length in LENGTHS if length > train_length)]


def demo_samples(base: int, length: int) -> int:
    """10,000 a length up to 50 digits, 1,000 beyond; fewer where there are fewer numbers."""
    return min(default_samples(base, length), MOST_SAMPLES if length <= LONG else LONG_SAMPLES)


def compare(
    runs: dict[str, Run],
    lengths: Sequence[int],
    samples: Callable[[int], int],
    device: str = "auto",
    on_row: Callable[[str, Row], None] = lambda *_: None,
) -> Series:
    """Every run at every length, on random inputs and on carry chains, by ``"run, set"``."""
    series: Series = {f"{name}, {kind}": [] for name in runs for kind in SETS}

    def keep(name: str, row: Row) -> None:
        series[f"{name}, {row.set}"].append(row)
        on_row(name, row)

    for name, run in runs.items():
        on = partial(keep, name)
        for length in lengths:
            stages.evaluate(
                run, [length], samples=samples(length), sets=SETS, device=device, on_row=on
            )
    return series


def worked_example(run: Run, device: str = "auto") -> Example:
    """A random problem of 40 digits, answered by the model token by token."""
    rng = np.random.default_rng(40)
    problems = run.task.sample(rng, 1, EXAMPLE_DIGITS, "balanced", exact=True)
    problem = run.task.write(problems, 0)
    try:
        found = stages.predict(run, problem, device=device)
    except AbcError:  # it wrote no end
        return Example(problem, "no number", False)
    return Example(problem, found.answer, bool(found.correct))


def as_rows(series: Series) -> list[dict[str, Any]]:
    """A record for every row of every series."""
    return [{"series": name, **row.as_dict()} for name, rows in series.items() for row in rows]


def write_report(run: Run, series: Series, example: Example) -> Path:
    """The table, the curve, the heatmaps, the example and the page, in ``RUN/demo``."""
    folder = run.path / "demo"
    make_folder(folder)
    rows = pd.DataFrame(as_rows(series))
    write_text(folder / "accuracy.csv", rows.to_csv(index=False))
    cells = rows.pivot(index="length", columns="series", values="accuracy")[list(series)]
    table = as_markdown(["digits", *series], cells.reset_index().astype(object).to_numpy().tolist())
    verdict = "right" if example.correct else "wrong"
    write_text(
        folder / "accuracy.md",
        f"Exact match (%) of {run.task.name}, trained on at most {run.config.train.length} "
        f"digits, seed {run.config.train.seed}.\n\n{table}\n"
        f"`{example.problem}` gives `{example.answer}`: {verdict}.\n",
    )
    figure = accuracy_curve(
        {name: [(r.length, r.accuracy, r.low, r.high) for r in rs] for name, rs in series.items()},
        title=f"{run.task.name}, trained on at most {run.config.train.length} digits",
        train_length=run.config.train.length,
    )
    save_figures(figure, folder / "accuracy", ("pdf", "png"))
    draw_heatmaps(run, folder, ("pdf", "png"))
    write_page([run, Run.open(run.config.parent)], folder / PAGE, f"{run.task.name}: the demo")
    return folder
