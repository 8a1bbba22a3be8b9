"""Reports: figures, curves and tables from arrays and run folders. Nothing here trains."""

from abc_calib.reporting.curves import accuracy_curve
from abc_calib.reporting.export import draw_heatmaps, heatmap_figures
from abc_calib.reporting.heatmaps import bias_report, head_heatmaps
from abc_calib.reporting.hooks import patterns
from abc_calib.reporting.page import write_page
from abc_calib.reporting.style import save_figure
from abc_calib.reporting.tables import accuracy_table

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
