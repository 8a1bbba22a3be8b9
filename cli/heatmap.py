"""``abc heatmap``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from abc_calib.config import FigureOptions, build
from cli import console
from cli.options import AsJson, Quiet, RunArgument, options


@console.command
@options(FigureOptions)
def heatmap(
    run: RunArgument = None,
    out: Annotated[Path | None, typer.Option(help="Folder; RUN/figures by default.")] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Draw each head's averaged attention, its lines, and the extended bias; arrays beside them.

    Example: **abc heatmap --format svg --digits 30**
    """
    from abc_calib.reporting import draw_heatmaps
    from abc_calib.runs import Run

    asked = build(FigureOptions, **given)
    opened = Run.open(run)
    folder = out or opened.path / "figures"
    paths = draw_heatmaps(opened, folder, asked.formats, asked.named_sites, asked.digits)
    if as_json:
        console.print_json({"run": str(opened), "files": [str(path) for path in paths]})
        return
    for path in paths:
        typer.echo(str(path))
    console.say(f"{len(paths)} files", quiet)
