"""``abc sweep`` and ``abc reproduce``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from abc_calib.config import LookOptions, WorkOptions
from abc_calib.errors import UsageError, shortened
from abc_calib.progress import bar
from abc_calib.text import Table
from cli.command import Device, command
from cli.console import Result, say

if TYPE_CHECKING:
    import pandas as pd

    from abc_calib.reproduction import Report
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
    out: Results = None,
    check: Check = False,
    device: Device = "auto",
) -> Result:
    """Run tasks x schemes x options x seeds, each job once.

    Jobs run in parallel, and a stopped sweep goes on.

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
    from abc_calib.files import runs_root, write_text

    path, root = out or runs_root() / f"{file.stem}.csv", sweeps.jobs_root(work.jobs)
    all_jobs = sweeps.read_sweep(file)
    if check:
        picked = sweeps.share_of(all_jobs, *work.share) if work.share else all_jobs
        keys = [job.key for job in picked]
        table = Table(("job",), [[key] for key in keys])
        return Result({"jobs": keys}, keys, [f"{len(keys)} jobs"], table)
    sweeps.check_writable(path)
    with jobs_progress() as on_change:
        outcomes = sweeps.run_jobs(all_jobs, root, work, device=device, on_change=on_change)
    results = sweeps.results_table(all_jobs, root, outcomes)
    write_text(path, results.to_csv(index=False))
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
    rows[index] = rows[index].astype("object").fillna("")
    cells = rows.pivot_table("accuracy", index, "length", aggfunc="median", sort=False)
    cells = cells.sort_index(axis=1)
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
            note = shortened("".join(progress.last_lines[-1:]))
            if outcome is not None:
                note = f"{outcome.job.key}: {outcome.state} {outcome.reason}"
                if outcome.state in ("failed", "blocked"):
                    say(note)
            update(len(progress.outcomes), progress.total, note, outcome is not None)

        yield on_change


TARGET_HELP = (
    "table1, table2, table3, table1-padded, table3-padded, figure1, published, ablations, "
    "reviewers, rivals or chomsky; figure3, figure4, figure7 or figure8, drawn of models made "
    "from nothing; attenders-table2, -table3, -table4, -table6 to -table9 or -abc; "
    "location-table3, location-figure6 or location-figure8."
)
Name = Annotated[str, typer.Argument(help=TARGET_HELP)]
RowNames = Annotated[
    list[str] | None,
    typer.Option(help="Run only this row, as the results name it; may be repeated."),
]
Tables = Annotated[
    Path | None, typer.Option(help="Folder of the tables; by default runs/reproduction.")
]
FromResults = Annotated[
    bool, typer.Option("--from-results", help="Train nothing: show the committed results.")
]
Seeds = Annotated[
    int | None,
    typer.Option(min=1, max=10**6, help="Of every row; by default 1 to 5, as the target says."),
]


@command(threads=None)
def reproduce(
    target: Name,
    work: WorkOptions,
    look: LookOptions,
    seeds: Seeds = None,
    from_results: FromResults = False,
    row: RowNames = None,
    out: Tables = None,
    device: Device = "auto",
) -> Result:
    """Repeat the tables and figures of papers.

    Shows their numbers next to the median and minimum of ours. Runs what is missing and keeps the
    rest, so that the command may be stopped and repeated; writes Markdown, CSV, LaTeX and figures.
    With **--from-results** it shows what reports/reproduction holds (of the checkout that the
    program runs from), and writes files only where **--out** names a folder.

    Examples: **abc reproduce table1 --seeds 1 --budget 30** · **abc reproduce table3
    --from-results --json** · **abc reproduce figure3 --width neurips**
    """
    from abc_calib import reproduction
    from abc_calib.files import runs_root
    from abc_calib.reporting.style import font, save_figures
    from abc_calib.reproduction import chomsky

    values = {"row": row, "seeds": seeds, "from-results": from_results, **work.chosen}
    flags = {f"--{name}" for name, value in values.items() if value}
    folder = out or runs_root() / "reproduction"
    with font(look.font):
        if target in reproduction.DRAWN:
            refuse(flags - {"--jobs"}, target)
            figure = reproduction.drawn(target, work.jobs, **look.chosen)
            names = [str(path) for path in save_figures(figure, folder / target, ("pdf", "png"))]
            return Result({"files": names}, names)
        width = look.inches if "width" in look.chosen else None
        definition = None if target == chomsky.NAME else reproduction.get_target(target)
        if from_results:
            refuse(flags - {"--from-results", "--seeds"}, "--from-results")
            table = reproduction.load_results(target)
        elif definition is None:
            refuse(flags - {"--row", "--seeds", "--jobs"}, target)
            table = chomsky.reproduce(seeds, row or (), work.jobs, folder, on_row=say)
        else:
            options: Any = {"seeds": seeds, "rows": row or (), "device": device}
            with jobs_progress() as on_change:
                table, _ = reproduction.reproduce(definition, work, on_change=on_change, **options)
        if definition is None:
            report = chomsky.report(table)
        else:
            report = reproduction.make_report(definition, table, seeds, width)
        if out is not None or not from_results:
            reproduction.write_report(report, None if from_results else table, folder)
            say(f"written to {folder}")
    return shown(report, failed=not from_results and bool(table["error"].notna().any()))


def refuse(flags: set[str], target: str) -> None:
    """``UsageError`` for options that a target, or another option, does not take."""
    if flags:
        raise UsageError(f"{target} runs without {', '.join(sorted(flags))}: leave it out")


def shown(report: Report, failed: bool = False) -> Result:
    """Return a report for the terminal: its tables, and how to read them."""
    notes = [re.sub("[*`]", "", note) for note in report.notes]
    missing = [f"not complete: {line}" for line in report.incomplete]
    parts: list[Any] = [report.title, *report.tables, *notes, *missing]
    return Result({"rows": report.records}, parts, failed=failed)
