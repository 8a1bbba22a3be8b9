"""Where jobs run: in processes of this machine, or of the workers of a Dask scheduler.

Both are executors of ``concurrent.futures`` that call ``attempt``, which starts one process for a
job and waits for it. A sweep keeps one file in the folder of the jobs: while it is touched the
sweep lives; jobs whose sweep has ended, or says nothing for a minute, save and stop.
"""

from __future__ import annotations

import itertools
import logging
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from abc_calib.config import WorkOptions
from abc_calib.errors import AbcError, UsageError
from abc_calib.files import make_folder
from abc_calib.sweeps.jobs import Job, JobPayload
from abc_calib.version import ROOT, __version__

WORKER = """import sys
sys.path.append(sys.argv.pop(1))
from abc_calib.sweeps.worker import main
sys.exit(main())
"""
"""The program of a worker. It never looks for modules in the working directory (``-P``)."""
PATIENCE_SECONDS = 60.0
"""How long a stopped process may take to save its checkpoint."""
POLL_SECONDS = 0.1
BEAT_SECONDS, SILENCE_SECONDS = 5.0, 60.0
"""How often a sweep says that it lives, and after which silence its jobs stop."""
CONNECT_SECONDS = 10
RETRIES = 2
"""How often Dask does a job again after its worker died."""
DEVICES = "CUDA_VISIBLE_DEVICES"


class Ended(NamedTuple):
    """How a process has ended: exit code, negative for a signal; and the last line it wrote."""

    code: int
    seconds: float
    last_line: str


class Workers:
    """Takes jobs; closing it has jobs at work save and leave. ``AbcError`` if there is none."""

    def __init__(self, asked: WorkOptions, root: Path, device: str):
        self.root, self.device, self.most = root, device, asked.workers
        self.beat, self.last_beat = root / f".sweep-{uuid.uuid4()}", 0.0
        make_folder(root)
        try:
            self.beat.touch()
            self.cluster = Cluster(asked.scheduler, self.beat) if asked.scheduler else None
        except OSError as error:
            raise AbcError(f"cannot write in {root} ({error.strerror})") from None
        finally:
            if not hasattr(self, "cluster"):
                self.beat.unlink(missing_ok=True)
        self.pool: Executor = self.cluster.pool if self.cluster else ThreadPoolExecutor(self.size)

    @property
    def size(self) -> int:
        """Jobs that are done at once: a thread of a Dask worker watches one."""
        if self.cluster is None:
            return self.most or os.cpu_count() or 1
        return min(self.cluster.threads, self.most or self.cluster.threads)

    def submit(self, job: Job) -> Future[Ended]:
        payload = JobPayload.of(job).model_dump_json()
        how = (payload, self.root / job.key, self.device, self.beat, __version__)
        return self.pool.submit(attempt, *how)

    def tick(self) -> None:
        """Say that the sweep lives. ``AbcError`` if nobody will ever do the work."""
        now = time.monotonic()
        if now - self.last_beat >= BEAT_SECONDS:
            self.last_beat = now
            with suppress(OSError):
                self.beat.touch()
            if self.cluster:
                self.cluster.look_after(now)

    def close(self) -> None:
        self.beat.unlink(missing_ok=True)
        with suppress(*([] if self.cluster is None else [OSError, RuntimeError, TimeoutError])):
            self.pool.shutdown(wait=True)
        if self.cluster:
            self.cluster.client.close()


class Cluster:
    """The workers of the scheduler at ``address``, all of which see the file ``beat``."""

    def __init__(self, address: str, beat: Path):
        if find_spec("distributed") is None:
            raise UsageError("--scheduler needs Dask: pip install 'abc-calib[cluster]'")
        from distributed import Client

        for name in ("distributed", "distributed.client"):  # its errors are reported by us
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self.address = address
        self.alone_since: float | None = None
        try:
            self.client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError, TimeoutError) as error:
            reason = str(error).partition("\n")[0][:200]
            raise AbcError(
                f"--scheduler {address[:100]}: no Dask scheduler answers within {CONNECT_SECONDS} "
                f"seconds ({reason}): start one with `dask scheduler`, or name its address"
            ) from None
        try:
            self._check(beat)
        except BaseException:
            self.client.close()
            raise
        self.pool = self.client.get_executor(pure=False, retries=RETRIES)

    def _check(self, beat: Path) -> None:
        """Does every worker have this program, and see the folder of the jobs?"""
        self.threads = sum(self.client.nthreads().values())
        if not self.threads:
            raise AbcError(
                f"the scheduler at {self.address} has no workers: start some with "
                f"`dask worker {self.address}`"
            )
        found: dict[str, Any] = self.client.run(wrong_here, beat, __version__, on_error="return")
        for worker, wrong in found.items():
            if not isinstance(wrong, str):
                wrong = (
                    f"cannot run this program ({type(wrong).__name__}: {str(wrong)[:200]}): "
                    f"install abc-calib {__version__} in its environment"
                )
            if wrong:
                raise AbcError(f"the worker at {worker} {wrong}")

    def look_after(self, now: float) -> None:
        """Count the workers; ``AbcError`` if there is no scheduler, or for long no worker."""
        try:
            self.threads = sum(self.client.nthreads().values())
        except (OSError, RuntimeError, TimeoutError):
            raise AbcError(
                f"the scheduler at {self.address} does not answer any more: start it again; the "
                "same command goes on"
            ) from None
        self.alone_since = None if self.threads else self.alone_since or now
        if self.alone_since and now - self.alone_since > SILENCE_SECONDS:
            raise AbcError(
                f"the scheduler at {self.address} has had no workers for {SILENCE_SECONDS:.0f} "
                "seconds: start some; the same command goes on"
            )


