"""Hostile files: every file of a run with every kind of damage, made by one generator.

``cases(run)`` gives them all, ``apply`` damages a copy. Nothing here knows what a program makes of
it; see ``test_damage.py`` and ``reports/trust.py``.
"""

from __future__ import annotations

import csv
import json
import os
import pickle
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from warm import forked


class Bomb:
    """Whoever unpickles it ends the process with a code of its own."""

    def __reduce__(self) -> tuple:
        return (os._exit, (86,))


WEIGHTS = "model/model.safetensors"
Tensors = dict[str, torch.Tensor]


def replaced(data: bytes, at: int, by: bytes) -> bytes:
    return data[:at] + by + data[at + len(by) :]


def flipped(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return replaced(data, at, bytes([data[at] ^ 1 << rng.randrange(8)]))


def other_digit(data: bytes, rng: random.Random) -> bytes:
    """Another digit in place of one: still the same kind of file."""
    at = rng.choice([i for i, byte in enumerate(data) if 48 <= byte < 58] or [0])
    return replaced(data, at, bytes([rng.choice([d for d in range(48, 58) if d != data[at]])]))


def lines(data: bytes, rng: random.Random, times: int) -> bytes:
    """One of the lines so many times."""
    every = data.splitlines(keepends=True)
    at = rng.randrange(len(every))
    return b"".join([*every[:at], *every[at : at + 1] * times, *every[at + 1 :]])


CHANGED: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "flipped bit": flipped,
    "truncated": lambda data, rng: data[: rng.randrange(len(data))],
    "another digit": other_digit,
    "line gone": lambda data, rng: lines(data, rng, 0),
    "line twice": lambda data, rng: lines(data, rng, 2),
}
"""What is left of the content of a file."""
WRITTEN = {
    "empty": b"",
    "zeros": bytes(1000),
    "not UTF-8": b"\xff\xfe\x80 not text",
    "deep nesting": b"[" * 100_000,
    "not a number": b'{"steps": NaN, "format_version": 2}',
    "null": b"null",
    "a pickle": pickle.dumps(Bomb()),
}
"""What stands in place of the content."""


def folder(path: Path) -> None:
    path.mkdir()
    (path / "inside").write_text("x")


PLACED: dict[str, Callable[[Path], None]] = {
    "gone": lambda path: None,
    "a pipe": os.mkfifo,
    "a link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a folder": folder,
}
"""What stands in place of the file."""
SPARSE = "sparse 100 GB"
"""A hundred gigabytes that take no room on the disk."""


def one_less(tensors: Tensors, rng: random.Random) -> Tensors:
    gone = rng.choice(sorted(tensors))
    return {k: v for k, v in tensors.items() if k != gone}


def floats(change: Callable[[torch.Tensor], torch.Tensor], tensors: Tensors) -> Tensors:
    return {k: change(v) if v.is_floating_point() else v for k, v in tensors.items()}


TENSORS: dict[str, Callable[[Tensors, random.Random], Tensors]] = {
    "all NaN": lambda tensors, _: floats(lambda v: v * torch.nan, tensors),
    "a tensor gone": one_less,
    "half precision": lambda tensors, _: floats(torch.Tensor.half, tensors),
}
"""What is done to tensors, the file being whole."""


def changed_value(data: dict[str, Any], rng: random.Random) -> None:
    """Another number, word or nothing somewhere in a JSON file, which stays well-formed."""
    table = data
    while inner := [v for v in table.values() if isinstance(v, dict) and v]:
        if rng.random() < 0.4:
            break
        table = rng.choice(inner)
    name = rng.choice(sorted(table))
    old = table[name]
    options = [old + 1, -2, str(old)] if isinstance(old, int | float) else ["x", 3, [9], {"y": 1}]
    table[name] = rng.choice([value for value in options if value != old])


def added_key(data: dict[str, Any], rng: random.Random) -> None:
    keys = ("transformers_weights", "auto_map", "quantization_config", "attn_implementation")
    data[rng.choice([*keys, "num_beams", "no_repeat_ngram_size", "suppress_tokens"])] = 2


TABLES: dict[str, Callable[[dict[str, Any], random.Random], Any]] = {
    "another value": changed_value,
    "a key more": added_key,
    "a key less": lambda data, rng: data.pop(rng.choice(sorted(data))),
}
"""What is done to the content of a JSON file."""
RANDOM = (*CHANGED, "a tensor gone", *TABLES)
"""Kinds that a seed changes."""
ADDED = (
    *("model/pytorch_model.bin", "model/adapter_config.json", "model/code.py"),
    "model/model.safetensors.index.json",
)
"""Files that belong to no run."""


