"""The default pipeline over seeds: train, calibrate, retrain, evaluate.

    python reports/seeds.py --tasks successor,addition,multiplication,parity --seeds 0,1,2,3,4

Every job is a process of one thread; jobs that have their row in reports/seeds.csv are
skipped, so the command may be interrupted and repeated.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import torch

import abc_calib as abc

HERE = Path(__file__).parent
ROWS = HERE / "seeds.csv"
LENGTHS = {6: 10_000, 20: 10_000, 50: 10_000, 100: 1000, 1000: 1000}


def trained(task: str, seed: int) -> abc.Run:
    """The vanilla run of that task and seed, from an earlier call where there is one."""
    path = Path("runs") / f"seeds-{task}-vanilla-{seed}"
    if not path.exists():
        return abc.train(task, seed=seed, out=path)
    run = abc.Run.open(path)
    return run if run.result else abc.resume(run)


def job(task: str, seed: int) -> None:
    """One pipeline; its rows go to a file of their own under runs/."""
    torch.set_num_threads(1)
    rows = []
    common = {"task": task, "seed": seed}

    def judge(run: abc.Run, stage: str, seconds: float, lengths: dict[int, int]) -> None:
        for length, n in lengths.items():
            table = abc.evaluate(run, [length], samples=n, sets=("random", "carry"))
            for row in table.to_dict("records"):
                kept = {k: row[k] for k in ("set", "length", "n", "correct", "accuracy")}
                extra = {"steps": run.result["steps"], "train_seconds": round(seconds, 1)}
                rows.append({**common, "stage": stage, **extra, **kept})

    vanilla = trained(task, seed)
    seconds = vanilla.result["seconds"]
    judge(vanilla, "vanilla", seconds, {6: 10_000, 10: 1000, 20: 1000, 50: 1000})
    try:
        started = time.perf_counter()
        calibrated = abc.calibrate(vanilla)
        judge(calibrated, "calibrated", time.perf_counter() - started, LENGTHS)
    except abc.AbcError as error:
        print(f"{task} seed {seed}: {error}", flush=True)
        rows.append({**common, "stage": "calibrated", "set": f"refused: {error}"})
    pd.DataFrame(rows).to_csv(Path("runs") / f"seeds-{task}-{seed}.csv", index=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", default="successor,addition,multiplication,parity")
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--one", nargs=2, metavar=("TASK", "SEED"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        job(options.one[0], int(options.one[1]))
        return
    Path("runs").mkdir(exist_ok=True)
    wanted = [(t, int(s)) for s in options.seeds.split(",") for t in options.tasks.split(",")]

    def run(pair: tuple[str, int]) -> None:
        task, seed = pair
        if (Path("runs") / f"seeds-{task}-{seed}.csv").exists():
            return
        started = time.perf_counter()
        command = [sys.executable, __file__, "--one", task, str(seed)]
        code = subprocess.run(command, stdout=sys.stderr, check=False).returncode
        print(f"{task} seed {seed}: exit {code}, {time.perf_counter() - started:.0f} s", flush=True)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(run, wanted))
    parts = sorted(Path("runs").glob("seeds-*.csv"))
    pd.concat([pd.read_csv(part) for part in parts]).to_csv(ROWS, index=False)
    print(f"written to {ROWS}")


if __name__ == "__main__":
    main()
