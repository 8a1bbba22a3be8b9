"""Who does the work of a sweep: threads here that each watch a process, or a cluster.

A crew gives ``concurrent.futures`` futures; another kind of cluster is another class.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from abc_calib.sweeps.attempt import Ended, attempt
from abc_calib.sweeps.jobs import Errand, Job


class Crew(Protocol):
    """Takes jobs."""

    @property
    def size(self) -> int:
        """How many it does at once."""

    def submit(self, job: Job) -> Future[Ended]:
        """Begin a job, now or as soon as somebody is free."""

    def tick(self) -> None:
        """Called several times a second. ``AbcError`` if nobody will ever do the work."""

    def close(self) -> None:
        """Have jobs at work save and leave, and wait for them."""


class Local:
    """Processes on this machine."""

    def __init__(self, workers: int | None, root: Path, device: str):
        self.size = workers or os.cpu_count() or 1
        self.root, self.device = root, device
        self.stopped = threading.Event()
        self.pool = ThreadPoolExecutor(self.size)

    def submit(self, job: Job) -> Future[Ended]:
        errand = Errand.of(job).model_dump_json()
        return self.pool.submit(
            attempt, errand, self.root / job.key, self.device, self.stopped.is_set
        )

    def tick(self) -> None:
        """A thread pool is always there."""

    def close(self) -> None:
        self.stopped.set()
        self.pool.shutdown()
