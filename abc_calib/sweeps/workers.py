"""Where jobs run: in processes of this machine, or of the workers of a Dask scheduler.

Both are executors of ``concurrent.futures`` that call ``attempt``, which runs a process for a job.
A sweep keeps one file in the folder of the jobs while it is there; once that is gone, jobs save and
stop.
"""

from __future__ import annotations

import itertools
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from abc_calib.config import WorkOptions
from abc_calib.errors import AbcError, UsageError
from abc_calib.files import make_folder
from abc_calib.version import ROOT, __version__

WORKER = """import sys
sys.path.append(sys.argv.pop(1))
from abc_calib.sweeps.worker import main
sys.exit(main())
"""
"""The program of a worker. It never looks for modules in the working directory (``-P``)."""
CONNECT_SECONDS = 10
DEVICES = "CUDA_VISIBLE_DEVICES"


class Workers(NamedTuple):
    """An executor of ``size`` jobs at once, and the file that says that their sweep is there."""

    pool: Executor
    size: int
    sign: Path


@contextmanager
def workers(asked: WorkOptions, root: Path) -> Iterator[Workers]:
    """What jobs are given to; in the end those at work save and leave. ``AbcError`` if none."""
    sign = root / f".sweep-{uuid.uuid4()}"
    make_folder(root)
    try:
        sign.touch()
    except OSError as error:
        raise AbcError(f"cannot write in {root} ({error.strerror})") from None
    try:
        if asked.scheduler is None:
            size = asked.workers or os.cpu_count() or 1
            with ThreadPoolExecutor(size) as pool:
                try:
                    yield Workers(pool, size, sign)
                finally:
                    sign.unlink(missing_ok=True)
        else:
            with _cluster(asked.scheduler, sign) as (pool, threads):
                yield Workers(pool, min(threads, asked.workers or threads), sign)
    finally:
        sign.unlink(missing_ok=True)


@contextmanager
def _cluster(address: str, sign: Path) -> Iterator[tuple[Any, int]]:
    """The executor of a Dask scheduler, and how many threads its workers have."""
    if find_spec("distributed") is None:
        raise UsageError("--scheduler needs Dask: pip install 'abc-calib[cluster]'")
    from distributed import Client

    for name in ("distributed", "distributed.client"):  # its errors are reported by us
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise AbcError(
            f"--scheduler {address[:100]}: no Dask scheduler answers within {CONNECT_SECONDS} "
            f"seconds ({reason}): start one with `dask scheduler`, or name its address"
        ) from None
    with client:
        threads = sum(client.nthreads().values())
        if not threads:
            raise AbcError(
                f"the scheduler at {address} has no workers: start some with "
                f"`dask worker {address}`"
            )
        found = client.run(wrong_here, sign, __version__, on_error="return")
        for worker, wrong in found.items():
            if not isinstance(wrong, str):
                wrong = (
                    f"cannot run this program ({type(wrong).__name__}: {str(wrong)[:200]}): "
                    f"install abc-calib {__version__} in its environment"
                )
            if wrong:
                raise AbcError(f"the worker at {worker} {wrong}")
        yield client.get_executor(pure=False), threads


def wrong_here(sign: Path, version: str) -> str:
    """On a worker: what keeps it from working for a sweep of that version; empty if nothing."""
    if version != __version__:
        return f"has version {__version__} of this program, not {version}: install the same"
    if not sign.is_file():
        return f"does not see {sign.parent}: name a folder with --jobs that every worker sees"
    return ""


def attempt(payload: str, folder: Path, device: str, sign: Path, version: str) -> float:
    """Run a job in a process, to its end or until ``sign`` is gone; gives the seconds.

    What it writes is added to ``log.txt`` in ``folder``. ``AbcError`` says how it failed.
    """
    if wrong := wrong_here(sign, version):
        raise AbcError(f"this worker {wrong}")
    begun, log = time.perf_counter(), folder / "log.txt"
    command = [sys.executable, "-P", "-c", WORKER, *map(str, (ROOT, folder.parent, device, sign))]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with log.open("a") as file, _turn() as turn:
            code = subprocess.run(
                command,
                input=payload,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **threads, **own_gpu(device, turn)},
                start_new_session=True,  # Ctrl-C reaches it once, by the sign
                text=True,
                check=False,
            ).returncode
    except OSError as error:
        raise AbcError(f"cannot start a job in {folder} ({error.strerror})") from None
    if code:
        ended = last_line(log).removeprefix("error: ") or f"exit code {code}"
        if code < 0:
            ended = f"killed by {signal.Signals(-code).name}"
        raise AbcError(f"{ended} (log: {log})")
    return time.perf_counter() - begun


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
