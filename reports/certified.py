"""From nothing to a certificate: seed after seed of each task and base, one row each.

    python reports/certified.py FOLDER [--model decoder] [--task parity] [--seeds 0-9]

One process of one thread; processes of different tasks or seeds may run at the same time. Adds
rows to from_nothing.csv, skips those that it has, and writes from_nothing.md; what was interrupted
goes on from FOLDER. Seconds are processor time, ``wall`` is the clock's.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from abc_calib import stages
from abc_calib.errors import AbcError
from abc_calib.text import as_markdown

HERE = Path(__file__).parent
TABLE, PAGE = HERE / "from_nothing.csv", HERE / "from_nothing.md"
KEY = ["model", "task", "base", "seed"]
PARTS = ["train", "calibrate", "retrain", "certify"]
FIELDS = [*KEY, "outcome", "windows", "margin", "right", "train_steps", "retrain_steps"]
FIELDS += [*PARTS, "wall", "reason"]
LENGTHS, SAMPLES, MINUTES = [50, 1000], 1000, {True: 90.0, False: 15.0}
"""``MINUTES``: of a certificate, above base 10 and else; more digits are more windows."""


def plan(model: str) -> Iterator[tuple[str, int, int]]:
    """Task, base and seed: 20 seeds of each task, 5 in each other base; of decoders 3."""
    tasks = {"addition": 10, "parity": 2, "successor": 10, "multiplication": 10}
    for seed in range(3 if model == "decoder" else 20):
        yield from ((task, base, seed) for task, base in tasks.items())
    if model != "decoder":
        for seed in range(5):
            for base in (2, 3, 16, 36):
                yield from ((t, base, seed) for t in ("addition", "successor", "multiplication"))


class Clock:
    """How much processor time each part took, from the steps of both trainings."""

    def __init__(self) -> None:
        self.seen: dict[str, list[tuple[float, int]]] = {"training": [], "retraining": []}
        self.started, self.wall = time.process_time(), time.time()

    def note(self, stage: str, step: Any) -> None:
        self.seen[stage].append((time.process_time(), step.step))

    def parts(self) -> dict[str, Any]:
        """Seconds and steps of each part that was run here."""
        first, again = self.seen["training"], self.seen["retraining"]
        row: dict[str, Any] = {"wall": round(time.time() - self.wall)}
        if first:
            row |= {"train": first[-1][0] - self.started, "train_steps": first[-1][1]}
        if first and again:
            row |= {"calibrate": again[0][0] - first[-1][0], "retrain": again[-1][0] - again[0][0]}
            row |= {"certify": time.process_time() - again[-1][0]}
            steps = [step for _, step in again]  # it may go on in another run, from 1 on
            ends = [a for a, b in zip(steps, [*steps[1:], 0], strict=True) if b < a]
            row["retrain_steps"] = sum(ends)
        return {name: round(value, 1) for name, value in row.items()}


def judged(model: str, task: str, base: int, seed: int, folder: Path) -> dict[str, Any]:
    """A row; ``right``: the least per cent of random problems at the lengths."""
    clock = Clock()
    row: dict[str, Any] = {"model": model, "task": task, "base": base, "seed": seed}
    row |= {"outcome": "failed"}
    try:
        how: dict[str, Any] = {"base": None if task == "parity" else base, "model": model}
        how |= {"minutes": MINUTES[base > 10], "progress": False, "on_step": clock.note}
        run, made = stages.certified(task, seed, folder=folder, **how)
        row |= {"outcome": made.outcome, "windows": made.windows, "margin": made.margin}
        row["reason"] = "" if made.outcome == "certified" else made.reason
        if made.repair:
            row["reason"] = f"repaired in {len(made.repair)} rounds. {row['reason']}".strip()
        row |= clock.parts()
        table = stages.evaluate(run, LENGTHS, samples=SAMPLES, sets=("random",), progress=False)
        row["right"] = table.accuracy.min()
    except AbcError as error:
        row["reason"] = str(error)
    return clock.parts() | row


def overview(table: pd.DataFrame) -> str:
    """A row of each task and base; times are those of runs that were not interrupted."""
    rows = []
    for (model, task, base), some in table.groupby(["model", "task", "base"], sort=False):
        sure = some[some.outcome == "certified"]
        seconds = sure.dropna(subset=PARTS)[PARTS].sum(axis=1)
        times = [f"{seconds.median():.0f}", f"{seconds.max():.0f}"] if len(seconds) else ["–"] * 2
        windows = f"{int(sure.windows.max()):,}" if len(sure) else "–"
        margin = f"{sure.margin.min():.2f}" if len(sure) else "–"
        right = f"{some.right.min():.1f}" if some.right.notna().any() else "–"
        rows.append([model, task, base, len(some), len(sure), right, windows, margin, *times])
    columns = ["model", "task", "base", "seeds", "certified", "right, worst seed"]
    columns += ["most windows", "smallest margin", "median s", "worst s"]
    return as_markdown(columns, rows, "ll" + "r" * 8)


def every(table: pd.DataFrame) -> str:
    shown = table.copy()
    for name, digits in {"windows": 0, "margin": 2, "right": 1, **dict.fromkeys(PARTS, 0)}.items():
        shown[name] = [f"{x:,.{digits}f}" if x == x else "–" for x in table[name]]
    shown["reason"] = table.reason.astype(object).fillna("")
    columns = [*KEY, "outcome", "windows", "margin", "right", *PARTS, "reason"]
    return as_markdown(columns, shown[columns].astype(str).values.tolist(), "llrrl" + "r" * 7 + "l")


def report(table: pd.DataFrame) -> str:
    """The page, whose text stands between the tables, in from_nothing_page.txt."""
    lost = table[table.outcome != "certified"]
    text = (HERE / "from_nothing_page.txt").read_text()
    return text.format(
        overview=overview(table), lost=every(lost) if len(lost) else "None.\n", every=every(table)
    )


def main() -> None:
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--task", help="rows of this task alone")
    parser.add_argument("--model", default="transformer", choices=["transformer", "decoder"])
    parser.add_argument("--seeds", default="0-19", help="the first and the last seed")
    given = parser.parse_args()
    first, last = map(int, given.seeds.split("-"))
    for task, base, seed in plan(given.model):
        known = pd.read_csv(TABLE) if TABLE.exists() else pd.DataFrame(columns=KEY)
        done = (known[KEY] == [given.model, task, base, seed]).all(axis=1).any()
        if done or given.task not in (None, task) or not first <= seed <= last:
            continue
        row = judged(given.model, task, base, seed, given.folder)
        made = pd.DataFrame([row], columns=FIELDS)
        made.to_csv(TABLE, mode="a", header=not TABLE.exists(), index=False)
        PAGE.write_text(report(pd.read_csv(TABLE)))


if __name__ == "__main__":
    main()
