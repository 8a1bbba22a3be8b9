"""Calibration: read a model's attention, find its lines, extend them to any size."""

from abc_calib.calibration.lines import Line, LineBias
from abc_calib.calibration.mean import extend_bias

__all__ = ["Line", "LineBias", "extend_bias"]
