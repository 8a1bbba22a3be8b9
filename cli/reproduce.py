"""``abc reproduce``."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from abc_calib.config import MachineOptions, ReproduceOptions, WorkOptions, build, taken
from abc_calib.errors import UsageError
from cli import completion, console
from cli.jobs import jobs_progress
from cli.options import AsJson, Jobs, Quiet, options

if TYPE_CHECKING:
    from abc_calib.reproduction.report import Report

TARGET_HELP = (
    "table1, table2, table3, figure1, reviewers or rivals; attenders-table2, -table3, -table4, "
    "-table7, -table9 or -abc; location-table3, location-figure6 or location-figure8."
)

TargetName = Annotated[
    str, typer.Argument(help=TARGET_HELP, autocompletion=completion.of("target"))
]
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
        help="Folder of results: what to show, by default reports/reproduction; or without "
        "--from-results, what counts as done."
    ),
]


@console.light
@options(ReproduceOptions, WorkOptions, MachineOptions, without=("threads",))
def reproduce(
    target: Annotated[
        str, typer.Argument(help=TARGET_HELP, autocompletion=completion.of("target"))
    ],
    row: Rows = None,
    task: Tasks = None,
    out: Tables = None,
    jobs: Jobs = None,
    results: Results = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """The papers' tables and figures: their numbers beside the median and minimum of ours.

    Runs what is missing and keeps the rest, so that the command may be stopped and repeated;
    writes Markdown, CSV, LaTeX, figures and a page of all. With **--results** it leaves out what a
    folder of results has already, for whichever table, and adds to it. With **--from-results** it
    shows what reports/reproduction holds (of the checkout that the program runs from), and writes
    files only where **--out** names a folder.

    Examples: **abc reproduce table1 --seeds 1 --budget 30** · **abc reproduce table3
    --from-results --json**
    """
    from abc_calib import reproduction
    from abc_calib.files import runs_root

    wanted = reproduction.get_target(target)
    if given.get("from_results"):
        beside = [name for name in ("preset", *WorkOptions.model_fields) if name in given]
        beside += [name for name, value in (("row", row), ("task", task), ("jobs", jobs)) if value]
        if beside:
            flags = " and ".join(f"--{name.replace('_', '-')}" for name in beside)
            raise UsageError(f"--from-results runs nothing: leave out {flags}")
    asked = build(ReproduceOptions, **taken(ReproduceOptions, given))
    failed, folder = False, out
    if asked.from_results:
        table = reproduction.load_results(target, results)
    else:
        folder = out or runs_root() / "reproduction"
        known = None if results is None else reproduction.load_known(results)
        work = build(WorkOptions, **taken(WorkOptions, given)).model_dump()
        how = {"preset": asked.preset, "seeds": asked.seeds, **work, **given}
        with jobs_progress(quiet) as on_change:
            table, outcomes = reproduction.reproduce(
                wanted,
                rows=row or (),
                tasks=task or (),
                known=known,
                root=jobs,
                on_change=on_change,
                **how,
            )
        failed = any(outcome.state == "failed" for outcome in outcomes)
    made = reproduction.make_report(wanted, table, asked.seeds)
    if folder is not None:
        reproduction.write_report(made, None if asked.from_results else table, folder)
        console.say(f"written to {folder}", quiet)
    if as_json:
        console.print_json({"rows": made.records})
    else:
        show(made)
    if failed:
        raise typer.Exit(1)


def show(made: Report) -> None:
    """A report on the terminal: its tables, and how to read them."""
    from abc_calib.reporting.tables import Fitting

    console.tell(f"{made.title}\n")
    for table in made.tables:
        numbers = [name for name in table.columns if name not in ("task", made.name)]
        console.out.print(
            Fitting(table.columns, table.rows, keys=2, right=numbers[1:], title=table.heading)
        )
        console.tell("")
    for note in made.notes:
        plain = note.replace("**", "").replace("`", "")
        console.tell("\n".join(textwrap.wrap(plain, min(console.out.width, 100))) + "\n")
    if made.incomplete:
        console.tell("Not complete:")
        for line in made.incomplete:
            console.tell(f"- {line}")
