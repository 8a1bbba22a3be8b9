"""``abc heatmap``."""

from __future__ import annotations

from typing import Any

from abc_calib.config import FigureOptions, build
from cli import console
from cli.options import AsJson, Figures, Force, Quiet, RunArgument, opened, options

MORE = ("input", "layer", "head", "block", "width", "font", "titled")


@console.command
@options(FigureOptions)
def heatmap(
    run: RunArgument = None,
    out: Figures = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Draw each head's averaged attention, its lines, and the extended bias; arrays beside them.

    Examples: **abc heatmap --format svg --digits 30** · **abc heatmap --layer 1 --panel bias
    --width column --font sans --no-title** · **abc heatmap --input 999+1 --sites cross**
    """
    from abc_calib.reporting import draw_heatmaps

    console.set_threads(None)
    asked = build(FigureOptions, **given)
    found = opened(run, force, quiet)
    folder = out or found.path / "figures"
    more = {name: getattr(asked, name) for name in MORE}
    paths = draw_heatmaps(
        found, folder, asked.format, asked.sites, asked.digits, progress=not quiet, **more
    )
    console.show_files(found, paths, as_json)
    console.say(f"{len(paths)} files", quiet or as_json)
