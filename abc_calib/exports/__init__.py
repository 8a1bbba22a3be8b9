"""A calibrated run for other frameworks: its lines as a Python file, its model as ONNX."""

from abc_calib.exports.lines import export_lines
from abc_calib.exports.onnx import export_onnx
