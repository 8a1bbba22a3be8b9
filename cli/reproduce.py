"""``abc reproduce``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from abc_calib.config import LookOptions, WorkOptions
from abc_calib.errors import UsageError
from cli.command import Device, command
from cli.console import Result, say
from cli.sweep import jobs_progress

if TYPE_CHECKING:
    from abc_calib.reproduction import Report

TARGET_HELP = (
    "table1, table2, table3, figure1, published, reviewers, rivals or chomsky; figure3, figure4, "
    "figure7 or figure8, drawn of models made from nothing; attenders-table2, -table3, "
    "-table4, -table7, -table9 or -abc; location-table3, location-figure6 or location-figure8."
)
Name = Annotated[str, typer.Argument(help=TARGET_HELP)]
Rows = Annotated[
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
    row: Rows = None,
    out: Tables = None,
    device: Device = "auto",
) -> Result:
    """The papers' tables and figures: their numbers next to the median and minimum of ours.

    Runs what is missing and keeps the rest, so that the command may be stopped and repeated;
    writes Markdown, CSV, LaTeX and figures. With **--from-results** it shows what
    reports/reproduction holds (of the checkout that the program runs from), and writes files only
    where **--out** names a folder.

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
        if from_results:
            refuse(flags - {"--from-results", "--seeds"}, "--from-results")
            report = reproduction.committed_report(target, seeds, width)
            if out is not None:
                reproduction.write_report(report, None, out)
                say(f"written to {out}")
            return shown(report)
        if target == chomsky.NAME:
            refuse(flags - {"--row", "--seeds", "--jobs"}, target)
            table = chomsky.reproduce(seeds, row or (), work.jobs, folder, on_row=say)
            report = chomsky.report(table)
        else:
            definition = reproduction.get_target(target)
            options: Any = {"seeds": seeds, "rows": row or (), "device": device}
            with jobs_progress() as on_change:
                table, _ = reproduction.reproduce(definition, work, on_change=on_change, **options)
            report = reproduction.make_report(definition, table, seeds, width)
        reproduction.write_report(report, table, folder)
        say(f"written to {folder}")
    return shown(report, failed=bool(table["error"].notna().any()))


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
