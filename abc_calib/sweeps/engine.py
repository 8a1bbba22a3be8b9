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
from abc_calib.sweeps.jobs import Job, check_jobs, share_of, with_parents
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
    """Where a sweep stands: the jobs that wait, those at work, and how the others ended."""

    on_change: OnChange
    total: int
    waiting: list[Job] = field(default_factory=list)
    running: list[Running] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    states: dict[str, State] = field(default_factory=dict)

    def end(self, outcome: Outcome) -> None:
        """Note how a job ended."""
        self.outcomes.append(outcome)
        self.states[outcome.job.key] = outcome.state
        self.on_change(self, outcome)

    def ready(self) -> list[Job]:
        """Return the jobs that can be started; those whose first training failed are ended."""
        ready, waiting = [], []
        for job in self.waiting:
            state = "done" if job.parent is None else self.states.get(job.parent.key)
            if job.parent is None or state is None or state in COMPLETE:
                waiting.append(job)
                ready += [job] if state else []
            else:
                reason = f"its first training failed: {job.parent.key}"
                self.end(Outcome(job, "blocked", reason=reason))
        self.waiting = waiting
        return ready


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
    check_jobs(jobs)
    chosen = with_parents(share_of(jobs, *options.share) if options.share else jobs)
    progress = Progress(on_change, len(chosen))
    deadline = time.perf_counter() + 60 * (options.budget or math.inf)
    for job in chosen:
        if outcome := already(job, root):
            progress.end(outcome)
        else:
            progress.waiting.append(job)
    if not progress.waiting:
        return progress.outcomes
    try:
        with like_interrupts(), workers(options, root) as (executor, count, sign):
            while progress.waiting or progress.running:
                ready = progress.ready()
                if time.perf_counter() > deadline:
                    for job in progress.waiting:
                        progress.end(Outcome(job, "missing", reason="no time left to start it"))
                    ready = progress.waiting = []
                for job in ready[: count - len(progress.running)]:
                    progress.waiting.remove(job)
                    call = packed(job), root / job.key, device, sign, __version__
                    future = executor.submit(attempt, *call)
                    progress.running.append(Running(job, root / job.key / "log.txt", future))
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


def already(job: Job, root: Path) -> Outcome | None:
    """How a job has ended before anything runs, if it has."""
    try:
        return Outcome(job, "kept") if job.complete(root) else None
    except AbcError as error:
        return Outcome(job, "failed", reason=str(error))
