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
import re
import resource
import select
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file


class Bomb:
    """Whoever unpickles it ends the process with a code of its own."""

    def __reduce__(self) -> tuple:
        return (os._exit, (86,))


WEIGHTS = "model/model.safetensors"
Damage = Callable[[Path, random.Random], None]


def flip(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    at = rng.randrange(len(data))
    data[at] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def cut(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data))])


def grow(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes() + rng.randbytes(rng.randint(1, 50)))


def overwrite(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    at = rng.randrange(len(data))
    data[at : at + 20] = rng.randbytes(len(data[at : at + 20]))
    path.write_bytes(data)


def digit(path: Path, rng: random.Random) -> None:
    """Another digit in place of one: still the same kind of file."""
    data = bytearray(path.read_bytes())
    places = [i for i, byte in enumerate(data) if 48 <= byte < 58]
    at = rng.choice(places or [0])
    data[at] = rng.choice([d for d in range(48, 58) if d != data[at]])
    path.write_bytes(data)


def line_gone(path: Path, rng: random.Random) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    del lines[rng.randrange(len(lines))]
    path.write_bytes(b"".join(lines))


def line_twice(path: Path, rng: random.Random) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    at = rng.randrange(len(lines))
    path.write_bytes(b"".join([*lines[: at + 1], *lines[at:]]))


def gone(path: Path, _: random.Random) -> None:
    path.unlink()


def written(content: bytes) -> Damage:
    def write(path: Path, _: random.Random) -> None:
        path.write_bytes(content)

    return write


def link_to(target: str) -> Damage:
    def make(path: Path, _: random.Random) -> None:
        path.unlink()
        path.symlink_to(target if target != "itself" else path.name)

    return make


def pipe(path: Path, _: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path, _: random.Random) -> None:
    path.unlink()
    path.mkdir()
    (path / "inside").write_text("x")


def sparse(path: Path, _: random.Random) -> None:
    """A hundred gigabytes that take no room on the disk."""
    with path.open("r+b") as file:
        file.truncate(10**11)


def pickled(path: Path, _: random.Random) -> None:
    path.write_bytes(pickle.dumps(Bomb()))


DAMAGES: dict[str, Damage] = {
    "flipped bit": flip,
    "truncated": cut,
    "grown": grow,
    "overwritten": overwrite,
    "another digit": digit,
    "line gone": line_gone,
    "line twice": line_twice,
    "gone": gone,
    "empty": written(b""),
    "zeros": written(bytes(1000)),
    "not UTF-8": written(b"\xff\xfe\x80 not text"),
    "deep nesting": written(b"[" * 100_000),
    "deep table": written(b'{"a":' * 50_000 + b"1" + b"}" * 50_000),
    "huge number": written(b'{"steps": ' + b"9" * 10_000 + b"}"),
    "not a number": written(b'{"steps": NaN, "format_version": 2}'),
    "a list": written(b"[1, 2]"),
    "a text": written(b'"text"'),
    "null": written(b"null"),
    "a pickle": pickled,
    "a pipe": pipe,
    "a link to /dev/zero": link_to("/dev/zero"),
    "a link to itself": link_to("itself"),
    "a link to nothing": link_to("nowhere"),
    "a link to a folder": link_to("."),
    "a folder": folder,
    "sparse 100 GB": sparse,
}
"""What is done to one file, by name."""


def values(path: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    """Change the tensors of a safetensors file, its metadata kept."""
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    save_file(change(tensors) or tensors, path, metadata=metadata)


def not_numbers(path: Path, rng: random.Random) -> None:
    values(path, lambda t: {k: v * torch.nan if v.is_floating_point() else v for k, v in t.items()})


def one_infinity(path: Path, rng: random.Random) -> None:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        name = rng.choice(sorted(k for k, v in tensors.items() if v.is_floating_point()))
        tensors[name].view(-1)[0] = torch.inf

    values(path, change)


def fewer(path: Path, rng: random.Random) -> None:
    def change(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        name = rng.choice(sorted(tensors))
        return {k: v for k, v in tensors.items() if k != name}

    values(path, change)


def shuffled(path: Path, rng: random.Random) -> None:
    values(path, lambda t: {k: v.flip(0) if v.dim() else v for k, v in t.items()})


def halves(path: Path, rng: random.Random) -> None:
    values(path, lambda t: {k: v.half() if v.is_floating_point() else v for k, v in t.items()})


TENSORS: dict[str, Damage] = {
    "all NaN": not_numbers,
    "one infinity": one_infinity,
    "a tensor gone": fewer,
    "tensors turned around": shuffled,
    "half precision": halves,
}
"""What is done to tensors, the file being whole."""


def changed_value(path: Path, rng: random.Random) -> None:
    """Another number, word or nothing somewhere in a JSON file, which stays well-formed."""
    data = json.loads(path.read_text())
    table = data
    while inner := [v for v in table.values() if isinstance(v, dict) and v]:
        if rng.random() < 0.4:
            break
        table = rng.choice(inner)
    name = rng.choice(sorted(table))
    old = table[name]
    options = [old + 1, -2, str(old)] if isinstance(old, int | float) else ["x", 3, [9], {"y": 1}]
    table[name] = rng.choice([value for value in options if value != old])
    path.write_text(json.dumps(data))


def added_key(path: Path, rng: random.Random) -> None:
    data = json.loads(path.read_text())
    keys = ("transformers_weights", "auto_map", "quantization_config", "attn_implementation")
    data[rng.choice([*keys, "num_beams", "no_repeat_ngram_size", "suppress_tokens"])] = 2
    path.write_text(json.dumps(data))


def removed_key(path: Path, rng: random.Random) -> None:
    data = json.loads(path.read_text())
    del data[rng.choice(sorted(data))]
    path.write_text(json.dumps(data))


TABLES: dict[str, Damage] = {
    "another value": changed_value,
    "a key more": added_key,
    "a key less": removed_key,
}
"""What is done to the content of a JSON file."""
ADDED = (
    *("model/adapter_model.bin", "model/pytorch_model.bin", "model/adapter_config.json"),
    *("model/model.safetensors.index.json", "model/code.py", "model/other.safetensors"),
)
"""Files that belong to no run."""


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
            path.write_bytes(pickle.dumps(Bomb()))
        else:
            {**DAMAGES, **TENSORS, **TABLES}[self.kind](path, rng)


RANDOM = ("flipped bit", "truncated", "grown", "overwritten", "another digit", "line gone",
          "line twice", "one infinity", "a tensor gone", *TABLES)  # fmt: skip
"""Kinds that a seed changes."""


def cases(run: Path, other: Path, seeds: int = 1) -> Iterator[Case]:
    """Every file of a run with every kind of damage, the random ones ``seeds`` times."""
    files = sorted(p for p in run.rglob("*") if p.is_file() and p.name != "lock")
    for path in files:
        name = str(path.relative_to(run))
        kinds = [*DAMAGES]
        kinds += TENSORS if path.suffix == ".safetensors" else ()
        kinds += TABLES if path.suffix == ".json" else ()
        kinds += ["another run's"] if (other / name).is_file() else []
        for kind in kinds:
            yield from (Case(name, kind, seed) for seed in range(seeds if kind in RANDOM else 1))
    yield from (Case(name, "added", 0) for name in ADDED)


@dataclass(frozen=True)
class Ending:
    """How a command ended: ``code``, None after a traceback or a hang, and what it wrote."""

    code: int | None
    said: str

    @property
    def word(self) -> str:
        """``done``, ``refused`` in one line, or what is wrong with the way it ended."""
        if self.code == 0:
            return "done"
        if self.code in (1, 2) and re.fullmatch(r"error: [^\n]+\n", self.said):
            return "refused"
        return self.said if self.code is None else f"ended with {self.code}: {self.said}"


def attempt(words: list[object], root: Path, seconds: int = 60) -> Ending:
    """``abc WORDS`` in a process of its own, with an end to its time and memory."""
    out, into = os.pipe()
    child = os.fork()
    if not child:
        os.close(out)
        _in_the_child([str(word) for word in words], root, into)
    os.close(into)
    told = b""
    until = time.monotonic() + seconds
    with open(out, "rb", closefd=True) as pipe:
        while select.select([pipe], [], [], max(0.0, until - time.monotonic()))[0]:
            if not (part := os.read(pipe.fileno(), 65536)):
                break
            told += part
        else:
            os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        return Ending(None, {86: "code was run", -9: "hang"}.get(status, f"ended by {status}"))
    return Ending(*json.loads(told))


def _in_the_child(words: list[str], root: Path, into: int) -> None:
    """Run a command, write how it ended, and leave without the parent's cleaning up."""
    resource.setrlimit(resource.RLIMIT_AS, (12 * 2**30,) * 2)
    os.environ["ABC_RUNS"] = str(root)
    from typer.testing import CliRunner

    from cli.main import app

    result = CliRunner().invoke(app, words)
    code: int | None = result.exit_code
    said = re.sub(r"\x1b\[[0-9;]*m", "", result.stderr)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        code, said = None, f"traceback: {result.exception!r}"
    os.write(into, json.dumps([code, said[:2000]]).encode())
    os._exit(0)


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
        ending = attempt([run if word == "RUN" else word for word in words], root)
        outcome = ending.word
        named = {str(run / case.file), str(run / Path(case.file).parts[0]), Path(case.file).name}
        if outcome == "refused" and not any(name in ending.said for name in named):
            outcome = "refused, the file not named"
        if outcome == "done":
            same = _bytes(self.root / self.run / case.file) == _bytes(run / case.file)
            harmless = same if not self.weights else _bytes(run / WEIGHTS) == self.weights
            if case.file == "eval.csv":  # no row but those that were, and the one measured now
                left = _rows(run / "eval.csv")
                harmless = all(before.get(k) == v or k[-1] == "2" for k, v in left.items())
            outcome = "harmless" if harmless else "silent acceptance"
        shutil.rmtree(folder)
        return str(words[0]), outcome, ending.said.strip()


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def _rows(path: Path) -> dict[tuple[str, ...], str]:
    """The rows of an evaluation by set, seed and length, without the times they took."""
    if not path.is_file():
        return {}
    rows = list(csv.DictReader(path.read_text().splitlines()))
    return {(r["set"], r["test_seed"], r["length"]): f"{r['correct']} of {r['n']}" for r in rows}
