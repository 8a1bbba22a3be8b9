"""``abc reproduce``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from abc_calib.config import MachineOptions, ReproduceOptions, WorkOptions, build, taken
from abc_calib.errors import UsageError
from cli import console
from cli.jobs import jobs_progress
from cli.options import AsJson, Quiet, options

TARGET_HELP = (
    "table1, table2, table3, figure1 or reviewers; attenders-table2, -table3, -table4, -table7, "
    "-table9 or -abc; location-table3, location-figure6 or location-figure8."
)


@console.command
@options(ReproduceOptions, WorkOptions, MachineOptions, without=("threads",))
def reproduce(
    target: Annotated[str, typer.Argument(help=TARGET_HELP)],
    row: Annotated[
        list[str] | None,
        typer.Option(help="Run only this row, as the results name it; may be repeated."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the tables; by default runs/reproduction.")
    ] = None,
    jobs: Annotated[
        Path | None, typer.Option(help="Where the jobs' folders lie; by default runs/jobs.")
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(
            help="Folder of results: what to show, by default reports/reproduction; or without "
            "--from-results, what counts as done."
        ),
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """The papers' tables and figures: their numbers beside the median and minimum of ours.

    Runs what is missing and keeps the rest, so that the command may be stopped and repeated;
    writes Markdown, CSV, LaTeX and figures. With **--results** it leaves out what a folder of
    results has already, for whichever table, and adds to it. With **--from-results** it shows what
    reports/reproduction holds (of the checkout that the program runs from), and writes files
    only where **--out** names a folder.

    Examples: **abc reproduce table1 --seeds 1 --budget 30** · **abc reproduce table3
    --from-results --json**
    """
    from abc_calib import reproduction
    from abc_calib.files import runs_root

    wanted = reproduction.get_target(target)
    if given.get("from_results") and (
        row or jobs or given.keys() & {"preset", "workers", "budget"}
    ):
        raise UsageError(
            "--from-results runs nothing: leave out --preset, --row, --budget, --workers and --jobs"
        )
    asked = build(ReproduceOptions, **taken(ReproduceOptions, given))
    work = build(WorkOptions, **taken(WorkOptions, given))
    failed = False
    if asked.from_results:
        made = reproduction.make_report(
            wanted, reproduction.load_results(target, results), asked.seeds
        )
        if out is not None:
            reproduction.write_report(made, None, out)
    else:
        with jobs_progress(quiet) as on_change:
            table, outcomes = reproduction.reproduce(
                wanted,
                preset=asked.preset,
                seeds=asked.seeds,
                rows=row or (),
                known=None if results is None else reproduction.load_known(results),
                root=jobs,
                workers=work.workers,
                budget=work.seconds,
                on_change=on_change,
                **given,
            )
        made = reproduction.make_report(wanted, table, asked.seeds)
        folder = out or runs_root() / "reproduction"
        reproduction.write_report(made, table, folder)
        console.say(f"written to {folder}", quiet)
        failed = any(outcome.state == "failed" for outcome in outcomes)
    if as_json:
        console.print_json({"rows": made.records})
    else:
        typer.echo(made.markdown)
    if failed:
        raise typer.Exit(1)
