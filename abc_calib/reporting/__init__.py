"""Reports: figures, curves and tables from arrays and run folders. Nothing here trains."""

from abc_calib.geometry.layout import Layout, read_labels, written_labels
from abc_calib.reporting.curves import accuracy_curve
from abc_calib.reporting.export import draw_heatmaps
from abc_calib.reporting.heatmaps import bias_report, head_heatmaps
from abc_calib.reporting.style import save_figure
from abc_calib.reporting.tables import accuracy_table

__all__ = [
    "Layout",
    "accuracy_curve",
    "accuracy_table",
    "bias_report",
    "draw_heatmaps",
    "head_heatmaps",
    "read_labels",
    "save_figure",
    "written_labels",
]
