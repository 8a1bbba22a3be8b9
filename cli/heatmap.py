"""``abc heatmap``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli import console
from cli.options import AsJson, Quiet, RunArgument


@console.command
def heatmap(
    run: RunArgument = None,
    format_: Annotated[
        str, typer.Option("--format", help="pdf, svg or png; several with commas.")
    ] = "pdf",
    sites: Annotated[str, typer.Option(help="self, cross, encoder, with commas.")] = "self,cross",
    digits: Annotated[int, typer.Option(help="Operand length of the extended bias.")] = 20,
    out: Annotated[Path | None, typer.Option(help="Folder; RUN/figures by default.")] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Draw each head's averaged attention, its lines, and the extended bias; arrays beside them.

    Example: **abc heatmap --format svg --digits 30**
    """
    from abc_calib.errors import UsageError
    from abc_calib.reporting import draw_heatmaps
    from abc_calib.runs import Run

    if digits < 1:
        raise UsageError(f"--digits {digits} is not possible: give 1 or more")
    opened = Run.open(run)
    folder = out or opened.path / "figures"
    paths = draw_heatmaps(
        opened, folder, tuple(format_.split(",")), tuple(sites.split(",")), digits
    )
    if as_json:
        console.print_json({"run": str(opened), "files": [str(path) for path in paths]})
        return
    for path in paths:
        typer.echo(str(path))
    console.say(f"{len(paths)} files", quiet)
