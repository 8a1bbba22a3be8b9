"""Where jobs run: in processes of this machine, or of the workers of a Dask scheduler.

Both are executors of ``concurrent.futures`` that call ``attempt``, which runs a process for a job.
A sweep keeps one file in the folder of the jobs while it is there; once that is gone, jobs save and
stop.
"""

from __future__ import annotations

import json
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
from typing import Any

import torch

from abc_calib import plugins, stages
from abc_calib.config import WorkOptions
from abc_calib.errors import AbcError, Interrupted, UsageError
from abc_calib.files import locked, make_folder, write_text
from abc_calib.runs import Run
from abc_calib.stages import Work
from abc_calib.stopping import like_interrupts
from abc_calib.sweeps.jobs import Job
from abc_calib.version import ROOT, __version__

CONNECT_SECONDS = 10
PATIENCE_SECONDS = 60.0
"""How long a stopped process may take to save its checkpoint."""
POLL_SECONDS = 0.1
LOG = "log.txt"


@contextmanager
def workers(options: WorkOptions, root: Path) -> Iterator[tuple[Executor, int, Path]]:
    """Open the executor of a sweep; gives how many jobs it runs at once, and the sweep's file.

    In the end those at work save and leave. ``AbcError`` if there are none.
    """
    make_folder(root)
    sign = root / f".sweep-{uuid.uuid4()}"
    with _executor(options) as (executor, count):
        try:
            write_text(sign, "")
            yield executor, count, sign
        finally:
            sign.unlink(missing_ok=True)  # before the executor waits for its jobs


@contextmanager
def _executor(options: WorkOptions) -> Iterator[tuple[Executor, int]]:
    """Open an executor of this machine, or of a Dask scheduler that has workers."""
    address = options.scheduler
    if address is None:
        count = options.workers or os.cpu_count() or 1
        with ThreadPoolExecutor(count) as pool:
            yield pool, count
        return
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
        yield client.get_executor(pure=False), min(threads, options.workers or threads)


def attempt(payload: str, folder: Path, device: str, sign: Path, version: str) -> None:
    """Run a job in a process, to its end or until ``sign`` is gone.

    What it writes is added to ``log.txt`` in ``folder``. ``AbcError`` says how it failed.
    """
    if version != __version__:
        raise AbcError(f"this worker has version {__version__}, not {version}: install the same")
    if not sign.is_file():
        raise AbcError(
            f"this worker does not see {sign.parent}: name a folder with --jobs that every worker "
            "sees"
        )
    command = [sys.executable, "-P", "-m", __name__, str(folder.parent), device, str(sign)]
    path = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT)])
    env = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    how: dict[str, Any] = {"stderr": subprocess.STDOUT, "env": env, "text": True}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / LOG).open("a") as file:
            # in a session of its own, Ctrl-C reaches it once, by the sign
            process = subprocess.run(
                command, input=payload, stdout=file, start_new_session=True, check=False, **how
            )
    except OSError as error:
        raise AbcError(f"cannot start a job in {folder} ({error.strerror})") from None
    if code := process.returncode:
        ended = last_line(folder).removeprefix("error: ") or f"exit code {code}"
        if code < 0:
            ended = f"killed by {signal.Signals(-code).name}"
        raise AbcError(f"{ended} (log: {folder / LOG})")


def packed(job: Job) -> str:
    """A job as its process gets it, with the content of the plugins that are loaded here."""
    files = {str(p.path): p.content.decode("latin-1") for p in plugins.PLUGINS.values()}
    return json.dumps({"job": job.model_dump(), "plugins": files})


def unpacked(payload: str) -> Job:
    """The job, its classes registered in this process."""
    content = json.loads(payload)
    for path, text in content["plugins"].items():
        plugins.load_content(Path(path), text.encode("latin-1"))
    return Job(**content["job"])


def last_line(folder: Path) -> str:
    """The last line of a job's log; empty where it cannot be read."""
    try:
        with (folder / LOG).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4000))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


# In the process of a job. Exit codes are those of the commands: 1 for a failure, 2 for what is not
# possible, 130 after an interruption.


def ensure(job: Job, root: Path, device: str = "auto", progress: bool | None = None) -> None:
    """Train what is not trained and measure what is not measured; go on where it was stopped."""
    with locked(root / job.key):
        run = _trained(job, root, Work(device=device, progress=progress))
        groups: dict[tuple[str, int], list[int]] = {}
        for test in job.missing_tests(root):
            groups.setdefault((test.set, test.n), []).append(test.length)
        for (kind, samples), lengths in groups.items():
            how: dict[str, Any] = {"sets": (kind,), "device": device, "progress": progress}
            stages.evaluate(run, lengths, samples=samples, **how)


def _trained(job: Job, root: Path, work: Work) -> Run:
    """The job's run, trained to its end: kept, gone on with, or made."""
    folder = root / job.key / "run"
    if (run := job.run(root)) is not None:
        return run if run.result is not None else stages.train_run(run, work)
    if job.parent is None:
        return stages.train_run(Run.create(job.config, folder), work)
    first = job.parent.run(root)
    if first is None or first.result is None:
        raise AbcError(f"the first training {job.parent.key} is not there: run the sweep again")
    options: dict[str, Any] = vars(work) | (job.calibrate or {})
    return stages.calibrate(
        first, out=folder, on_check=lambda check: print(check.text, flush=True), **options
    )


def _stop_with_sweep(sign: Path, parent: int) -> None:
    """Stop like Ctrl-C once the sweep has ended, or the process that waits for this one."""
    while sign.exists() and os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(PATIENCE_SECONDS)
    os._exit(130)


def main() -> int:
    """Run the job on stdin; the last line written says what went wrong."""
    root, device, sign = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    # a sweep begun with & ignores Ctrl-C, and so would its workers: they are stopped by it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ["ABC_RUNS"] = str(root)  # a sweep leaves the user's latest run alone
    torch.set_num_threads(1)
    try:
        payload = sys.stdin.read()
        watched = (sign, os.getppid())
        threading.Thread(target=_stop_with_sweep, args=watched, daemon=True).start()
        with like_interrupts():
            ensure(unpacked(payload), root, device, progress=True)
    except (Interrupted, KeyboardInterrupt):
        print("stopped", flush=True)
        return 130
    except AbcError as error:
        print(f"error: {error}", flush=True)
        return 2 if isinstance(error, UsageError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
