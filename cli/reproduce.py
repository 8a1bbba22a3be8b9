"""``abc reproduce``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from abc_calib.config import LookOptions, WorkOptions
from abc_calib.errors import UsageError
from cli.command import Device, Jobs, command
from cli.console import Result, say
from cli.sweep import jobs_progress

if TYPE_CHECKING:
    import pandas as pd

    from abc_calib.reproduction.report import Report

TARGET_HELP = (
    "table1, table2, table3, figure1, published, reviewers, rivals or chomsky; figure3, figure4, "
    "figure7 or figure8, drawn of models made from nothing; attenders-table2, -table3, "
    "-table4, -table7, -table9 or -abc; location-table3, location-figure6 or location-figure8."
)
Rows = Annotated[
    list[str] | None,
    typer.Option(help="Run only this row, as the results name it; may be repeated."),
]
Tasks = Annotated[
    list[str] | None, typer.Option(help="Run only rows of this task; may be repeated.")
]
Tables = Annotated[
    Path | None, typer.Option(help="Folder of the tables; by default runs/reproduction.")
]
Results = Annotated[
    Path | None, typer.Option(help="With --from-results, another folder than reports/reproduction.")
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
    target: Annotated[str, typer.Argument(help=TARGET_HELP)],
    work: WorkOptions,
    look: LookOptions,
    seeds: Seeds = None,
    from_results: FromResults = False,
    row: Rows = None,
    task: Tasks = None,
    out: Tables = None,
    jobs: Jobs = None,
    results: Results = None,
    device: Device = "auto",
) -> Result:
    """The papers' tables and figures: their numbers next to the median and minimum of ours.

    Runs what is missing and keeps the rest, so that the command may be stopped and repeated;
    writes Markdown, CSV, LaTeX, figures and a page of all. With **--from-results** it shows what
    reports/reproduction holds (of the checkout that the program runs from), and writes files only
    where **--out** names a folder.

    Examples: **abc reproduce table1 --seeds 1 --budget 30** · **abc reproduce table3
    --from-results --json** · **abc reproduce figure3 --width neurips**
    """
    from abc_calib import reproduction
    from abc_calib.files import runs_root
    from abc_calib.reporting.style import font
    from abc_calib.reproduction import chomsky
    from abc_calib.reproduction.pipeline import DRAWN

    values = {"row": row, "task": task, "jobs": jobs, "seeds": seeds, "results": results}
    values |= {"from-results": from_results, **work.chosen}
    flags = {f"--{name}" for name, value in values.items() if value}
    folder = out if from_results else out or runs_root() / "reproduction"
    if from_results:
        refuse(flags - {"--from-results", "--results", "--seeds"}, "--from-results")
    elif results is not None:
        raise UsageError("--results is the folder of --from-results: give both")
    if target in DRAWN:
        refuse(flags - {"--jobs"}, target)
        return drawn_result(target, folder, jobs, look)
    is_chomsky, failed = target == chomsky.NAME, False
    if is_chomsky:
        refuse(flags & {"--task", *(f"--{name}" for name in work.chosen)}, target)
    definition = None if is_chomsky else reproduction.get_target(target)
    if from_results:
        table = reproduction.load_results(target, results)
    elif definition is None:
        assert folder is not None
        table = chomsky_table(folder, seeds, row or (), jobs)
        failed = bool(table["error"].notna().any())
    else:
        options: Any = {"seeds": seeds, "rows": row or (), "tasks": task or ()}
        options |= {"root": jobs, "device": device, **work.model_dump()}
        with jobs_progress() as on_change:
            table, outcomes = reproduction.reproduce(definition, on_change=on_change, **options)
        failed = any(outcome.state == "failed" for outcome in outcomes)
    with font(look.font):
        width = look.inches if "width" in look.chosen else None
        if definition is None:
            report = chomsky.report(table)
        else:
            report = reproduction.make_report(definition, table, seeds, width)
        if folder is not None:
            reproduction.write_report(report, None if from_results else table, folder)
            say(f"written to {folder}")
    return shown(report, failed)


def refuse(flags: set[str], target: str) -> None:
    """``UsageError`` for options that a target, or another option, does not take."""
    if flags:
        raise UsageError(f"{target} runs without {', '.join(sorted(flags))}: leave it out")


def drawn_result(name: str, folder: Path | None, jobs: Path | None, look: LookOptions) -> Result:
    """Draw a figure of one model, which is trained first."""
    from abc_calib.files import make_folder
    from abc_calib.reporting.style import font, save_figures
    from abc_calib.reproduction.pipeline import drawn

    assert folder is not None
    make_folder(folder)
    with font(look.font):
        figure = drawn(name, jobs, **look.chosen)
        names = [str(path) for path in save_figures(figure, folder / name, ("pdf", "png"))]
    return Result({"files": names}, names)


def chomsky_table(
    folder: Path, seeds: int | None, rows: Sequence[str], jobs: Path | None
) -> pd.DataFrame:
    """Run the benchmark whose models are certified from nothing; keep each result at once."""
    from abc_calib import reproduction
    from abc_calib.reproduction import chomsky

    def on_row(row: dict[str, Any], table: pd.DataFrame) -> None:
        right = row["error"] or f"{row['outcome']}, {row['accuracy']:.1f} % right"
        say(f"{row['row']}, seed {row['seed']}: {right}")
        reproduction.write_report(chomsky.report(table), table, folder)

    exists = (folder / f"{chomsky.NAME}-seeds.csv").exists()
    finished = reproduction.load_results(chomsky.NAME, folder) if exists else None
    return chomsky.reproduce(seeds, rows, jobs, finished, on_row)


def shown(report: Report, failed: bool) -> Result:
    """Return a report for the terminal: its tables, and how to read them."""
    parts: list[Any] = [
        report.title,
        *report.tables,
        *(re.sub("[*`]", "", note) for note in report.notes),
    ]
    missing = [f"not complete: {line}" for line in report.incomplete]
    return Result({"rows": report.records}, [*parts, *missing], failed=failed)
