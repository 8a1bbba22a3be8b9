"""From nothing to a certificate: seed after seed of each task and base, one row each.

    python reports/from_nothing.py FOLDER [--minutes 120] [--model decoder] [--task parity]

One process of one thread; processes of different tasks, or seeds (``--seeds 0-9``), may run side by
side. Adds rows to
reports/from_nothing.csv and skips those that it has; what was interrupted goes on from FOLDER.
Seconds are of this process's processor time, since other work beside it would count otherwise;
`wall` is the clock's.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from abc_calib import stages
from abc_calib.errors import AbcError
from abc_calib.training.trainer import Progress

TABLE = Path(__file__).with_suffix(".csv")
FIELDS = ["model", "task", "base", "seed", "outcome", "windows", "margin", "right"]
FIELDS += ["train_steps", "retrain_steps", "train", "calibrate", "retrain", "certify"]
FIELDS += ["wall", "reason"]
KEY = ("model", "task", "base", "seed")
LENGTHS, SAMPLES = [50, 1000], 1000


def plan(model: str) -> Iterator[tuple[str, int, int]]:
    """Task, base and seed: 20 seeds of each task, 5 in each other base; of decoders 3."""
    if model == "decoder":
        tasks = (("successor", 10), ("addition", 10), ("multiplication", 10), ("parity", 2))
        yield from ((task, base, seed) for seed in range(3) for task, base in tasks)
        return
    for seed in (11, 13, 14, *(s for s in range(20) if s not in (11, 13, 14))):
        yield "addition", 10, seed
    for seed in range(20):
        for task, base in (("parity", 2), ("successor", 10), ("multiplication", 10)):
            yield task, base, seed
    for seed in range(5):
        for base in (2, 3, 16, 36):
            for task in ("addition", "successor", "multiplication"):
                yield task, base, seed


class Clock:
    """How much processor time each part took, heard from the steps of both trainings."""

    def __init__(self) -> None:
        self.first: dict[str, float] = {}
        self.last: dict[str, float] = {}
        self.steps: dict[str, int] = {}
        self.now: dict[str, int] = {}
        self.before: dict[str, int] = {}
        self.started, self.wall = time.process_time(), time.time()

    def hear(self, stage: str, step: Progress) -> None:
        now = time.process_time()
        self.first.setdefault(stage, now)
        self.last[stage] = now
        if step.step < self.now.get(stage, 0):  # it goes on in another run
            self.before[stage] = self.steps[stage]
        self.now[stage] = step.step
        self.steps[stage] = self.before.get(stage, 0) + step.step

    def parts(self) -> dict[str, Any]:
        """Seconds of each part that was run here."""
        end, nothing = time.process_time(), float("nan")
        trained, again = (self.last.get(s, nothing) for s in ("training", "retraining"))
        seconds = {
            "train": trained - self.started,
            "calibrate": self.first.get("retraining", nothing) - trained,
            "retrain": again - self.first.get("retraining", nothing),
            "certify": end - again,
        }
        steps = {f"{name}_steps": self.steps.get(f"{name}ing", "") for name in ("train", "retrain")}
        told = {k: "" if v != v else f"{v:.1f}" for k, v in seconds.items()}
        return steps | told | {"wall": f"{time.time() - self.wall:.0f}"}


def judged(
    model: str, task: str, base: int, seed: int, folder: Path, minutes: float
) -> dict[str, Any]:
    """A row of the table; ``right``: the least per cent of random problems at the lengths."""
    clock = Clock()
    row: dict[str, Any] = {"model": model, "task": task, "base": base, "seed": seed}
    row["outcome"] = "failed"
    try:
        own = None if task == "parity" else base
        how: dict[str, Any] = {"minutes": minutes, "progress": False, "base": own, "model": model}
        run, made = stages.certified(task, seed, folder=folder, on_step=clock.hear, **how)
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


def main() -> None:
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=240.0)
    parser.add_argument("--task", help="rows of this task alone")
    parser.add_argument("--model", default="transformer", choices=["transformer", "decoder"])
    parser.add_argument("--seeds", default="0-19", help="the first and the last seed")
    given = parser.parse_args()
    first, last = map(int, given.seeds.split("-"))
    done = set()
    if TABLE.exists():
        with TABLE.open(newline="") as file:
            done = {tuple(row[name] for name in KEY) for row in csv.DictReader(file)}
    end = time.time() + 60 * given.minutes
    for task, base, seed in plan(given.model):
        if given.task not in (None, task) or not first <= seed <= last:
            continue
        if (given.model, task, str(base), str(seed)) in done or time.time() > end:
            continue
        minutes = 90.0 if base > 10 else 15.0  # more digits are more windows
        row = judged(given.model, task, base, seed, given.folder, minutes)
        made = pd.DataFrame([row], columns=FIELDS)
        made.to_csv(TABLE, mode="a", header=not TABLE.exists(), index=False)


if __name__ == "__main__":
    main()