def damage(path: Path, kind: str, rng: random.Random) -> None:
    """Damage one file."""
    if kind in CHANGED:
        path.write_bytes(CHANGED[kind](path.read_bytes(), rng))
    elif kind in WRITTEN:
        path.write_bytes(WRITTEN[kind])
    elif kind == SPARSE:
        os.truncate(path, 10**11)
    elif kind in PLACED:
        path.unlink()
        PLACED[kind](path)
    elif kind in TENSORS:
        with safe_open(path, "pt") as file:
            metadata = file.metadata()
        save_file(TENSORS[kind](load_file(path), rng), path, metadata=metadata)
    else:
        data = json.loads(path.read_text())
        TABLES[kind](data, rng)
        path.write_text(json.dumps(data))


@dataclass(frozen=True)
class Case:
    """One damage of one file; ``seed`` says which bit, line or value."""

    file: str
    kind: str
    seed: int

    def apply(self, run: Path, other: Path) -> None:
        """Damage the run in ``run``; ``other``: a run to take a file from."""
        path, rng = run / self.file, random.Random(f"{self.file} {self.kind} {self.seed}")
        if self.kind == "another run's":
            shutil.copyfile(other / self.file, path)
        elif self.kind == "added":
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(WRITTEN["a pickle"])
        else:
            damage(path, self.kind, rng)


def cases(run: Path, other: Path, seeds: int = 1) -> Iterator[Case]:
    """Every file of a run with every kind of damage, the random ones ``seeds`` times."""
    files = sorted(p for p in run.rglob("*") if p.is_file() and p.name != "lock")
    for path in files:
        name = str(path.relative_to(run))
        kinds = [*CHANGED, *WRITTEN, *PLACED, SPARSE]
        kinds += TENSORS if path.suffix == ".safetensors" else ()
        kinds += TABLES if path.suffix == ".json" else ()
        kinds += ["another run's"] if (other / name).is_file() else []
        for kind in kinds:
            yield from (Case(name, kind, seed) for seed in range(seeds if kind in RANDOM else 1))
    yield from (Case(name, "added", 0) for name in ADDED)


@dataclass(frozen=True)
class Stage:
    """Runs to damage: a folder of runs, the one that is damaged, another, and what to do with it.

    ``words``: commands, of which each damage meets one; ``weights``: what training has to end with.
    """

    name: str
    root: Path
    run: str
    other: str
    words: tuple[tuple[object, ...], ...]
    weights: bytes = b""

    def cases(self, seeds: int = 1) -> list[Case]:
        return list(cases(self.root / self.run, self.root / self.other, seeds))

    def judge(self, case: Case, number: int, folder: Path) -> tuple[str, str, str]:
        """What a command makes of a case: its first word, the outcome, and what it said.

        ``refused``, ``harmless`` if nothing that the command tells or leaves is another thing than
        without the damage, ``silent acceptance``, or how else it ended.
        """
        root = folder / "runs"
        shutil.copytree(self.root, root, symlinks=True)
        run = root / self.run
        before = _rows(run / "eval.csv")
        case.apply(run, root / self.other)
        words = self.words[number % len(self.words)]
        if case.file == "eval.csv":
            words = ("eval", run, "--lengths", 2, "--samples", 3, "-q")
        ended = forked([run if word == "RUN" else word for word in words], root)
        outcome = ended.word
        named = {str(run / case.file), str(run / Path(case.file).parts[0]), Path(case.file).name}
        if outcome == "refused" and not any(name in ended.err for name in named):
            outcome = "refused, the file not named"
        if outcome == "done":
            same = _bytes(self.root / self.run / case.file) == _bytes(run / case.file)
            harmless = same if not self.weights else _bytes(run / WEIGHTS) == self.weights
            if case.file == "eval.csv":  # no row but those that were, and the one measured now
                left = _rows(run / "eval.csv")
                harmless = all(before.get(k) == v or k[-1] == "2" for k, v in left.items())
            outcome = "harmless" if harmless else "silent acceptance"
        shutil.rmtree(folder)
        return str(words[0]), outcome, ended.err.strip()


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def _rows(path: Path) -> dict[tuple[str, ...], str]:
    """The rows of an evaluation by set, seed and length, without the times they took."""
    if not path.is_file():
        return {}
    rows = list(csv.DictReader(path.read_text().splitlines()))
    return {(r["set"], r["test_seed"], r["length"]): f"{r['correct']} of {r['n']}" for r in rows}
