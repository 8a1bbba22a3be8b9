"""Run folders."""

from abc_calib.runs.run import Run, list_runs
