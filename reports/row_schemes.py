"""Which position schemes learn tasks of several rows within their training sizes, and how soon.

    python reports/row_schemes.py FOLDER [--task sum]

Each scheme of the registry has the steps that `abc train` gives the task, with everything else at
its default: seed 0, one thread. One that has less than 1 % of held-out problems when half of its
steps are over is given up. Adds the accuracies to reports/row_schemes.csv, writes row_schemes.md,
and skips schemes that the table has; what was interrupted begins again.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
from pathlib import Path

import pandas as pd
import torch

import abc_calib as abc
from abc_calib.nn.positions import SCHEMES
from abc_calib.text import as_markdown
from abc_calib.training.trainer import Progress

TABLE = Path(__file__).with_suffix(".csv")
SEEN = 1.0
MARKS = (500, 1000, 1500, 2000, 3000, 4000)


class GivenUp(Exception):
    pass


def trained(task: str, scheme: str, folder: Path) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []

    def hear(step: Progress) -> None:
        if step.accuracy is None:
            return
        row = {"task": task, "scheme": scheme, "step": step.step}
        right = round(100 * step.accuracy, 2)
        rows.append(row | {"accuracy": right, "seconds": round(step.seconds, 1)})
        if 2 * step.step == step.steps and right < SEEN:
            raise GivenUp

    out = folder / f"{task}-{scheme}"
    shutil.rmtree(out, ignore_errors=True)
    with contextlib.suppress(GivenUp):
        abc.train(task, seed=0, scheme=scheme, out=out, on_step=hear)
    return rows


def report(table: pd.DataFrame) -> str:
    rows = []
    for (task, scheme), some in table.groupby(["task", "scheme"], sort=False):
        at = some.set_index("step").accuracy
        marks = [f"{at[mark]:.1f}" if mark in at.index else "–" for mark in MARKS]
        ends = [
            f"{some.step[some.accuracy >= least].min():,.0f}" if at.max() >= least else "–"
            for least in (50, 90)
        ]
        each = 1000 * some.seconds.iloc[-1] / some.step.iloc[-1]
        rows.append([task, scheme, *marks, *ends, f"{each:.0f}"])
    columns = [
        "task",
        "scheme",
        *(f"{mark:,}" for mark in MARKS),
        "50 % at",
        "90 % at",
        "ms a step",
    ]
    return (
        "# Position schemes on tasks of several rows\n\n"
        "Made by `python reports/row_schemes.py FOLDER`: first models with `abc train`'s defaults, "
        "seed 0, one thread of a shared machine. Per cent of held-out problems of the largest "
        "training size after so many steps, and the step at which half and nine of ten are right; "
        f"a scheme below {SEEN:.0f} % after half of its steps was given up.\n\n"
        + as_markdown(columns, rows, "ll" + "r" * (len(columns) - 2))
    )


def main() -> None:
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--task", default="long_multiplication", choices=["long_multiplication", "sum"]
    )
    given = parser.parse_args()
    table = pd.read_csv(TABLE) if TABLE.exists() else pd.DataFrame({"task": [], "scheme": []})
    done = set(zip(table.task, table.scheme, strict=True))
    for scheme in SCHEMES:
        if (given.task, scheme) in done:
            continue
        table = pd.concat([table, pd.DataFrame(trained(given.task, scheme, given.folder))])
        table.to_csv(TABLE, index=False)
        TABLE.with_suffix(".md").write_text(report(table))


if __name__ == "__main__":
    main()
