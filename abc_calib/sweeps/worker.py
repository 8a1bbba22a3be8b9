"""The process of one job: ``python -m abc_calib.sweeps.worker JOBS DEVICE < job.json``.

Goes on where an earlier one stopped. Exit codes are those of the commands: 1 for what failed,
2 for what is not possible, 130 after an interruption.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from abc_calib import stages
from abc_calib.errors import AbcError, Interrupted, UsageError
from abc_calib.runs import Run
from abc_calib.sweeps.jobs import Job
from tasks import TaskError

try:
    import fcntl
except ImportError:  # not on Windows: there, leave a folder of jobs to one sweep at a time
    fcntl = None  # type: ignore[assignment]


def work(job: Job, root: Path, device: str = "auto") -> None:
    """Train what is not trained and measure what is not measured."""
    with locked(root / job.key):
        run = _trained(job, root, device)
        groups: dict[tuple[str, int], list[int]] = {}
        for test in job.missing_tests(root):
            groups.setdefault((test.set, test.n), []).append(test.length)
        for (kind, samples), lengths in groups.items():
            stages.evaluate(
                run, lengths, samples=samples, sets=(kind,), device=device, on_row=_say_row
            )


def _trained(job: Job, root: Path, device: str) -> Run:
    """The job's run, trained to its end: kept, gone on with, or made."""
    folder, run = root / job.key / "run", job.run(root)
    begun = run is not None and run.result is None and job.parent is not None
    if begun and not (folder / "bias.safetensors").exists():  # stopped between two files
        (folder / "config.json").unlink()

    def make() -> Run:
        if job.parent is None:
            return stages.train(
                job.task,
                base=job.base,
                task_options=job.task_options,
                preset=job.preset,
                out=folder,
                device=device,
                on_step=_say_step,
                **job.options,
            )
        first = job.parent.run(root)
        if first is None or first.result is None:
            raise AbcError(f"the first training {job.parent.key} is not there: run the sweep again")
        return stages.calibrate(
            first,
            out=folder,
            device=device,
            on_step=_say_step,
            on_check=lambda check: print(
                f"lines above {check.threshold:.0%}: {100 * check.accuracy:.1f} %", flush=True
            ),
            **(job.calibrate or {}),
        )

    return stages.finished(folder, make, device=device, on_step=_say_step)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from the same job meanwhile; they wait, and then find it done."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _say_step(progress: Any) -> None:
    if progress.accuracy is not None:
        print(
            f"step {progress.step}/{progress.steps}, loss {progress.loss:.4f}, "
            f"held-out {100 * progress.accuracy:.1f} %",
            flush=True,
        )


def _say_row(row: Any) -> None:
    print(f"{row.set} {row.length}: {row.accuracy:.2f} % of {row.n}", flush=True)


def main() -> int:
    """Run the job on stdin; the last line written says what went wrong."""
    root, device = Path(sys.argv[1]), sys.argv[2]
    # a sweep begun with & ignores Ctrl-C, and so would its workers: they are stopped by it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ["ABC_RUNS"] = str(root)  # a sweep leaves the user's latest run alone
    torch.set_num_threads(1)
    try:
        work(Job.model_validate_json(sys.stdin.read()), root, device)
    except (Interrupted, KeyboardInterrupt):
        print("stopped", flush=True)
        return 130
    except (AbcError, TaskError) as error:
        print(f"error: {error}", flush=True)
        return 2 if isinstance(error, UsageError | TaskError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
