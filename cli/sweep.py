"""``abc sweep``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from abc_calib.config import MachineOptions, WorkOptions, build, taken
from abc_calib.errors import AbcError, OptionError
from cli import console
from cli.jobs import jobs_progress
from cli.options import AsJson, AsLatex, Jobs, Quiet, options

if TYPE_CHECKING:
    import pandas as pd

File = Annotated[Path, typer.Argument(help="What to run: a TOML file.")]
Results = Annotated[
    Path | None, typer.Option(help="The results, .csv or .parquet; by default runs/FILE.csv.")
]
Check = Annotated[
    bool, typer.Option("--check", help="Check the file and list its jobs; run nothing.")
]


@console.command
@options(WorkOptions, MachineOptions, without=("threads",))
def sweep(
    file: File,
    out: Results = None,
    jobs: Jobs = None,
    check: Check = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    as_latex: AsLatex = False,
    **given: Any,
) -> None:
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
    from abc_calib.files import make_folder, runs_root
    from abc_calib.nn.base import resolve_device
    from abc_calib.sweeps import jobs_root, read_sweep, results_table, run_jobs, write_table
    from abc_calib.sweeps.results import check_writable, prepare
    from abc_calib.sweeps.shares import Share, left_over

    work = build(WorkOptions, **taken(WorkOptions, given))
    resolve_device(given.get("device", "auto"))
    path = out or runs_root() / f"{file.stem}.csv"
    root = jobs or jobs_root()
    check_writable(path)
    wanted = read_sweep(file)
    if check and work.scheduler is not None:
        raise OptionError(
            "scheduler",
            work.scheduler[:100],
            "--check looks at the file alone; leave one of them out",
        )
    if check:
        mine = Share(*work.share).pick(wanted) if work.share else wanted
        keys = [job.key for job in mine]
        if as_json:
            console.print_json({"jobs": keys})
        else:
            console.tell("\n".join(keys))
            console.say(f"{len(keys)} jobs", quiet)
        return
    prepare(path)
    make_folder(root)
    with jobs_progress(quiet) as on_change:
        outcomes = run_jobs(wanted, root, on_change=on_change, **work.model_dump(), **given)
    table = results_table(wanted, root, outcomes)
    write_table(table, path)
    if work.share:
        for line in left_over(wanted, root, Share(*work.share)):
            console.say(line, quiet)
    if as_latex:
        console.tell(latex(table).rstrip())
    report(outcomes, path, quiet, as_json, as_latex, rows=len(table))


def latex(table: pd.DataFrame) -> str:
    """The medians over seeds, a column for each length."""
    from abc_calib.text import as_latex

    names = [name for name in ("task", "scheme", "attender", "stage", "set") if name in table]
    rows = table.dropna(subset=["length", "accuracy"]).fillna(dict.fromkeys(names, ""))
    if rows.empty:
        raise AbcError("nothing was measured: there is no table to show")
    cells = rows.astype({"length": int}).pivot_table(
        index=names, columns="length", values="accuracy", aggfunc="median", sort=False
    )
    cells = cells[sorted(cells.columns)]
    shown = [
        [*map(str, name), *("" if value != value else f"{value:.2f}" for value in row)]
        for name, row in zip(cells.index, cells.to_numpy(), strict=True)
    ]
    heads = [*names, *map(str, cells.columns)]
    caption = f"Exact match in percent by length, medians over {rows['seed'].nunique()} seeds"
    sides = "l" * len(names) + "r" * len(cells.columns)
    return as_latex(heads, shown, caption=caption, label="tab:sweep", sides=sides)


def report(
    outcomes: list, path: Path, quiet: bool, as_json: bool, as_latex: bool, **more: object
) -> None:
    """How the jobs ended; exit code 1 if some failed."""
    states = {
        state: [outcome.job.key for outcome in outcomes if outcome.state == state]
        for state in ("failed", "blocked", "missing")
    }
    complete = len(outcomes) - sum(map(len, states.values()))
    if as_json:
        console.print_json({"results": str(path), "complete": complete, **states, **more})
    else:
        counts = [f"{complete} jobs complete"]
        counts += [f"{len(keys)} {state}" for state, keys in states.items() if keys]
        console.say(", ".join(counts), quiet)
        if as_latex:
            console.say(str(path), quiet)
        else:
            console.tell(str(path))
    if states["failed"]:
        raise typer.Exit(1)
