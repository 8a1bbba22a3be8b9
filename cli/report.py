"""``abc report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.command import Force, command, opened
from cli.completion import run_names
from cli.console import Result, say

Names = Annotated[
    list[str] | None,
    typer.Argument(
        help="Run folders or their names; the latest run by default.", autocompletion=run_names
    ),
]
Page = Annotated[
    Path | None,
    typer.Option(help="The file; RUN/report.html by default, runs/report.html of several."),
]
Open = Annotated[bool, typer.Option("--open", help="Show it in the browser.")]


@command()
def report(
    run: Names = None, out: Page = None, open_: Open = False, force: Force = False
) -> Result:
    """Make a page of a run, or of several side by side: one HTML file that needs no network.

    It shows how good the run is and what its heads look at, and runs a calibrated model in the
    browser on whatever problem is typed.

    Examples: **abc report --open** · **abc report RUN OTHER --out both.html**
    """
    from abc_calib.files import runs_root
    from abc_calib.progress import bar
    from abc_calib.reporting.page import write_page

    names: list[str | None] = [*run] if run else [None]
    found = [opened(name, force) for name in names]
    folder = found[0].path if len(found) == 1 else runs_root()
    with bar("making the page", None, "runs") as update:
        path = write_page(found, out or folder / "report.html", on_part=update)
    if open_ and typer.launch(path.resolve().as_uri()) != 0:
        say(f"no browser was found: open {path} yourself")
    return Result({"runs": [str(one) for one in found], "file": str(path)}, [str(path)])
