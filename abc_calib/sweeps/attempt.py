"""One job in a process of its own, whichever machine that is on.

Called by the executors, on a thread here or on a worker of a cluster.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from abc_calib.errors import AbcError
from abc_calib.version import ROOT

WORKER = """import sys
sys.path.append(sys.argv.pop(1))
from abc_calib.sweeps.worker import main
sys.exit(main())
"""
"""The program of a worker. It never looks for modules in the working directory (``-P``)."""
PATIENCE_SECONDS = 60.0
"""How long a stopped process may take to save its checkpoint."""
POLL_SECONDS = 0.1
DEVICES = "CUDA_VISIBLE_DEVICES"


class Ended(NamedTuple):
    """How a process has ended: exit code, negative for a signal; and the last line it wrote.

    ``folder``: what it made, packed, where it worked in a folder that only its machine sees.
    """

    code: int
    seconds: float
    last_line: str
    folder: bytes = b""


def attempt(
    job: str, folder: Path, device: str, stopped: Callable[[], bool] = lambda: False
) -> Ended:
    """Run ``job``, as JSON, to its end, and have it save and leave once ``stopped()``.

    ``folder``: of the job, among the others. What it writes is added to ``log.txt`` there. Raises
    ``AbcError`` if it cannot be started.
    """
    begun, log = time.perf_counter(), folder / "log.txt"
    with _turns.one() as turn:
        process = _start(job, folder, log, device, turn)
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


def _start(job: str, folder: Path, log: Path, device: str, turn: int) -> subprocess.Popen[str]:
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
        process.stdin.write(job + "\n")
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


class _Turns:
    """The lowest number that no other job of this process has."""

    def __init__(self) -> None:
        self.taken, self.lock = set[int](), threading.Lock()

    @contextmanager
    def one(self) -> Iterator[int]:
        with self.lock:
            number = next(n for n in itertools.count() if n not in self.taken)
            self.taken.add(number)
        try:
            yield number
        finally:
            self.taken.discard(number)


_turns = _Turns()
