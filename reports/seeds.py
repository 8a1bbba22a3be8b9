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
from abc_calib.reporting import accuracy_curve, as_markdown, save_figure
from tasks import get_task

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
    judge(
        vanilla,
        "vanilla",
        seconds,
        {get_task(task).train_length: 10_000, 10: 1000, 20: 1000, 50: 1000},
    )
    try:
        started = time.perf_counter()
        calibrated = abc.calibrate(vanilla)
        judge(calibrated, "calibrated", time.perf_counter() - started, LENGTHS)
    except abc.AbcError as error:
        print(f"{task} seed {seed}: {error}", flush=True)
        rows.append({**common, "stage": "calibrated", "set": f"refused: {error}"})
    pd.DataFrame(rows).to_csv(Path("runs") / f"seeds-{task}-{seed}.csv", index=False)


def render(rows: pd.DataFrame) -> None:
    """The medians and minima over seeds as Markdown, and the curves."""
    lines = []
    for (task, stage, kind), part in rows.groupby(["task", "stage", "set"], sort=False):
        cells = [task, stage, kind, part.seed.nunique()]
        for length in (6, 10, 20, 50, 100, 1000):
            found = part[part.length == length].accuracy
            whole = len(found) == part.seed.nunique()
            short = f"{found.median():g} / {found.min():g}" if whole else None
            cells.append(short)
        lines.append(cells)
    columns = ["task", "model", "inputs", "seeds", "6", "10", "20", "50", "100", "1000"]
    times = [
        [task, stage, f"{part.median():.0f}", f"{part.min():.0f}", f"{part.max():.0f}"]
        for (task, stage), part in rows.groupby(["task", "stage"], sort=False).train_seconds
    ]
    (HERE / "seeds.md").write_text(
        "# The default pipeline over seeds\n\nMade by `python reports/seeds.py`; rows in "
        "[seeds.csv](seeds.csv). Exact match in percent, median / minimum over seeds; columns "
        "are digits of an operand. 10,000 samples a length, seed and kind of input; 1,000 from "
        "100 digits on and for the vanilla model beyond 6.\n\n"
        + as_markdown(columns, lines)
        + "\nTime in seconds, one thread a job, two jobs on two shared cores: training for the "
        "vanilla rows, calibration with its checks and retraining for the calibrated ones.\n\n"
        + as_markdown(["task", "model", "median", "minimum", "maximum"], times)
    )
    for task, mine in rows.groupby("task"):
        series = {}
        for (stage, kind), part in mine.groupby(["stage", "set"], sort=False):
            if not part.length.isna().any():
                points = part.groupby("length").accuracy.agg(["median", "min", "max"])
                series[f"{stage}, {kind}"] = list(points.itertuples(name=None))
        longest = get_task(task).train_length
        title = f"{task}: median and range of {mine.seed.nunique()} seeds"
        figure = accuracy_curve(series, title=title, train_length=longest)
        (HERE / "figures").mkdir(exist_ok=True)
        save_figure(figure, HERE / "figures" / f"seeds-{task}.png")
        save_figure(figure, HERE / "figures" / f"seeds-{task}.pdf")


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
    rows = pd.concat([pd.read_csv(part) for part in parts])
    rows.to_csv(ROWS, index=False)
    render(rows)


if __name__ == "__main__":
    main()
