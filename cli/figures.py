"""``abc heatmap``, ``abc curves`` and ``abc report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from abc_calib.config import DrawOptions, FigureOptions
from cli.command import Figures, RunArgument, command
from cli.completion import run_names
from cli.console import Result, say
from cli.export import written


@command()
def heatmap(options: FigureOptions, run: RunArgument = None, out: Figures = None) -> Result:
    """Draw each head's averaged attention, its lines, and the extended bias; write the arrays too.

    Examples: **abc heatmap --format svg --digits 30** · **abc heatmap --layer 1 --panel bias
    --width column --font sans --no-title** · **abc heatmap --input 999+1 --sites cross**
    """
    from abc_calib.reporting import views
    from abc_calib.runs import Run

    opened_run = Run.open(run)
    paths = views.heatmap(opened_run, out or opened_run.path / "figures", options=options)
    return written(opened_run, paths, f"{len(paths)} files")


@command(tables=True)
def curves(
    runs: Annotated[
        list[str], typer.Argument(help="Run folders or names.", autocompletion=run_names)
    ],
    options: DrawOptions,
    labels: Annotated[
        str | None,
        typer.Option(help="Names of the runs, with commas between; by default what differs."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder; runs/figures by default.")] = None,
) -> Result:
    """Draw the exact match of several runs against length in one figure.

    Each has to be evaluated first (abc eval); the jobs of a sweep are.

    Examples: **abc curves RUN OTHER --labels "before,after" --format png** · **abc curves RUN OTHER
    --latex**
    """
    from abc_calib.files import runs_root
    from abc_calib.reporting import of_runs
    from abc_calib.text import counted

    folder = out or runs_root() / "figures"
    paths = of_runs.curves(runs, folder, labels=labels, **options.model_dump())
    names, remark = [str(path) for path in paths], f"{counted(len(runs), 'runs')} in one figure"
    return Result({"files": names}, names, [remark], of_runs.table(runs, labels))


Names = Annotated[
    list[str] | None,
    typer.Argument(
        help="Run folders or their names, also as --run; the latest run by default.",
        autocompletion=run_names,
    ),
]
Page = Annotated[
    Path | None,
    typer.Option(help="The file; RUN/report.html by default, runs/report.html of several."),
]
Open = Annotated[bool, typer.Option("--open", help="Show it in the browser.")]


@command()
def report(run: Names = None, out: Page = None, open_: Open = False) -> Result:
    """Make a page of a run, or of several side by side: one HTML file that needs no network.

    It shows how good the run is and what its heads look at, and runs a calibrated model in the
    browser on whatever problem is typed.

    Examples: **abc report --open** · **abc report RUN OTHER --out both.html**
    """
    from abc_calib.files import runs_root
    from abc_calib.progress import bar
    from abc_calib.reporting.page import write_page
    from abc_calib.runs import Run

    runs = [Run.open(name) for name in run] if run else [Run.open(None)]
    folder = runs[0].path if len(runs) == 1 else runs_root()
    with bar("making the page", None, "runs") as update:
        path = write_page(runs, out or folder / "report.html", on_run=update)
    if open_ and typer.launch(path.resolve().as_uri()) != 0:
        say(f"no browser was found: open {path} yourself")
    return Result({"runs": [*map(str, runs)], "file": str(path)}, [str(path)])
