"""Sweeps: many trainings from one file, each made once, in parallel, and resumable."""

from abc_calib.sweeps.engine import Outcome, Progress, run_jobs
from abc_calib.sweeps.jobs import Job, Test, jobs_root, share_of, with_parents
from abc_calib.sweeps.results import check_writable, results_table
from abc_calib.sweeps.spec import read_sweep
from abc_calib.sweeps.workers import ensure
