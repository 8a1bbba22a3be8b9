"""Calibration: read a model's attention, find its lines, extend them to any size."""

from abc_calib.calibration.fits.mean import extend_bias
from abc_calib.geometry import Line, LineBias

__all__ = ["Line", "LineBias", "extend_bias"]
