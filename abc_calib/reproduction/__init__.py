"""The papers' tables and figures, our numbers next to theirs."""

from abc_calib.reproduction.pipeline import (
    DRAWN,
    drawn,
    load_results,
    reproduce,
    write_report,
)
from abc_calib.reproduction.report import Report, make_report
from abc_calib.reproduction.targets import TARGETS, Target, get_target, read_targets
