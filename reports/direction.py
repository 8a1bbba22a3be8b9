"""Which way a model comes to read its source, and how soon: the gate of directed attenders.

    python reports/direction.py [--tasks copy,recopy] [--attenders mono] [--seeds 12]

Trains the models of ``abc reproduce attenders-table2`` whose attender may turn the source around
for the first steps of their schedule, a seed at a time, and writes how far the training sources
of the last batch are read forwards (1) or backwards (0) to reports/direction.csv and
direction.md; beside it how far held-out sources are at the end of the whole training, where the
folder of jobs has the model. Rows that are there already are kept.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from abc_calib.config import RecurrentOptions, TrainOptions
from abc_calib.data import make_data
from abc_calib.evaluation.inspect import diagnose
from abc_calib.nn.build import build_model
from abc_calib.reproduction import get_target
from abc_calib.reproduction.cells import shown
from abc_calib.sweeps import jobs_root
from abc_calib.text import Markup, as_markdown
from abc_calib.training.step import optimise
from tasks import get_task

TABLE = Path(__file__).with_suffix(".csv")
NAMES = ["task", "attender", "seed"]
COLUMNS = ["steps", "wanted", "before", "after", "right", "end", "held_out"]
STEPS = 300
TASKS = ("copy", "reverse_copy", "lookup", "reverse_lookup", "recopy", "inv_recopy")
ATTENDERS = ("bi_relative", "one_step", "mono")


def measure(name: str, attender: str, seed: int) -> dict[Any, Any]:
    """The row of one model: its gate before and after the first steps."""
    task = get_task(name)
    options = TrainOptions(seed=seed, length=task.train_length, sampling=task.sampling)
    data = make_data(task, options)
    model: Any = build_model("gru", RecurrentOptions(attender=attender), data, seed)
    optimizer = model.optimizer()
    gates = []
    for step in range(STEPS + 1):
        batch = data.training(step, 32)
        if step in (0, STEPS):
            with torch.no_grad():
                model.eval()
                gate = model.attender.forwards(model.encode(batch.source).memory)
                gates.append(round(float(gate.mean()), 4))
        model.train()
        optimise(model, optimizer, batch, rate=1e-3, max_grad_norm=5.0)
    wanted = "backwards" if name.startswith("reverse") else "forwards"
    right = (gates[-1] > 0.5) == (wanted == "forwards")
    row = {"task": name, "attender": attender, "seed": seed, "steps": STEPS, "wanted": wanted}
    return row | {"before": gates[0], "after": gates[1], "right": right}


def ends(known: set[tuple[object, ...]]) -> pd.DataFrame:
    """How the trained models of table 2 that are kept here read, and solve, held-out problems."""
    rows = []
    for entry in get_target("attenders-table2").entries():
        place = (entry.task, entry.row, entry.seed)
        run = entry.job.run(jobs_root()) if entry.row in ATTENDERS and place not in known else None
        if run and run.result:
            rows.append((*place, diagnose(run).forwards, run.result["validation_accuracy"]))
    return pd.DataFrame(rows, columns=[*NAMES, "end", "held_out"]).set_index(NAMES).round(4)


def report(rows: pd.DataFrame) -> str:
    """A row for each task and attender: in how many seeds the gate stands the right way."""
    measured = ", ".join(rows["attender"].unique())
    lines = []
    by_task = rows.sort_values("task", key=lambda tasks: pd.factorize(tasks)[0], kind="stable")
    for (task, attender), group in by_task.groupby(["task", "attender"], sort=False):
        group = group.sort_values("seed")
        after = group["after"]
        clear = int(((after < 0.1) | (after > 0.9)).sum())
        gates = ", ".join(f"{gate:.2f}" for gate in after)
        right = int(group["right"].sum())
        trained = group.dropna(subset=["end"])
        end = ", ".join(
            f"{gate:.2f} ({shown(solved)})"
            for gate, solved in zip(trained["end"], trained["held_out"], strict=True)
        )
        names = [Markup(task), Markup(attender)]
        lines.append([*names, len(group), right, clear, gates, end])
    columns = ["task", "attender", "seeds", "right", "clear", f"after {STEPS} steps", "at the end"]
    return (
        f"# Which way a source comes to be read\n\nMade by `python reports/direction.py`: the gate "
        f"of {measured} after the first {STEPS} steps (batches of 32) of the training that "
        "`abc reproduce attenders-table2` does. Right is above 0.5 where the task is read "
        "forwards, below it where it is reversed; clear is within 0.1 of an end. The last column "
        "is the gate of the trained model, for the seeds of the table, and in brackets how many "
        "percent of its held-out problems are right, each token given the true ones before it. "
        "Kernels were those for AVX2 instructions (`ATEN_CPU_CAPABILITY=avx2`; 16 gates measured "
        "again are the same); with those for AVX-512 a seed may stand the other way "
        "([log](LOG.md)).\n\n" + as_markdown(columns, lines)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--attenders", default=",".join(ATTENDERS))
    parser.add_argument("--seeds", type=int, default=12)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = pd.read_csv(TABLE).to_dict("records") if TABLE.exists() else []
    done = {tuple(row[name] for name in NAMES) for row in rows}
    for task in given.tasks.split(","):
        for attender in given.attenders.split(","):
            for seed in range(given.seeds):
                if (task, attender, seed) in done:
                    continue
                rows.append(measure(task, attender, seed))
                pd.DataFrame(rows).to_csv(TABLE, index=False)
                print(rows[-1], flush=True)
    table = pd.DataFrame(rows).set_index(NAMES).reindex(columns=COLUMNS)
    table.update(ends(set(table["end"].dropna().index)))
    table.reset_index().to_csv(TABLE, index=False)
    TABLE.with_suffix(".md").write_text(report(table.reset_index()))


if __name__ == "__main__":
    main()
