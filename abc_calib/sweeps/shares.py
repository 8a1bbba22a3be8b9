"""Shares of a sweep, for the job arrays of batch systems: every job is in exactly one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from abc_calib.sweeps.jobs import Job, with_parents


class Share(NamedTuple):
    """The share ``number`` of ``of``, from 1 on."""

    number: int
    of: int

    def pick(self, jobs: Sequence[Job]) -> list[Job]:
        """The jobs of this share; what is calibrated goes where its first training goes."""
        families = dict.fromkeys((job.parent or job).key for job in jobs)
        share = {key: 1 + n % self.of for n, key in enumerate(families)}
        return [job for job in jobs if share[(job.parent or job).key] == self.number]


def left_over(jobs: Sequence[Job], root: Path, mine: Share) -> list[str]:
    """A line for each other share that is not complete."""
    lines = []
    for number in range(1, min(mine.of, len(jobs)) + 1):
        share = with_parents(Share(number, mine.of).pick(jobs))
        done = sum(job.complete(root) for job in share)
        if number == mine.number or done == len(share):
            continue
        begun = any((root / job.key).exists() for job in share)
        how = f"{done} of {len(share)} jobs complete" if begun else "never ran"
        lines.append(f"share {number}/{mine.of}: {how}")
    return lines
