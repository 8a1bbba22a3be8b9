"""Run folders."""

from abc_calib.runs.run import Run