def wrong_here(beat: Path, version: str) -> str:
    """On a worker: what keeps it from working for a sweep of that version; empty if nothing."""
    if version != __version__:
        return f"has version {__version__} of this program, not {version}: install the same"
    if not beat.is_file():
        return f"does not see {beat.parent}: name a folder with --jobs that every worker sees"
    return ""


def attempt(payload: str, folder: Path, device: str, beat: Path, version: str) -> Ended:
    """Run a job to its end in a process, or have it save and leave once its sweep is silent.

    What it writes is added to ``log.txt`` in ``folder``. Raises ``AbcError`` if it cannot be
    started.
    """
    if wrong := wrong_here(beat, version):
        raise AbcError(f"this worker {wrong}")
    begun, log, stopped = time.perf_counter(), folder / "log.txt", silence(beat)
    with _turn() as turn:
        process = _start(payload, folder, log, device, turn)
        try:
            while (code := process.poll()) is None and not stopped():
                time.sleep(POLL_SECONDS)
        finally:
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.close()  # once it ends, the process saves and leaves
            if process.poll() is None:
                code = _wait(process)
    assert code is not None
    return Ended(code, time.perf_counter() - begun, last_line(log))


def silence(beat: Path) -> Callable[[], bool]:
    """Has a sweep ended, or not touched its file for long? The clocks of machines may differ."""
    seen, since = 0, time.monotonic()

    def stopped() -> bool:
        nonlocal seen, since
        try:
            now = beat.stat().st_mtime_ns
        except FileNotFoundError:
            return True
        except OSError:  # the disk does not answer
            now = seen
        if now != seen:
            seen, since = now, time.monotonic()
        return time.monotonic() - since > SILENCE_SECONDS

    return stopped


def _start(payload: str, folder: Path, log: Path, device: str, turn: int) -> subprocess.Popen[str]:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(log, "a", opener=_without_waiting) as file:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", WORKER, str(ROOT), str(folder.parent), device],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **threads, **own_gpu(device, turn)},
                start_new_session=True,  # Ctrl-C reaches it once, through its stdin
                text=True,
            )
    except OSError as error:
        raise AbcError(f"cannot start a job in {folder} ({error.strerror})") from None
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # it was killed at once: its exit code says so
        process.stdin.write(payload + "\n")
        process.stdin.flush()  # left open: its end tells the worker that this process is no more
    return process


def _without_waiting(path: str, flags: int) -> int:
    """Open a file, and a pipe not at all."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o644)


def _wait(process: subprocess.Popen[str]) -> int:
    try:
        return process.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def last_line(log: Path) -> str:
    """The last line of a log; empty where it cannot be read."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 4000))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def own_gpu(device: str, turn: int) -> dict[str, str]:
    """The environment that shows a process one GPU alone, where ``--device cuda`` may be any."""
    if device != "cuda":
        return {}
    if (listed := os.environ.get(DEVICES)) is not None:
        visible = [name for name in listed.split(",") if name]
    else:
        import torch

        visible = [str(number) for number in range(torch.cuda.device_count())]
    return {DEVICES: visible[turn % len(visible)]} if len(visible) > 1 else {}


_turns, _lock = set[int](), threading.Lock()


@contextmanager
def _turn() -> Iterator[int]:
    """The lowest number that no other job of this process has."""
    with _lock:
        number = next(n for n in itertools.count() if n not in _turns)
        _turns.add(number)
    try:
        yield number
    finally:
        _turns.discard(number)
