"""Everything that can be reproduced, by name."""

from __future__ import annotations

import difflib

from abc_calib.errors import UsageError
from abc_calib.reproduction import attender_targets, duan_shi
from abc_calib.reproduction.base import Target
from abc_calib.reproduction.reviewers import Reviewers

TARGETS: dict[str, Target] = {
    "table1": duan_shi.TABLE1,
    "table2": duan_shi.TABLE2,
    "table3": duan_shi.TABLE3,
    "figure1": duan_shi.FIGURE1,
    "reviewers": Reviewers("reviewers", "What the reviewers asked"),
    "attenders-table2": attender_targets.ATTENDERS_TABLE2,
    "attenders-table3": attender_targets.ATTENDERS_TABLE3,
    "attenders-table4": attender_targets.ATTENDERS_TABLE4,
    "attenders-table7": attender_targets.ATTENDERS_TABLE7,
    "attenders-table9": attender_targets.ATTENDERS_TABLE9,
    "attenders-abc": attender_targets.ATTENDERS_ABC,
    "location-table3": attender_targets.LOCATION_TABLE3,
    "location-figure6": attender_targets.LOCATION_FIGURE6,
    "location-figure8": attender_targets.LOCATION_FIGURE8,
}


def get_target(name: str) -> Target:
    """The target of that name; ``UsageError`` names the known ones."""
    if name not in TARGETS:
        near = difflib.get_close_matches(name, TARGETS, 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise UsageError(f"unknown target {name!r}{hint}: choose one of {', '.join(TARGETS)}")
    return TARGETS[name]
