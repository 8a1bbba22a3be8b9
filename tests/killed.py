"""Kills: a signal at a random moment of a process, a fork of this one, then the command again.

``KINDS`` has a class for each command. What is compared at the end: the weights with those of a run
that nobody stopped, the rows of evaluations, and which processes are left.
"""

from __future__ import annotations

import csv
import os
import random
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from conftest import VANILLA
from hostile import Case
from warm import invoke

WEIGHTS = "model/model.safetensors"
SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1")
SHAPE = ("--digits", 4, "--heads", 2, "--width", 16, "--feedforward", 16, "--decoder-layers", 1)
QUICK = ("--steps", 120, "--validate-every", 10, "--batch", 16)


@dataclass(frozen=True)
class Killed:
    """What a kill left: ``weights`` equal at the end, rows told and lost, processes left over."""

    command: str
    signal: str
    after: float
    ended: str
    weights: bool
    rows_told: int
    rows_lost: int
    orphans: int
    left_over: int

    @property
    def fine(self) -> bool:
        return self.weights and not (self.rows_lost or self.orphans or self.left_over)


def begin(root: Path, *words: object) -> int:
    """``abc WORDS`` in a fork, its remarks in a file; gives the number of the process."""
    case = Case("", "", tuple(map(str, words)), env={"ABC_RUNS": str(root)})
    child = os.fork()
    if child == 0:
        invoke(case, root.parent, os.devnull, f"{root}.log")
    return child


def ended(child: int) -> int:
    """The exit code of a fork, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def done(root: Path, *words: object) -> None:
    """Run a command to its end."""
    assert ended(begin(root, *words)) == 0, said(root)


def said(root: Path) -> str:
    return Path(f"{root}.log").read_text()


class Training:
    """``abc train``; the other commands say what they do otherwise."""

    name = "train"

    def __init__(self, finished: Path, folder: Path):
        self.finished, self.folder = finished, folder
        folder.mkdir(parents=True, exist_ok=True)
        self.whole = self.prepared(folder / "whole")
        started = time.perf_counter()
        done(self.whole, *self.words(self.whole))
        self.seconds = time.perf_counter() - started

    def prepared(self, root: Path) -> Path:
        shutil.copytree(self.finished, root)
        return root

    def words(self, root: Path) -> tuple[object, ...]:
        return ("train", "successor", "--out", root / "run", *SHAPE, *QUICK)

    def again(self, root: Path) -> tuple[object, ...]:
        begun = (root / "run" / "config.json").exists()
        return ("train", "--resume", root / "run") if begun else self.words(root)

    def over(self, root: Path) -> bool:
        return (root / "run" / "result.json").exists()

    def models(self, root: Path) -> list[bytes]:
        return [(root / "run" / WEIGHTS).read_bytes()]

    def lost(self, root: Path) -> tuple[int, int]:
        """Rows that were told, and of those the ones that are not there."""
        return 0, 0

    def kill(self, number: int) -> Killed:
        """One trial; its number says which signal, and when."""
        rng = random.Random(f"{self.name} {number}")
        root = self.prepared(self.folder / f"trial{number}")
        name = SIGNALS[number % len(SIGNALS)]
        process = begin(root, *self.words(root))
        after = rng.uniform(0.05, 1.0) * self.seconds
        time.sleep(after)
        os.kill(process, getattr(signal, name))
        code = ended(process)
        end = signal.Signals(-code).name if code < 0 else f"exit {code}"
        left = orphans(root)
        told, lost = self.lost(root)
        for _ in range(3):
            if self.over(root):
                break
            done(root, *self.again(root))
        equal = self.models(root) == self.models(self.whole)
        hidden = len([p for p in root.rglob(".*") if p.is_dir()])
        shutil.rmtree(root)
        return Killed(self.name, name, round(after, 3), end, equal, told, lost, left, hidden)


def orphans(root: Path, patience: float = 30.0) -> int:
    """Processes that go on working in a folder, some seconds after what began them has ended."""
    until = time.monotonic() + patience
    while True:
        found = 0
        for line in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = line.read_bytes().split(b"\0")
                state = (line.parent / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            found += state != "Z" and any(w.startswith(str(root).encode()) for w in words)
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.1)


class Calibrating(Training):
    name = "calibrate"

    def words(self, root: Path) -> tuple[object, ...]:
        return ("calibrate", root / VANILLA, "--out", root / "run", "--threshold", 0.3, *QUICK)


class Retraining(Training):
    name = "retrain"

    def prepared(self, root: Path) -> Path:
        super().prepared(root)
        made = self.folder / "lines"
        if not made.exists():
            lines = ("calibrate", root / VANILLA, "--out", made, "--threshold", 0.3, *QUICK)
            done(root, *lines, "--no-retrain")
        shutil.copytree(made, root / "run")
        return root

    def words(self, root: Path) -> tuple[object, ...]:
        return ("retrain", root / "run")

    again = words


class Evaluating(Training):
    name = "eval"
    lengths = ",".join(map(str, range(1, 41)))

    def words(self, root: Path) -> tuple[object, ...]:
        return ("eval", root / VANILLA, "--lengths", self.lengths, "--samples", 100)

    again = words

    def over(self, root: Path) -> bool:
        return len(self.rows(root)) == 40

    def rows(self, root: Path) -> dict[str, str]:
        path = root / VANILLA / "eval.csv"
        if not path.exists():
            return {}
        with path.open() as file:
            return {r["length"]: f"{r['correct']} {r['test_hash']}" for r in csv.DictReader(file)}

    def models(self, root: Path) -> list[bytes]:
        return [repr(sorted(self.rows(root).items())).encode()]

    def lost(self, root: Path) -> tuple[int, int]:
        told = [line for line in said(root).splitlines() if line.startswith("evaluating")]
        return len(told), max(0, len(told) - len(self.rows(root)))


class Sweeping(Training):
    name = "sweep"

    def prepared(self, root: Path) -> Path:
        root.mkdir(parents=True)
        (root / "sweep.toml").write_text(
            "[sweep]\ntasks = ['successor']\nseeds = 2\nlengths = [3, 5]\nsamples = 20\n[options]\n"
            "length = 4\nheads = 2\nwidth = 16\nfeedforward = 16\ndecoder_layers = 1\nsteps = 120\n"
            "validate_every = 10\nbatch = 16\n"
        )
        return root

    def words(self, root: Path) -> tuple[object, ...]:
        jobs, table = root / "jobs", root / "table.csv"
        return ("sweep", root / "sweep.toml", "--workers", 2, "--jobs", jobs, "--out", table)

    again = words

    def over(self, root: Path) -> bool:
        return (root / "table.csv").exists()

    def models(self, root: Path) -> list[bytes]:
        runs = sorted(root.glob("jobs/*/run"))
        with (root / "table.csv").open() as file:
            rows = [f"{r['key']} {r['length']} {r['correct']}" for r in csv.DictReader(file)]
        return [*((run / WEIGHTS).read_bytes() for run in runs), repr(sorted(rows)).encode()]


KINDS = {kind.name: kind for kind in (Training, Calibrating, Retraining, Evaluating, Sweeping)}
