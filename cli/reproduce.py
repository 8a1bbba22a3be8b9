"""``abc reproduce``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from abc_calib.config import DeviceOptions, LookOptions, ReproduceOptions, WorkOptions
from abc_calib.errors import UsageError
from abc_calib.text import Table
from cli.command import Jobs, command
from cli.console import Result, Sentence, say, typed
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
    Path | None,
    typer.Option(
        help="With --from-results, the folder of the results; by default reports/reproduction."
    ),
]


@command(loads="")
def reproduce(
    target: Annotated[str, typer.Argument(help=TARGET_HELP)],
    options: ReproduceOptions,
    work: WorkOptions,
    machine: DeviceOptions,
    look: LookOptions,
    row: Rows = None,
    task: Tasks = None,
    out: Tables = None,
    jobs: Jobs = None,
    results: Results = None,
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

    if target in DRAWN:
        chosen = {**machine.chosen, **work.chosen, **options.chosen}
        if row or task or results or chosen:
            raise UsageError(f"abc reproduce {target} takes --jobs, --out, --width and --font")
        return _drawn(target, out, jobs, look)
    if target == chomsky.NAME:
        if look.chosen or task or work.chosen or "preset" in options.chosen:
            raise UsageError(f"abc reproduce {target} takes --seeds, --row, --jobs and --out")
        return _chomsky(options, row or (), out, jobs, results)
    definition = reproduction.get_target(target)
    failed, folder = False, out
    if options.from_results:
        forbidden = (*({*options.chosen} & {"preset"}), *work.chosen)
        forbidden += tuple(n for n, v in (("row", row), ("task", task), ("jobs", jobs)) if v)
        if forbidden:
            flags = " and ".join(f"--{name.replace('_', '-')}" for name in forbidden)
            raise UsageError(f"--from-results runs nothing: leave out {flags}")
        table = reproduction.load_results(target, results)
    else:
        if results is not None:
            raise UsageError(f"--results {typed(results)}: give --from-results with it")
        folder = out or runs_root() / "reproduction"
        how = {"preset": options.preset, "seeds": options.seeds, **work.model_dump()}
        with jobs_progress() as on_change:
            table, outcomes = reproduction.reproduce(
                definition,
                rows=row or (),
                tasks=task or (),
                root=jobs,
                on_change=on_change,
                device=machine.device,
                **how,
            )
        failed = any(outcome.state == "failed" for outcome in outcomes)
    with font(look.font):
        width = look.inches if "width" in look.chosen else None
        report = reproduction.make_report(definition, table, options.seeds, width)
        if folder is not None:
            reproduction.write_report(report, None if options.from_results else table, folder)
            say(f"written to {folder}")
    return Result({"rows": report.records}, list(shown(report)), failed=failed)


def _drawn(name: str, out: Path | None, jobs: Path | None, look: LookOptions) -> Result:
    """A figure of one model, which is trained first."""
    from abc_calib.files import make_folder, runs_root
    from abc_calib.reporting.style import font, save_figures
    from abc_calib.reproduction.pipeline import drawn

    folder = out or runs_root() / "reproduction"
    make_folder(folder)
    with font(look.font):
        paths = save_figures(drawn(name, jobs, **look.chosen), folder / name, ("pdf", "png"))
    return Result({"files": [*map(str, paths)]}, [*map(str, paths)])


def _chomsky(
    options: ReproduceOptions,
    rows: Sequence[str],
    out: Path | None,
    jobs: Path | None,
    results: Path | None,
) -> Result:
    """The same for the benchmark whose models are certified from nothing."""
    from abc_calib import reproduction
    from abc_calib.files import runs_root
    from abc_calib.reproduction import chomsky

    def write(table: pd.DataFrame) -> Report:
        current = chomsky.report(table)
        if out is not None:
            reproduction.write_report(current, None if options.from_results else table, out)
        return current

    def on_row(row: dict[str, Any], table: pd.DataFrame) -> None:
        right = row["error"] or f"{row['outcome']}, {row['accuracy']:.1f} % right"
        say(f"{row['row']}, seed {row['seed']}: {right}")
        write(table)

    if options.from_results:
        table = reproduction.load_results(chomsky.NAME, results)
    else:
        out = out or runs_root() / "reproduction"
        exists = (out / f"{chomsky.NAME}-seeds.csv").exists()
        finished = reproduction.load_results(chomsky.NAME, out) if exists else None
        table = chomsky.reproduce(options.seeds, rows, jobs, finished, on_row)
    report = write(table)
    if out is not None:
        say(f"written to {out}")
    return Result(
        {"rows": report.records}, [*shown(report)], failed=bool(table["error"].notna().any())
    )


def shown(report: Report) -> Iterator[str | Table]:
    """A report on the terminal: its tables, and how to read them."""
    yield f"{report.title}\n"
    for table in report.tables:
        yield table
        yield ""
    for note in report.notes:
        yield Sentence(note.replace("**", "").replace("`", ""))
        yield ""
    if report.incomplete:
        yield "Not complete:"
        yield from (f"- {line}" for line in report.incomplete)
