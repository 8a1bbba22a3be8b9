"""Decoding in passes beside decoding token by token: the same outputs, and both times.

    python reports/decoding.py runs/addition-calibrated-seed0-1 runs/addition-vanilla-seed0-1 ...
    python reports/decoding.py --page

Each problem is decoded alone, both ways, one after the other, with one thread; a row for each
run, set of problems and length. Vanilla models, which ``abc`` decodes token by token, are decoded
in passes here all the same. ``--page`` only writes the page again.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import pandas as pd
import torch

import abc_calib as abc
from abc_calib.nn.transformer.cache import Cache
from abc_calib.nn.transformer.decoding import in_passes, token_by_token
from abc_calib.text import as_markdown

TABLE = Path(__file__).with_suffix(".csv")
PROBLEMS = {1: 20, 6: 300, 20: 250, 50: 150, 200: 40, 1000: 10}
"""Problems of each set and length."""
VANILLA = {1: 10, 6: 50, 20: 50}
SETS = ("random", "hard")
LONGEST = 100_000
"""Digits of one addition that is decoded in passes alone."""


@torch.inference_mode()
def compared(run: abc.Run, kind: str, length: int, n: int) -> dict[str, Any]:
    """Both ways on ``n`` problems."""
    model: Any = run.load_model()
    exact, kept = model.exact(), model.kept_rows
    batch = run.data.test(length, n, kind, seed=22)
    steps = batch.target.shape[1]
    alike, right, seconds = 0, 0, [0.0, 0.0]
    sources, targets = batch.source.split(1), batch.target.split(1)
    for way in (token_by_token, in_passes):  # warm up
        way(exact, exact.encode(sources[0]), steps, Cache(kept))
    for source, target in zip(sources, targets, strict=True):
        encoded = exact.encode(source)
        outputs = []
        for number, way in enumerate((token_by_token, in_passes)):
            started = time.perf_counter()
            outputs.append(way(exact, encoded, steps, Cache(kept)))
            seconds[number] += time.perf_counter() - started
        alike += torch.equal(*outputs)
        right += torch.equal(outputs[1], target)
    found = {"task": run.config.task, "model": run.config.stage, "seed": run.config.train.seed}
    counts = {"set": kind, "digits": length, "problems": n, "alike": alike, "right": right}
    names = ("seconds_single", "seconds_passes")
    return {**found, **counts, **{k: round(s, 4) for k, s in zip(names, seconds, strict=True)}}


def longest(run: abc.Run) -> dict[str, Any]:
    """One long addition, in passes alone."""
    batch = run.data.test(LONGEST, 1, seed=22)
    model: Any = run.load_model()
    started = time.perf_counter()
    ids = model.decode(batch.source, batch.target.shape[1]).ids
    taken = time.perf_counter() - started
    found = {"task": run.config.task, "model": run.config.stage, "seed": run.config.train.seed}
    right = int(torch.equal(ids, batch.target))
    counts = {"set": "random", "digits": LONGEST, "problems": 1, "right": right}
    return {**found, **counts, "seconds_passes": round(taken, 4)}


def report(table: pd.DataFrame) -> str:
    """The page of a table."""
    both = table[table.seconds_single.notna()]
    rows: list[list[Any]] = []
    grouped = both.groupby(["task", "model", "set", "digits"], sort=False)
    for (task, model, kind, digits), part in grouped:
        ratio = part.seconds_single / part.seconds_passes
        counts = [f"{part[name].sum():,.0f}" for name in ("problems", "alike", "right")]
        ratios = [f"{ratio.median():.2f}", f"{ratio.min():.2f}"]
        rows.append([task, model, kind, f"{digits:,}", *counts, *ratios])
    columns = ["task", "model", "set", "digits", "problems", "alike", "right", "faster", "least"]
    known = both[both.model == "calibrated"]
    calls = "`python reports/decoding.py RUN ...`"
    long = table[table.digits == LONGEST]
    several = "; ".join(f"{s:.1f} s" for s in long.seconds_passes)
    total, alike = int(both.problems.sum()), int(both.alike.sum())
    known = known[known.seconds_single >= 0.5]  # below, a busy machine says nothing
    slowest = (known.seconds_passes / known.seconds_single).max()
    return (
        f"# Decoding in passes\n\nMade by {calls}: every problem decoded alone, token by token and "
        f"in passes, one after the other, with one thread. **{alike:,} of {total:,} outputs are "
        "the same.** *Faster*: the time token by token over the time in passes, the median of the "
        "runs and the least of them. Measured with one other process on the other core, so "
        "that rows of some milliseconds vary. Of calibrated models, in rows of half a second and "
        f"more, passes take at most {slowest:.2f} times as long. One addition of {LONGEST:,} "
        f"digits took {several} (one for each model), {int(long.right.sum())} of {len(long)} "
        "right.\n\n"
        "A running xor (parity) is the worst case: each bit waits for the one before.\n\n"
        + as_markdown(columns, rows, "lllrrrrrr")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="*")
    parser.add_argument("--page", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if not given.page:
        rows: list[dict[str, Any]] = []
        for path in given.runs:
            run = abc.Run.open(path)
            calibrated = run.config.stage == "calibrated"
            for length, n in (PROBLEMS if calibrated else VANILLA).items():
                rows += [compared(run, kind, length, n) for kind in SETS]
                print(rows[-2:], flush=True)
            if calibrated and run.config.task == "addition":
                rows.append(longest(run))
        pd.DataFrame(rows).to_csv(TABLE, index=False)
    TABLE.with_suffix(".md").write_text(report(pd.read_csv(TABLE)))


if __name__ == "__main__":
    main()
