"""``abc heatmap``."""

from __future__ import annotations

from typing import Any

from abc_calib.config import FigureOptions, build
from cli import console
from cli.options import AsJson, Figures, Quiet, RunArgument, options


@console.command
@options(FigureOptions)
def heatmap(
    run: RunArgument = None,
    out: Figures = None,
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
    paths = draw_heatmaps(opened, folder, asked.format, asked.sites, asked.digits)
    console.show_files(opened, paths, as_json)
    console.say(f"{len(paths)} files", quiet or as_json)
