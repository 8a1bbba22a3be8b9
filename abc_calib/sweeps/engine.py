"""Run jobs in parallel processes, each training before what is calibrated from it."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Literal

from abc_calib.errors import AbcError, Interrupted
from abc_calib.launch import ROOT
from abc_calib.nn.base import resolve_device
from abc_calib.stopping import like_interrupts
from abc_calib.sweeps.jobs import Job, check_jobs

State = Literal["kept", "done", "failed", "blocked", "missing"]
POLL_SECONDS = 0.2
WORKER = """import sys
sys.path.append(sys.argv.pop(1))
from abc_calib.sweeps.worker import main
sys.exit(main())
"""
"""The program of a worker. It never looks for modules in the working directory (``-P``)."""
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
        times = [(o.job.config.stage, o.seconds) for o in self.outcomes if o.state == "done"]
        if not times:
            return None

        def typical(job: Job) -> float:
            mine = [seconds for stage, seconds in times if stage == job.config.stage]
            return fmean(mine or [seconds for _, seconds in times])

        left = sum(typical(job) for job in self.waiting)
        left += sum(max(0.0, typical(one.job) - one.seconds) for one in self.running)
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
    resolve_device(device)
    check_jobs(jobs)
    ordered = with_parents(jobs)
    progress = Progress(len(ordered), workers or os.cpu_count() or 1, list(ordered))
    deadline = math.inf if budget is None else time.perf_counter() + budget

    def ended(outcome: Outcome) -> None:
        progress.outcomes.append(outcome)
        on_change(progress, outcome)

    for job in ordered:
        try:
            outcome = Outcome(job, "kept") if job.complete(root) else None
        except AbcError as error:
            outcome = Outcome(job, "failed", reason=str(error))
        if outcome:
            progress.waiting.remove(job)
            ended(outcome)
    with like_interrupts():
        try:
            while progress.waiting or progress.running:
                _collect(progress, ended)
                late = time.perf_counter() > deadline
                _start_ready(progress, late, root, device, ended)
                on_change(progress, None)
                time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            raise Interrupted(
                f"stopped with {progress.count('kept', 'done')} of {progress.total} jobs "
                "complete; the same command goes on"
            ) from None
        finally:
            _stop(progress.running)
    return progress.outcomes


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
    progress: Progress, late: bool, root: Path, device: str, ended: Callable[[Outcome], None]
) -> None:
    """Fill the free workers with the first jobs whose parents are there; if ``late`` none."""
    states = {outcome.job.key: outcome.state for outcome in progress.outcomes}
    for job in list(progress.waiting):
        parent = states.get(job.parent.key) if job.parent else "done"
        outcome = None
        if late:
            outcome = Outcome(job, "missing", reason="no time left to start it")
        elif job.parent and parent in ("failed", "blocked"):
            reason = f"its first training failed: {job.parent.key}"
            outcome = Outcome(job, "blocked", reason=reason)
        elif parent not in ("done", "kept") or len(progress.running) == progress.workers:
            continue
        progress.waiting.remove(job)
        if outcome:
            ended(outcome)
        else:
            progress.running.append(start(job, root, device))


def start(job: Job, root: Path, device: str) -> Running:
    """Start the process of a job; what it writes is added to its log."""
    folder = root / job.key
    log = folder / "log.txt"
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(log, "a", opener=_without_waiting) as file:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", WORKER, str(ROOT), str(root), device],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **threads},
                start_new_session=True,  # Ctrl-C reaches it once, from here
                text=True,
            )
        assert process.stdin is not None
        process.stdin.write(job.model_dump_json() + "\n")
        process.stdin.flush()  # left open: its end tells the worker that this process is no more
    except OSError as error:
        raise AbcError(f"cannot start a job in {folder} ({error.strerror})") from None
    return Running(job, process, log, time.perf_counter())


def _without_waiting(path: str, flags: int) -> int:
    """Open a file, and a pipe not at all."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o644)


def _collect(progress: Progress, ended: Callable[[Outcome], None]) -> None:
    for one in list(progress.running):
        code = one.process.poll()
        if code is None:
            continue
        progress.running.remove(one)
        if one.process.stdin:
            one.process.stdin.close()
        reason = ""
        if code:
            reason = f"{_ending(code, one.last_line)} (log: {one.log})"
        ended(Outcome(one.job, "failed" if code else "done", one.seconds, reason))


def _ending(code: int, last_line: str) -> str:
    """How a process that failed has ended."""
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return last_line.removeprefix("error: ") or f"exit code {code}"


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
            one.process.wait()
