"""Run jobs in parallel processes, each training before what is calibrated from it."""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from abc_calib.config import WorkOptions, build
from abc_calib.errors import AbcError, Interrupted
from abc_calib.nn.base import resolve_device
from abc_calib.stopping import like_interrupts
from abc_calib.sweeps.jobs import Job, JobPayload, Share, check_jobs, with_parents
from abc_calib.sweeps.workers import attempt, last_line, workers
from abc_calib.version import __version__

State = Literal["kept", "done", "failed", "blocked", "missing"]
COMPLETE = ("kept", "done")
POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    ``kept``: it was complete before; ``blocked``: what it is calibrated from failed;
    ``missing``: it was not started, or was stopped. ``reason`` is one line.
    """

    job: Job
    state: State
    seconds: float = 0.0
    reason: str = ""


@dataclass
class Running:
    """A job at work."""

    job: Job
    log: Path
    future: Future[float]

    @property
    def last_line(self) -> str:
        """The last line that it wrote."""
        return last_line(self.log)

    def outcome(self) -> Outcome:
        """How it has ended."""
        try:
            return Outcome(self.job, "done", self.future.result())
        except CancelledError:
            raise AbcError(
                "the scheduler does not answer any more: start it again; the same command goes on"
            ) from None
        except Exception as error:  # of its machine: whatever it is, other jobs go on
            reason = str(error) if isinstance(error, AbcError) else f"its worker failed: {error!r}"
            return Outcome(self.job, "failed", reason=" ".join(reason.split())[:500])


@dataclass
class Progress:
    """Where a sweep stands; ``ready`` is a heap of the numbers of jobs that can be started."""

    jobs: list[Job]
    on_change: Callable[[Progress, Outcome | None], None]
    running: list[Running] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    ready: list[int] = field(default_factory=list)
    waiting: dict[str, list[int]] = field(default_factory=dict)
    """The numbers of jobs by the key of the training that they wait for."""

    @property
    def total(self) -> int:
        """The number of all jobs."""
        return len(self.jobs)

    def admit(self, root: Path) -> None:
        """Put every job where it belongs: ended already, ready, or waiting for its training."""
        states: dict[str, State] = {}
        for number, job in enumerate(self.jobs):
            first = None if job.parent is None else states.get(job.parent.key)
            if outcome := _already(job, root):
                states[job.key] = outcome.state
                self.end(outcome)
            elif job.parent is None or first in COMPLETE:
                heapq.heappush(self.ready, number)
            elif first is None:
                self.waiting.setdefault(job.parent.key, []).append(number)
            else:
                self.block(job)

    def end(self, outcome: Outcome) -> None:
        """Note how a job ended; those that wait for it are ready, or blocked."""
        self.outcomes.append(outcome)
        self.on_change(self, outcome)
        for number in self.waiting.pop(outcome.job.key, ()):
            if outcome.state in COMPLETE:
                heapq.heappush(self.ready, number)
            elif outcome.state == "missing":
                self.end(Outcome(self.jobs[number], "missing", reason=outcome.reason))
            else:
                self.block(self.jobs[number])

    def block(self, job: Job) -> None:
        """End a job whose first training failed."""
        key = job.parent.key if job.parent else ""
        self.end(Outcome(job, "blocked", reason=f"its first training failed: {key}"))


OnChange = Callable[[Progress, Outcome | None], None]


def run_jobs(
    jobs: Sequence[Job],
    root: Path,
    *,
    device: str = "auto",
    on_change: OnChange = lambda *_: None,
    **work: Any,
) -> list[Outcome]:
    """Run ``jobs`` in their order, and before them the trainings that they are made from.

    Jobs that are complete under ``root`` are kept, begun ones go on. A failure stops only what
    is calibrated from it. ``work``: fields of ``WorkOptions``, such as ``workers`` and ``budget``.
    ``on_change`` is called several times a second, with an outcome when there is one. Raises
    ``Interrupted`` on Ctrl-C, after the running jobs have saved a checkpoint.
    """
    options = build(WorkOptions, **work)
    resolve_device(device)
    check_jobs(jobs)
    chosen = Share(*options.share).pick(jobs) if options.share else jobs
    progress = Progress(with_parents(chosen), on_change)
    deadline = math.inf if options.budget is None else time.perf_counter() + 60 * options.budget
    progress.admit(root)
    if not progress.ready:
        return progress.outcomes
    try:
        with like_interrupts(), workers(options, root) as (pool, size, sign):
            while progress.ready or progress.running:
                late = time.perf_counter() > deadline
                while progress.ready and (late or len(progress.running) < size):
                    job = progress.jobs[heapq.heappop(progress.ready)]
                    if late:
                        reason = "no time left to start it"
                        progress.end(Outcome(job, "missing", reason=reason))
                        continue
                    folder, payload = root / job.key, JobPayload.of(job).model_dump_json()
                    future = pool.submit(attempt, payload, folder, device, sign, __version__)
                    progress.running.append(Running(job, folder / "log.txt", future))
                on_change(progress, None)
                wait([job.future for job in progress.running], POLL_SECONDS, FIRST_COMPLETED)
                for running in [job for job in progress.running if job.future.done()]:
                    progress.running.remove(running)
                    progress.end(running.outcome())
    except KeyboardInterrupt:
        complete = sum(outcome.state in COMPLETE for outcome in progress.outcomes)
        raise Interrupted(
            f"stopped with {complete} of {progress.total} jobs complete; the same command goes on"
        ) from None
    return progress.outcomes


def _already(job: Job, root: Path) -> Outcome | None:
    """How a job has ended before anything runs, if it has."""
    try:
        return Outcome(job, "kept") if job.complete(root) else None
    except AbcError as error:
        return Outcome(job, "failed", reason=str(error))
