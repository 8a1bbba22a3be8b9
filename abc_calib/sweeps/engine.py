"""Run jobs in parallel processes, each training before what is calibrated from it."""

from __future__ import annotations

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
from abc_calib.sweeps.workers import Workers, attempt, last_line, workers
from abc_calib.version import __version__

State = Literal["kept", "done", "failed", "blocked", "missing"]
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
    """Where a sweep stands."""

    waiting: list[Job]
    running: list[Running] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def total(self) -> int:
        return len(self.waiting) + len(self.running) + len(self.outcomes)

    @property
    def states(self) -> dict[str, State]:
        """How jobs have ended, by their keys."""
        return {outcome.job.key: outcome.state for outcome in self.outcomes}


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
    progress = Progress(with_parents(Share(*options.share).pick(jobs) if options.share else jobs))
    deadline = math.inf if options.budget is None else time.perf_counter() + 60 * options.budget

    def ended(outcome: Outcome) -> None:
        progress.outcomes.append(outcome)
        on_change(progress, outcome)

    def ready(job: Job) -> bool:
        return job.parent is None or progress.states.get(job.parent.key) in ("done", "kept")

    for job in list(progress.waiting):
        if outcome := _before(job, root):
            progress.waiting.remove(job)
            ended(outcome)
    if not progress.waiting:
        return progress.outcomes
    try:
        with like_interrupts(), workers(options, root) as made:
            while progress.waiting or progress.running:
                for one in [one for one in progress.running if one.future.done()]:
                    progress.running.remove(one)
                    ended(one.outcome())
                late = time.perf_counter() > deadline
                for job in list(progress.waiting):
                    if outcome := _never(job, progress, late):
                        progress.waiting.remove(job)
                        ended(outcome)
                    elif ready(job) and len(progress.running) < made.size:
                        progress.waiting.remove(job)
                        progress.running.append(_begun(job, made, root, device))
                on_change(progress, None)
                wait([one.future for one in progress.running], POLL_SECONDS, FIRST_COMPLETED)
    except KeyboardInterrupt:
        complete = sum(outcome.state in ("kept", "done") for outcome in progress.outcomes)
        raise Interrupted(
            f"stopped with {complete} of {progress.total} jobs complete; the same command goes on"
        ) from None
    return progress.outcomes


def _before(job: Job, root: Path) -> Outcome | None:
    """What is known of a job before anything runs."""
    try:
        return Outcome(job, "kept") if job.complete(root) else None
    except AbcError as error:
        return Outcome(job, "failed", reason=str(error))


def _never(job: Job, progress: Progress, late: bool) -> Outcome | None:
    """Why a job is not begun any more, if so."""
    if late:
        return Outcome(job, "missing", reason="no time left to start it")
    if job.parent and progress.states.get(job.parent.key) in ("failed", "blocked"):
        return Outcome(job, "blocked", reason=f"its first training failed: {job.parent.key}")
    return None


def _begun(job: Job, made: Workers, root: Path, device: str) -> Running:
    payload, folder = JobPayload.of(job).model_dump_json(), root / job.key
    future = made.pool.submit(attempt, payload, folder, device, made.sign, __version__)
    return Running(job, folder / "log.txt", future)
