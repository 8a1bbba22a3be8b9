"""``abc heatmap``, ``abc curves`` and ``abc report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import abc_calib as abc
from abc_calib.config import DrawOptions, FigureOptions
from abc_calib.text import counted
from cli.command import Figures, RunArgument, command, run_names
from cli.console import Result, say
from cli.export import written

Runs = Annotated[list[str], typer.Argument(help="Run folders or names.", autocompletion=run_names)]
Labels = Annotated[
    str | None,
    typer.Option(help="Names of the runs, with commas between; by default what differs."),
]
Folder = Annotated[Path | None, typer.Option(help="Folder; runs/figures by default.")]


@command()
def heatmap(options: FigureOptions, run: RunArgument = None, out: Figures = None) -> Result:
    """Draw each head's averaged attention, its lines, and the extended bias; write the arrays too.

    Examples: **abc heatmap --format svg --digits 30** · **abc heatmap --layer 1 --panel bias
    --width column --font sans --no-title** · **abc heatmap --input 999+1 --sites cross**
    """
    opened_run = abc.Run.open(run)
    paths = abc.heatmap(opened_run, out or opened_run.path / "figures", options=options)
    return written(opened_run, paths, f"{len(paths)} files")


@command(tables=True)
def curves(runs: Runs, options: DrawOptions, labels: Labels = None, out: Folder = None) -> Result:
    """Draw the exact match of several runs against length in one figure.

    Each has to be evaluated first (abc eval); the jobs of a sweep are.

    Examples: **abc curves RUN OTHER --labels "before,after" --format png** · **abc curves RUN OTHER
    --latex**
    """
    from abc_calib.files import runs_root
    from abc_calib.reporting.of_runs import table

    folder = out or runs_root() / "figures"
    paths = abc.curves(runs, folder, labels=labels, **options.model_dump())
    names, remark = [str(path) for path in paths], f"{counted(len(runs), 'runs')} in one figure"
    return Result({"files": names}, names, [remark], table(runs, labels))


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

    runs = [abc.Run.open(name) for name in run] if run else [abc.Run.open(None)]
    folder = runs[0].path if len(runs) == 1 else runs_root()
    with bar("making the page", None, "runs") as update:
        path = write_page(runs, out or folder / "report.html", on_run=update)
    if open_ and typer.launch(path.resolve().as_uri()) != 0:
        say(f"no browser was found: open {path} yourself")
    return Result({"runs": [*map(str, runs)], "file": str(path)}, [str(path)])
