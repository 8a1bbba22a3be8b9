"""``abc sweep``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from abc_calib.config import WorkOptions
from abc_calib.errors import shortened
from abc_calib.progress import bar
from abc_calib.text import Table
from cli.command import Device, Jobs, command
from cli.console import Result, say

if TYPE_CHECKING:
    import pandas as pd

    from abc_calib.sweeps import Outcome, Progress

Results = Annotated[Path | None, typer.Option(help="The results; by default runs/FILE.csv.")]
Check = Annotated[
    bool, typer.Option("--check", help="Check the file and list its jobs; run nothing.")
]


@command(tables=True)
def sweep(
    file: Annotated[Path, typer.Argument(help="What to run: a TOML file.")],
    work: WorkOptions,
    out: Results = None,
    jobs: Jobs = None,
    check: Check = False,
    device: Device = "auto",
) -> Result:
    """Run tasks x schemes x options x seeds: each job once, in parallel, resumable.

    A file reads, for example:

        [sweep]
        tasks = ["successor", "addition"]
        schemes = ["sinusoidal", "rpe:clip=8"]
        seeds = 3                  # 0, 1 and 2; or a list
        calibrate = true           # calibrate and retrain each as well
        lengths = [6, 10, 20, 50]
        samples = 1000             # a length
        sets = ["random", "carry"]

        [options]                  # the same for all: options of abc train
        width = 64
        calibrate.steps = 1500     # and of abc calibrate

        [grid]                     # every value with every other
        decoder_layers = [1, 2, 3]

    Further jobs are tables [[jobs]] with a task and options of their own.
    Jobs that are complete are kept, begun ones go on: repeat the command after an interruption.
    With **--scheduler** they run on the workers of a Dask scheduler; with **--array** I/N only
    share I of N is run, and the results are those of all shares so far.
    Exit code 1 if a job failed; the others are run all the same.

    Example: **abc sweep depth.toml --workers 2 --out depth.csv**
    """
    from abc_calib import sweeps
    from abc_calib.files import make_folder, runs_root
    from abc_calib.sweeps.results import check_writable

    path, root = out or runs_root() / f"{file.stem}.csv", jobs or sweeps.jobs_root()
    check_writable(path)
    all_jobs = sweeps.read_sweep(file)
    if check:
        picked = sweeps.share_of(all_jobs, *work.share) if work.share else all_jobs
        keys = [job.key for job in picked]
        table = Table(("job",), [[key] for key in keys])
        return Result({"jobs": keys}, keys, [f"{len(keys)} jobs"], table)
    make_folder(path.parent, path)
    with jobs_progress() as on_change:
        options = work.model_dump()
        outcomes = sweeps.run_jobs(all_jobs, root, device=device, on_change=on_change, **options)
    results = sweeps.results_table(all_jobs, root, outcomes)
    sweeps.write_table(results, path)
    keys_of = {
        state: [outcome.job.key for outcome in outcomes if outcome.state == state]
        for state in ("failed", "blocked", "missing")
    }
    every = sweeps.with_parents(all_jobs)
    complete = sum(job.complete(root) for job in every)
    counts = [f"{len(keys)} {state}" for state, keys in keys_of.items() if keys]
    return Result(
        {"results": str(path), "complete": complete, **keys_of, "rows": len(results)},
        [str(path)],
        [", ".join([f"{complete} of {len(every)} jobs complete", *counts])],
        medians(results),
        failed=bool(keys_of["failed"]),
    )


FIRST = ("task", "scheme", "attender", "stage", "set")
"""Columns that name a row of the medians, next to options that differ."""


def medians(table: pd.DataFrame) -> Table | None:
    """Return the medians over seeds of each configuration, a column for each length."""
    if "accuracy" not in table or table["accuracy"].isna().all():
        return None
    rows = table.dropna(subset=["length", "accuracy"]).astype({"length": int})
    names = [str(name) for name in rows.columns]
    names = names[: names.index("steps_taken")] if "steps_taken" in names else names
    same = ("key", "seed", "calibrate_seed", "length", "accuracy", *FIRST)
    by_stage = rows.groupby("stage")
    differ = [n for n in names if n not in same and by_stage[n].nunique(dropna=False).max() > 1]
    index = [*(name for name in FIRST if name in rows), *differ]
    rows = rows.astype(dict.fromkeys(index, "object")).fillna(dict.fromkeys(index, ""))
    cells = rows.pivot_table(
        index=index, columns="length", values="accuracy", aggfunc="median", sort=False
    ).sort_index(axis=1)
    caption = f"Exact match in percent by length, medians over {rows['seed'].nunique()} seeds"
    lengths = [str(length) for length in cells.columns]
    texts = cells.map("{:.2f}".format, na_action="ignore").fillna("").reset_index()
    records = [[str(cell) for cell in row] for row in texts.to_numpy().tolist()]
    return Table([*index, *lengths], records, right=lengths, caption=caption, label="tab:sweep")


@contextmanager
def jobs_progress() -> Iterator[Callable[[Progress, Outcome | None], None]]:
    """Give what ``run_jobs`` calls: it shows how each job ended, or what one said last."""
    with bar("jobs", None, "jobs") as update:

        def on_change(progress: Progress, outcome: Outcome | None) -> None:
            note = shortened(
                " ".join(f"{x.job.task}: {x.last_line}" for x in progress.running[-1:])
            )
            if outcome is not None:
                note = f"{outcome.job.key}: {outcome.state} {outcome.reason}"
                if outcome.state in ("failed", "blocked"):
                    say(note)
            update(len(progress.outcomes), progress.total, note, outcome is not None)

        yield on_change
