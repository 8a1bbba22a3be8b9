"""``ensure``: a job trained and measured; and the process of one job, which calls it.

Its ``JobPayload`` is on stdin. Where the sweep ends, it saves and stops. Exit codes are those of
the commands: 1 for a failure, 2 for what is not possible, 130 after an interruption.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch

from abc_calib import stages
from abc_calib.errors import AbcError, Interrupted, UsageError
from abc_calib.files import locked
from abc_calib.runs import Run
from abc_calib.stopping import like_interrupts
from abc_calib.sweeps.jobs import Job, JobPayload

PATIENCE_SECONDS = 60.0
"""How long a stopped process may take to save its checkpoint."""
POLL_SECONDS = 0.1


def ensure(job: Job, root: Path, device: str = "auto", progress: bool | None = None) -> None:
    """Train what is not trained and measure what is not measured; go on where it was stopped."""
    with locked(root / job.key):
        run = _trained(job, root, device=device, progress=progress)
        groups: dict[tuple[str, int], list[int]] = {}
        for test in job.missing_tests(root):
            groups.setdefault((test.set, test.n), []).append(test.length)
        for (kind, samples), lengths in groups.items():
            how: dict[str, Any] = {"sets": (kind,), "device": device, "progress": progress}
            stages.evaluate(run, lengths, samples=samples, **how)


def _trained(job: Job, root: Path, **how: Any) -> Run:
    """The job's run, trained to its end: kept, gone on with, or made."""
    folder = root / job.key / "run"
    job.run(root)  # refused if it is of another configuration

    def make() -> Run:
        if job.parent is None:
            return stages.made(job.config, folder, **how)
        first = job.parent.run(root)
        if first is None or first.result is None:
            raise AbcError(f"the first training {job.parent.key} is not there: run the sweep again")
        again = {**how, **(job.calibrate or {})}
        return stages.calibrate(first, out=folder, on_check=_say_check, **again)

    return stages.finished(folder, make, **how)


def _say_check(check: Any) -> None:
    print(check.text, flush=True)


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
        payload = JobPayload.model_validate_json(sys.stdin.read())
        watched = (sign, os.getppid())
        threading.Thread(target=_stop_with_sweep, args=watched, daemon=True).start()
        with like_interrupts():
            ensure(payload.unpacked(), root, device, progress=True)
    except (Interrupted, KeyboardInterrupt):
        print("stopped", flush=True)
        return 130
    except AbcError as error:
        print(f"error: {error}", flush=True)
        return 2 if isinstance(error, UsageError) else 1
    return 0
