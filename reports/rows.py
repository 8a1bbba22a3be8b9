"""Products and sums of every certified seed: exact match by size, before and after calibration.

    python reports/rows.py FOLDER

FOLDER holds what `abc prove TASK --seed N --out FOLDER` made. Adds rows to
reports/rows.csv, skips those that it has, and writes rows.md and the curve of seed 0 by size.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pandas as pd

import abc_calib as abc
from abc_calib.certification.certificate import Certificate
from abc_calib.evaluation.metrics import wilson_interval
from abc_calib.reporting.curves import Point, accuracy_curve
from abc_calib.reporting.style import save_figures
from abc_calib.text import as_markdown

HERE = Path(__file__).parent
TABLE = HERE / "rows.csv"
SIZES = {
    ("long_multiplication", "vanilla"): {(4, 4): 1000, (5, 5): 1000, (6, 6): 1000},
    ("long_multiplication", "calibrated"): {
        **{(4, 4): 1000, (10, 10): 1000, (20, 15): 1000},
        **{(50, 50): 1000, (100, 100): 1000, (1000, 1000): 1},
    },
    ("sum", "vanilla"): {(6, 4): 1000, (7, 4): 1000, (6, 5): 1000},
    ("sum", "calibrated"): {
        **{(6, 4): 1000, (10, 10): 1000, (30, 30): 1000},
        **{(100, 100): 1000, (1000, 1000): 1},
    },
}
KEY = ["task", "seed", "stage", "length", "rows"]


def judged(run: abc.Run, known: pd.DataFrame) -> pd.DataFrame:
    """The rows of a run that the table lacks."""
    config = run.config
    place: dict[str, Any] = {"task": config.task, "seed": config.train.seed, "stage": config.stage}
    mine = known[(known[list(place)] == pd.Series(place)).all(axis=1)]
    done = set(zip(mine["length"], mine["rows"], strict=True))
    found = []
    for size, samples in SIZES[config.task, config.stage].items():
        if size not in done:
            found.append(abc.evaluate(run, [size], samples=samples, progress=False))
            print(run.path.name, size, found[-1].accuracy[0], flush=True)
    if not found:
        return known[:0]
    kept = ["length", "rows", "n", "correct", "accuracy", "test_seed", "test_hash"]
    return pd.concat(found)[kept].assign(**place)


def overview(table: pd.DataFrame, runs: dict[tuple[str, int, str], abc.Run]) -> str:
    rows = []
    grouped: Any = table.groupby(["task", "seed"])
    for (task, seed), some in grouped:
        texts = []
        for stage in ("vanilla", "calibrated"):
            part = some[some.stage == stage].sort_values(["length", "rows"])
            each = zip(part["length"], part["rows"], part.accuracy, part.n, strict=True)
            texts.append(", ".join(f"{a:,}x{b:,}: {r:.1f} ({n:,})" for a, b, r, n in each))
        run, first = runs[task, seed, "calibrated"], runs[task, seed, "vanilla"]
        certificate = Certificate.load(run)
        dense = (certificate.verified or {}).get("smallest_margin")
        trained = [float((one.result or {})["seconds"]) / 60 for one in (first, run)]
        told = [certificate.outcome, f"{certificate.windows:,}", f"{certificate.margin:.2f}"]
        told += [f"{dense:.2f}" if dense else "–", *(f"{minutes:.0f}" for minutes in trained)]
        rows.append([task, seed, *told, *texts])
    columns = ["task", "seed", "outcome", "windows", "margin", "dense", "first, min", "again, min"]
    columns += ["first model, % (problems)", "calibrated, % (problems)"]
    return as_markdown(columns, rows, "lrlrrrrrll")


def points(rows: pd.DataFrame) -> list[Point]:
    """Length, accuracy and its interval."""
    found = []
    each: Any = rows.sort_values("length").itertuples()
    for row in each:
        low, high = wilson_interval(int(row.correct), int(row.n))
        found.append((int(row.length), float(row.accuracy), 100 * low, 100 * high))
    return found


def draw(table: pd.DataFrame) -> None:
    """Products of two numbers of equally many digits, seed 0."""
    some = table[(table.task == "long_multiplication") & (table.seed == 0)]
    square = some[some["length"] == some["rows"]]
    names = {"calibrated": "ABC", "vanilla": "coupled positions"}
    series = {name: points(square[square.stage == stage]) for stage, name in names.items()}
    how: dict[str, Any] = {"title": "Long multiplication", "unit": "digits of both numbers"}
    figure = accuracy_curve(series, train_length=4, top=("ABC",), **how)
    save_figures(figure, HERE / "figures" / "long-multiplication-sizes", ("pdf", "png"))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    table = pd.read_csv(TABLE) if TABLE.exists() else pd.DataFrame({name: [] for name in KEY})
    runs = {}
    for config in sorted(parser.parse_args().folder.glob("*/config.json")):
        about = json.loads(config.read_text())
        if (about["task"], about["stage"]) not in SIZES:
            continue
        run = abc.Run.open(config.parent)
        runs[about["task"], run.config.train.seed, about["stage"]] = run
        table = pd.concat([table, judged(run, table)]).sort_values(KEY)
        table.to_csv(TABLE, index=False)
    text = (
        "# Products and sums by size\n\nMade by `python reports/rows.py FOLDER` of runs by `abc "
        "prove TASK --seed N`. Exact match of whole outputs, random problems, in per "
        "cent. *Margin*: the smallest of all windows, in logits; *dense*: the smallest that a "
        "second look by dense attention saw. Minutes are of the first training and of the "
        "retraining by the clock, on a shared machine of two cores, one thread.\n\n"
    )
    TABLE.with_suffix(".md").write_text(text + overview(table, runs))
    draw(table)


if __name__ == "__main__":
    main()
