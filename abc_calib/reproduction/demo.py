"""The main job from end to end: train on six digits, calibrate, retrain, go to a thousand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from abc_calib import stages
from abc_calib.errors import AbcError
from abc_calib.evaluation import Row
from abc_calib.files import make_folder, write_text
from abc_calib.reporting.curves import accuracy_curve
from abc_calib.reporting.page import write_page
from abc_calib.reporting.style import save_figures
from abc_calib.reporting.tables import accuracy_table
from abc_calib.reporting.views import heatmap
from abc_calib.runs import Run
from abc_calib.runs.run import STAGES
from abc_calib.text import as_markdown

LENGTHS = (6, 10, 15, 20, 50, 100, 200, 500, 1000)
SETS = ("random", "carry")
LONG = 50
SAMPLES: dict[bool, tuple[int | None, int]] = {True: (None, 1000), False: (1000, 100)}
"""A length, up to ``LONG`` digits and beyond, with lines and without: then every sample runs
through all layers. None are those of ``stages.evaluate``."""
EXAMPLE_DIGITS = 40
PAGE = "report.html"

Series = dict[str, list[Row]]


def demo_lengths(train_length: int) -> list[int]:
    """Return the training length and the demo's lengths beyond it."""
    return [train_length, *(length for length in LENGTHS if length > train_length)]


def compare(
    runs: dict[str, Run],
    lengths: Sequence[int],
    samples: int | None = None,
    device: str = "auto",
) -> Series:
    """Evaluate every run at every length, on random inputs and on carry chains.

    By ``"run, set"``. ``samples`` a length; by default ``SAMPLES``.
    """
    series: Series = {f"{name}, {kind}": [] for name in runs for kind in SETS}
    for name, run in runs.items():
        rows: list[Row] = []
        how: dict[str, Any] = {"sets": SETS, "device": device, "on_row": rows.append}
        for count, far in zip(SAMPLES[run.config.parent is not None], (False, True), strict=True):
            if some := [n for n in lengths if (n > LONG) == far]:
                stages.evaluate(run, some, samples=samples or count, **how)
        for row in rows:
            series[f"{name}, {row.set}"].append(row)
    return series


def worked_example(run: Run, device: str = "auto") -> tuple[str, str, bool]:
    """A random problem of 40 digits, what the model writes token by token, and is it right?"""
    rng = np.random.default_rng(40)
    problems = run.task.sample(rng, 1, EXAMPLE_DIGITS, "balanced", exact=True)
    problem = run.task.write(problems, 0)
    try:
        answer = stages.predict(run, problem, device=device)
    except AbcError:  # it wrote no end
        return problem, "no number", False
    return problem, answer.answer, bool(answer.correct)


def as_rows(series: Series) -> list[dict[str, Any]]:
    """Return a record for every row of every series."""
    return [{"series": name, **row.as_dict()} for name, rows in series.items() for row in rows]


def shown(series: Series) -> Series:
    """Return the same under the names that people read."""
    names = ((name, *name.split(", ")) for name in series)
    return {f"{STAGES[stage]}, {kind}": series[name] for name, stage, kind in names}


def write_report(run: Run, series: Series, example: tuple[str, str, bool]) -> Path:
    """The table, the curve, the heatmaps, the example and the page, in ``RUN/demo``."""
    folder, train = run.path / "demo", run.config.train
    make_folder(folder)
    write_text(folder / "accuracy.csv", pd.DataFrame(as_rows(series)).to_csv(index=False))
    table, (problem, answer, right) = accuracy_table(shown(series), "", intervals=False), example
    write_text(
        folder / "accuracy.md",
        f"Exact match (%) of {run.task.name}, trained on at most {train.length} digits, seed "
        f"{train.seed}.\n\n{as_markdown(table.columns, table.rows)}\n"
        f"`{problem}` gives `{answer}`: {'right' if right else 'wrong'}.\n",
    )
    title = f"{run.task.name}, trained on at most {train.length} digits"
    points = {
        name: [(row.length, row.accuracy, row.low, row.high) for row in rows]
        for name, rows in shown(series).items()
    }
    figure = accuracy_curve(points, title=title, train_length=train.length)
    save_figures(figure, folder / "accuracy", ("pdf", "png"))
    heatmap(run, folder, format=("pdf", "png"))
    write_page([run, Run.open(run.config.parent)], folder / PAGE, f"{run.task.name}: the demo")
    return folder
