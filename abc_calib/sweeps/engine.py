"""Run jobs in parallel processes, each training before what is calibrated from it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from abc_calib.config import WorkOptions, build
from abc_calib.errors import AbcError, Interrupted
from abc_calib.nn.base import resolve_device
from abc_calib.stopping import like_interrupts
from abc_calib.sweeps.jobs import Job, share_of, with_parents
from abc_calib.sweeps.workers import attempt, last_line, packed, workers
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
    reason: str = ""


@dataclass
class Progress:
    """Where a sweep stands: the jobs that wait, those at work, and how the others ended."""

    root: Path
    on_change: OnChange
    waiting: dict[str, Job]
    running: dict[Future[None], Job] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.total = len(self.waiting)

    @property
    def last_lines(self) -> list[str]:
        """What each job at work wrote last, behind its task."""
        return [f"{job.task}: {last_line(self.root / job.key)}" for job in self.running.values()]

    def end(self, job: Job, state: State, reason: str = "") -> None:
        """Note how a job ended."""
        self.waiting.pop(job.key, None)
        self.outcomes.append(outcome := Outcome(job, state, " ".join(reason.split())[:500]))
        self.on_change(self, outcome)

    def ready(self) -> list[Job]:
        """Return the jobs that can be started; those whose first training failed are ended."""
        states = {outcome.job.key: outcome.state for outcome in self.outcomes}
        ready = []
        for job in [*self.waiting.values()]:
            state = states.get(job.parent.key) if job.parent else "done"
            if state in COMPLETE:
                ready.append(job)
            elif state is not None and job.parent:
                self.end(job, "blocked", f"its first training failed: {job.parent.key}")
        return ready

    def collect(self) -> None:
        """Note how the jobs ended that are no longer at work."""
        for future in [future for future in self.running if future.done()]:
            job = self.running.pop(future)
            try:
                future.result()
                self.end(job, "done")
            except CancelledError:
                raise AbcError(
                    "the scheduler does not answer any more: start it again; the same command "
                    "goes on"
                ) from None
            except AbcError as error:
                self.end(job, "failed", str(error))
            except Exception as error:  # of its machine: whatever it is, other jobs go on
                self.end(job, "failed", f"its worker failed: {error!r}")


OnChange = Callable[[Progress, Outcome | None], None]


def run_jobs(
    jobs: Sequence[Job],
    root: Path,
    work: WorkOptions | None = None,
    *,
    device: str = "auto",
    on_change: OnChange = lambda *_: None,
    **keywords: object,
) -> list[Outcome]:
    """Run ``jobs`` in their order, and before them the trainings that they are made from.

    Jobs that are complete under ``root`` are kept, begun ones go on. A failure stops only what
    is calibrated from it. ``work`` or ``keywords``: ``WorkOptions``, such as ``budget``.
    ``on_change`` is called several times a second, with an outcome when there is one. Raises
    ``Interrupted`` on Ctrl-C, after the running jobs have saved a checkpoint.
    """
    options = work or build(WorkOptions, **keywords)
    resolve_device(device)
    chosen = with_parents(share_of(jobs, *options.share) if options.share else jobs)
    progress = Progress(root, on_change, {job.key: job for job in chosen})
    deadline = time.perf_counter() + 60 * (options.budget or math.inf)
    for job in chosen:
        try:
            if job.complete(root):
                progress.end(job, "kept")
        except AbcError as error:
            progress.end(job, "failed", str(error))
    if not progress.waiting:
        return progress.outcomes
    try:
        with like_interrupts(), workers(options, root) as (executor, count, sign):
            while progress.waiting or progress.running:
                if time.perf_counter() > deadline:
                    for job in [*progress.waiting.values()]:
                        progress.end(job, "missing", "no time left to start it")
                for job in progress.ready()[: count - len(progress.running)]:
                    del progress.waiting[job.key]
                    call = packed(job), root / job.key, device, sign, __version__
                    progress.running[executor.submit(attempt, *call)] = job
                on_change(progress, None)
                wait(progress.running, POLL_SECONDS, FIRST_COMPLETED)
                progress.collect()
    except KeyboardInterrupt:
        complete = sum(outcome.state in COMPLETE for outcome in progress.outcomes)
        raise Interrupted(
            f"stopped with {complete} of {progress.total} jobs complete; the same command goes on"
        ) from None
    return progress.outcomes
