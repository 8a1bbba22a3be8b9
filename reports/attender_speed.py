"""Milliseconds of a training step and seconds of a pass, for each attender on one thread.

    python reports/attender_speed.py [--attenders content,loc,one_step] [--tasks copy,recopy,lookup]
                                     [--batches 32,128] [--steps 20]

Adds rows to reports/attender_speed.csv, one for each attender, task and batch that has none yet,
and writes attender_speed.md; an interrupted run goes on where it was. Times are the process's own
(CPU seconds): on a busy machine the wall clock would measure the others. ``ms`` is the median
over the steps, ``fastest`` their minimum.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from abc_calib.config import RecurrentOptions, TrainOptions
from abc_calib.data import TokenData
from abc_calib.nn.build import build_model
from abc_calib.nn.recurrent.attenders import ATTENDERS
from abc_calib.text import Markup, as_markdown
from abc_calib.training.step import optimise
from tasks import get_task

TABLE = Path(__file__).with_suffix(".csv")
BATCHES = Path(__file__).with_name("batches.csv")
NAMES = ["attender", "task", "batch"]
WARM_UP = 3


def measure(attender: str, name: str, batch: int, steps: int) -> dict[Any, Any]:
    """The row of one attender, task and batch."""
    task: Any = get_task(name)
    data = TokenData(task, TrainOptions(length=task.train_length, sampling=task.sampling))
    model: Any = build_model("gru", RecurrentOptions(attender=attender), data, 0)
    optimizer = model.optimizer()
    model.train()
    times = []
    for step in range(WARM_UP + steps):
        drawn = data.training(step, batch)
        started = time.process_time()
        optimise(model, optimizer, drawn, rate=1e-3, max_grad_norm=5.0)
        times.append(time.process_time() - started)
    kept = times[WARM_UP:]
    median = statistics.median(kept)
    return {
        "attender": attender,
        "body": model.options.backbone,
        "task": name,
        "batch": batch,
        "ms": round(1000 * median, 2),
        "fastest": round(1000 * min(kept), 2),
        "seconds_a_pass": round(median * data.steps_a_pass(batch), 1),
        "steps": steps,
        "parameters": sum(p.numel() for p in model.parameters()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--attenders", default=",".join(ATTENDERS))
    parser.add_argument("--tasks", default="copy,recopy,lookup")
    parser.add_argument("--batches", default="32,128")
    parser.add_argument("--steps", type=int, default=20)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = pd.read_csv(TABLE).to_dict("records") if TABLE.exists() else []
    done = {tuple(row[name] for name in NAMES) for row in rows}
    for task in given.tasks.split(","):
        for batch in map(int, given.batches.split(",")):
            for attender in given.attenders.split(","):
                if (attender, task, batch) in done:
                    continue
                rows.append(measure(attender, task, batch, given.steps))
                pd.DataFrame(rows).to_csv(TABLE, index=False)
                print(rows[-1], flush=True)
    TABLE.with_suffix(".md").write_text(report(pd.DataFrame(rows)))


def report(rows: pd.DataFrame) -> str:
    """Milliseconds of a step and seconds of a pass, a row for each attender, as Markdown."""
    shapes = list(dict.fromkeys(zip(rows["task"], rows["batch"], strict=True)))
    heads = [f"{task}, {batch}" for task, batch in shapes]
    lines = []
    for (attender, body), mine in rows.groupby(["attender", "body"], sort=False):
        cells = {
            (r.task, r.batch): f"{r.ms:.1f} ({r.seconds_a_pass:.1f})" for r in mine.itertuples()
        }
        lines.append([Markup(attender), Markup(body), *(cells.get(s, "–") for s in shapes)])
    text = (
        "# What a training step of each attender costs\n\n"
        f"Made by `python reports/attender_speed.py`: one thread, batches of the sizes above the "
        f"columns, median of {rows['steps'].min()} steps after {WARM_UP}; CPU milliseconds of a "
        "step, and in brackets CPU seconds of a pass through the training set (10,001 problems of "
        "the copy family, 9,081 of lookup).\n\n"
        + as_markdown(["attender", "body", *heads], lines, "ll" + "r" * len(heads))
    )
    return text + batches(pd.read_csv(BATCHES), rows) if BATCHES.exists() else text


def batches(trained: pd.DataFrame, costs: pd.DataFrame) -> str:
    """What a larger batch gains: passes and seconds until done, and how long it stays right."""
    lengths = sorted(trained["length"].unique())
    rows = []
    for (task, batch, rate), group in trained.groupby(["task", "batch", "learning_rate"]):
        same = (costs["attender"] == "one_step") & (costs["task"] == task)
        cost = costs[same & (costs["batch"] == batch)].iloc[0]
        first = group[group["length"] == lengths[0]].sort_values("seed")
        passes = (first["steps_taken"] / first["validate_every"]).round().astype(int)
        seconds = first["steps_taken"] * cost["ms"] / 1000
        cells = [", ".join(map(str, passes)), ", ".join(f"{second:.0f}" for second in seconds)]
        for length in lengths:
            seeds = group[group["length"] == length].sort_values("seed")["accuracy"]
            cells.append(", ".join(f"{value:g}" for value in seeds.round(1)))
        rows.append([task, batch, rate, *cells])
    columns = ["task", "batch", "rate", "passes", "CPU seconds", *map(str, lengths)]
    return (
        "\n## Larger batches\n\n"
        "Made by `abc sweep reports/batches.toml --out reports/batches.csv`: whole trainings of "
        "one_step, until development accuracy was 100 % five times or after 20 passes. Seconds are "
        "passes times what one costs above. Passes, seconds and exact match (%) of each seed, "
        f"{trained['n'].min():,} samples a length or more. Passes, and matches short of 100 %, are "
        "of kernels for AVX2 instructions (`ATEN_CPU_CAPABILITY=avx2`; 4 of 16 models were trained "
        "again); with others a seed may have others ([log](LOG.md)).\n\n"
        + as_markdown(columns, rows, "lrrrr" + "r" * len(lengths))
    )


if __name__ == "__main__":
    main()
