"""Everything that can be reproduced, by name."""

from __future__ import annotations

from abc_calib.errors import UsageError
from abc_calib.reproduction import attender_targets, duan_shi, rivals
from abc_calib.reproduction.base import Target
from abc_calib.reproduction.reviewers import Reviewers
from tasks.base import unknown

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        *duan_shi.TARGETS,
        Reviewers("reviewers", "What the reviewers asked"),
        *attender_targets.TARGETS,
        *rivals.TARGETS,
    )
}


def get_target(name: str) -> Target:
    """The target of that name; ``UsageError`` names the known ones."""
    if name not in TARGETS:
        raise UsageError(unknown("target", name, TARGETS))
    return TARGETS[name]
