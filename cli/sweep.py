"""``abc sweep``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from abc_calib.config import DeviceOptions, WorkOptions
from abc_calib.errors import shortened
from abc_calib.progress import bar, is_live
from abc_calib.text import Table
from cli.command import Jobs, command
from cli.console import Result, say

if TYPE_CHECKING:
    import pandas as pd

    from abc_calib.sweeps import Outcome, Progress

File = Annotated[Path, typer.Argument(help="What to run: a TOML file.")]
Results = Annotated[Path | None, typer.Option(help="The results; by default runs/FILE.csv.")]
Check = Annotated[
    bool, typer.Option("--check", help="Check the file and list its jobs; run nothing.")
]


@command(tables=True)
def sweep(
    file: File,
    work: WorkOptions,
    machine: DeviceOptions,
    out: Results = None,
    jobs: Jobs = None,
    check: Check = False,
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

        [[jobs]]                   # further ones, by name
        task = "parity"
        scheme = "none"
        calibrate = false

    Jobs that are complete are kept, begun ones go on: repeat the command after an interruption.
    With **--scheduler** they run on the workers of a Dask scheduler; with **--array** I/N only
    share I of N is run, and the results are those of all shares so far.
    Exit code 1 if a job failed; the others are run all the same.

    Example: **abc sweep depth.toml --workers 2 --out depth.csv**
    """
    from abc_calib import sweeps
    from abc_calib.files import make_folder, runs_root
    from abc_calib.nn.base import resolve_device
    from abc_calib.sweeps.results import check_writable

    resolve_device(machine.device)
    path, root = out or runs_root() / f"{file.stem}.csv", jobs or sweeps.jobs_root()
    check_writable(path)
    all_jobs = sweeps.read_sweep(file)
    if check:
        picked = sweeps.share_of(all_jobs, *work.share) if work.share else all_jobs
        keys = [job.key for job in picked]
        table = Table(("job",), [[key] for key in keys])
        return Result({"jobs": keys}, keys, [f"{len(keys)} jobs"], table)
    make_folder(path.parent)
    make_folder(root)
    with jobs_progress() as on_change:
        how = {**work.model_dump(), "device": machine.device}
        outcomes = sweeps.run_jobs(all_jobs, root, on_change=on_change, **how)
    results = sweeps.results_table(all_jobs, root, outcomes)
    sweeps.write_table(results, path)
    every = sweeps.with_parents(all_jobs)
    return report(outcomes, results, path, sum(job.complete(root) for job in every), len(every))


SAME_IN_A_ROW = ("key", "seed", "calibrate_seed", "length", "accuracy")
"""Columns of the results that do not say which configuration it was."""


def medians(table: pd.DataFrame) -> Table:
    """The medians over seeds of each configuration, a column for each length."""
    rows = table.dropna(subset=["length", "accuracy"])
    first = [name for name in ("task", "scheme", "attender", "stage", "set") if name in rows]
    columns = [str(name) for name in rows]
    ended = columns.index("steps_taken") if "steps_taken" in columns else len(columns)
    options = [name for name in columns[:ended] if name not in (*first, *SAME_IN_A_ROW)]
    by_stage = rows.groupby("stage")
    names = first + [n for n in options if (by_stage[n].nunique(dropna=False) > 1).any()]
    rows = rows.astype(dict.fromkeys(names, "object")).fillna(dict.fromkeys(names, ""))
    cells = rows.astype({"length": int}).pivot_table(
        index=names, columns="length", values="accuracy", aggfunc="median", sort=False
    )
    cells = cells[sorted(cells.columns)]
    shown = [
        [*map(str, name), *("" if value != value else f"{value:.2f}" for value in row)]
        for name, row in zip(cells.index, cells.to_numpy(), strict=True)
    ]
    lengths = [*map(str, cells.columns)]
    caption = f"Exact match in percent by length, medians over {rows['seed'].nunique()} seeds"
    return Table([*names, *lengths], shown, right=lengths, caption=caption, label="tab:sweep")


def report(
    outcomes: list[Outcome], table: pd.DataFrame, path: Path, complete: int, total: int
) -> Result:
    """How the jobs ended, how many of all shares are complete, and medians of the results."""
    states = {
        state: [outcome.job.key for outcome in outcomes if outcome.state == state]
        for state in ("failed", "blocked", "missing")
    }
    counts = [f"{complete} of {total} jobs complete"]
    counts += [f"{len(keys)} {state}" for state, keys in states.items() if keys]
    measured = "accuracy" in table and table["accuracy"].notna().any()
    return Result(
        {"results": str(path), "complete": complete, **states, "rows": len(table)},
        [str(path)],
        [", ".join(counts)],
        medians(table) if measured else None,
        failed=bool(states["failed"]),
    )


WORDS = {
    "kept": "complete already",
    "done": "done",
    "failed": "FAILED",
    "blocked": "left out",
    "missing": "not started",
}


@contextmanager
def jobs_progress() -> Iterator[Callable[[Progress, Outcome | None], None]]:
    """Give what ``run_jobs`` calls: it shows how each job ended, or what one said last."""
    with bar("jobs", None, "jobs") as update:

        def on_change(progress: Progress, outcome: Outcome | None) -> None:
            last = [f"{job.job.task}: {job.last_line}" for job in progress.running[-1:]]
            if outcome is not None and outcome.state in ("failed", "blocked") and is_live():
                say(in_words(outcome))
            note = in_words(outcome) if outcome is not None else shortened(" ".join(last))
            update(len(progress.outcomes), progress.total, note, outcome is not None)

        yield on_change


def in_words(outcome: Outcome) -> str:
    """Say how a job has ended."""
    time = f" after {outcome.seconds:.0f} s" if outcome.state == "done" else ""
    reason = f": {outcome.reason}" if outcome.reason else ""
    return f"{outcome.job.key}: {WORDS[outcome.state]}{time}{reason}"
