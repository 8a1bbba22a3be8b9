"""``abc heatmap``."""

from __future__ import annotations

from abc_calib.config import FigureOptions
from cli.command import Figures, Force, RunArgument, command, opened
from cli.console import Result
from cli.export import written


@command()
def heatmap(
    wanted: FigureOptions, run: RunArgument = None, out: Figures = None, force: Force = False
) -> Result:
    """Draw each head's averaged attention, its lines, and the extended bias; write the arrays too.

    Examples: **abc heatmap --format svg --digits 30** · **abc heatmap --layer 1 --panel bias
    --width column --font sans --no-title** · **abc heatmap --input 999+1 --sites cross**
    """
    from abc_calib.reporting import views

    found = opened(run, force)
    paths = views.heatmap(found, out or found.path / "figures", options=wanted)
    return written(found, paths, f"{len(paths)} files")
