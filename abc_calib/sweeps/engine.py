"""Run jobs in parallel processes, each training before what is calibrated from it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from abc_calib.errors import AbcError, Interrupted
from abc_calib.sweeps.jobs import Job

State = Literal["kept", "done", "failed", "blocked", "missing"]
POLL_SECONDS = 0.2
PATIENCE_SECONDS = 60.0
"""How long a stopped process may take to save its checkpoint."""


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
    process: subprocess.Popen[str]
    log: Path
    started: float

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.started

    @property
    def last_line(self) -> str:
        """The last line that it wrote."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - 4000))
                lines = file.read().decode(errors="replace").split("\n")
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


@dataclass
class Progress:
    """Where a sweep stands; ``seconds_left`` is None while nothing has ended yet."""

    total: int
    workers: int
    waiting: list[Job]
    running: list[Running] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)

    def count(self, *states: State) -> int:
        return sum(outcome.state in states for outcome in self.outcomes)

    @property
    def seconds_left(self) -> float | None:
        """From the mean time of the jobs that ended in this session, by stage."""
        times: dict[str, list[float]] = {}
        for outcome in self.outcomes:
            if outcome.state == "done":
                times.setdefault(outcome.job.config.stage, []).append(outcome.seconds)
        every = [seconds for some in times.values() for seconds in some]
        if not every:
            return None
        mean = {stage: sum(some) / len(some) for stage, some in times.items()}
        overall = sum(every) / len(every)
        left = sum(mean.get(job.config.stage, overall) for job in self.waiting)
        for one in self.running:
            left += max(0.0, mean.get(one.job.config.stage, overall) - one.seconds)
        return left / self.workers


OnChange = Callable[[Progress, Outcome | None], None]


def run_jobs(
    jobs: Sequence[Job],
    root: Path,
    *,
    workers: int | None = None,
    device: str = "auto",
    budget: float | None = None,
    on_change: OnChange = lambda *_: None,
) -> list[Outcome]:
    """Run ``jobs`` in their order, and before them the trainings that they are made from.

    Jobs that are complete under ``root`` are kept, begun ones go on. A failure stops only what
    is calibrated from it. After ``budget`` seconds no job is started any more. ``on_change`` is
    called several times a second, with an outcome when there is one. Raises ``Interrupted`` on
    Ctrl-C, after the running jobs have saved a checkpoint.
    """
    workers = workers or default_workers()
    for job in jobs:
        job.check()
    ordered = with_parents(jobs)
    progress = Progress(len(ordered), workers, list(ordered))
    deadline = None if budget is None else time.perf_counter() + budget

    def ended(outcome: Outcome) -> None:
        progress.outcomes.append(outcome)
        on_change(progress, outcome)

    for job in ordered:
        if job.complete(root):
            progress.waiting.remove(job)
            ended(Outcome(job, "kept"))
    with _stop_on_terminate():
        try:
            while progress.waiting or progress.running:
                if deadline is not None and time.perf_counter() > deadline:
                    _give_up(progress, ended)
                _start_ready(progress, root, device, ended)
                on_change(progress, None)
                time.sleep(POLL_SECONDS)
                _collect(progress, ended)
        except KeyboardInterrupt:
            _stop(progress.running)
            raise Interrupted(
                f"stopped with {progress.count('kept', 'done')} of {progress.total} jobs "
                "complete; the same command goes on"
            ) from None
        except BaseException:
            _stop(progress.running)
            raise
    return progress.outcomes


def default_workers() -> int:
    """One process a core."""
    return os.cpu_count() or 1


def with_parents(jobs: Sequence[Job]) -> list[Job]:
    """Each job once, its tests joined, what it is calibrated from before it."""
    found: dict[str, Job] = {}
    for job in jobs:
        for one in (job.parent, job):
            if one is not None:
                known = found.get(one.key)
                found[one.key] = known.with_tests(one.tests) if known else one
    return list(found.values())


def _start_ready(
    progress: Progress, root: Path, device: str, ended: Callable[[Outcome], None]
) -> None:
    """Fill the free workers with the first jobs whose parents are there."""
    states = {outcome.job.key: outcome.state for outcome in progress.outcomes}
    for job in list(progress.waiting):
        parent = states.get(job.parent.key) if job.parent else "done"
        if parent in ("failed", "blocked"):
            assert job.parent is not None
            progress.waiting.remove(job)
            ended(Outcome(job, "blocked", reason=f"its first training failed: {job.parent.key}"))
        elif parent in ("done", "kept") and len(progress.running) < progress.workers:
            progress.waiting.remove(job)
            progress.running.append(start(job, root, device))


def start(job: Job, root: Path, device: str) -> Running:
    """Start the process of a job; what it writes is added to its log."""
    folder = root / job.key
    log = folder / "log.txt"
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with log.open("a") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "abc_calib.sweeps.worker", str(root), device],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **threads},
                start_new_session=True,  # Ctrl-C reaches it once, from here
                text=True,
            )
        assert process.stdin is not None
        with process.stdin as pipe:
            pipe.write(job.model_dump_json())
    except OSError as error:
        raise AbcError(f"cannot start a job in {folder} ({error.strerror})") from None
    return Running(job, process, log, time.perf_counter())


def _collect(progress: Progress, ended: Callable[[Outcome], None]) -> None:
    for one in list(progress.running):
        code = one.process.poll()
        if code is None:
            continue
        progress.running.remove(one)
        reason = ""
        if code:
            told = one.last_line.removeprefix("error: ") or f"exit code {code}"
            reason = f"{told} (log: {one.log})"
        ended(Outcome(one.job, "failed" if code else "done", one.seconds, reason))


def _give_up(progress: Progress, ended: Callable[[Outcome], None]) -> None:
    """Start nothing any more."""
    while progress.waiting:
        ended(Outcome(progress.waiting.pop(0), "missing", reason="no time left to start it"))


def _stop(running: Sequence[Running]) -> None:
    """Have the processes save their checkpoints and end."""
    for one in running:
        one.process.send_signal(signal.SIGINT)
    until = time.perf_counter() + PATIENCE_SECONDS
    for one in running:
        try:
            one.process.wait(max(0.1, until - time.perf_counter()))
        except subprocess.TimeoutExpired:
            one.process.kill()


@contextmanager
def _stop_on_terminate() -> Iterator[None]:
    """Take a request to terminate like Ctrl-C, so that no process is left behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
