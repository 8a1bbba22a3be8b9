"""Reports: figures, curves and tables from arrays and run folders. Nothing here trains.

Names come from their files when they are asked for: a table needs no matplotlib.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from abc_calib.reporting.curves import accuracy_curve
    from abc_calib.reporting.heatmaps import bias_report, head_heatmaps
    from abc_calib.reporting.hooks import patterns
    from abc_calib.reporting.page import write_page
    from abc_calib.reporting.style import save_figure
    from abc_calib.reporting.tables import accuracy_table
    from abc_calib.reporting.views import draw_heatmaps, heatmap_figures

__all__ = [
    "accuracy_curve",
    "accuracy_table",
    "bias_report",
    "draw_heatmaps",
    "head_heatmaps",
    "heatmap_figures",
    "patterns",
    "save_figure",
    "write_page",
]
HOMES = {
    "accuracy_curve": "curves",
    "accuracy_table": "tables",
    "bias_report": "heatmaps",
    "draw_heatmaps": "views",
    "head_heatmaps": "heatmaps",
    "heatmap_figures": "views",
    "patterns": "hooks",
    "save_figure": "style",
    "write_page": "page",
}


def __getattr__(name: str) -> object:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{HOMES[name]}"), name)
