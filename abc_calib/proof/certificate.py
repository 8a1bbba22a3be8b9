"""The certificate of a run as a file: certified, refuted or unknown, with what was checked.

Its fingerprint: of everything that decides what the run's model writes.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from html import escape
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from abc_calib.errors import AbcError
from abc_calib.files import read_json, runs_root, write_text
from abc_calib.proof.page import page
from abc_calib.runs import Run
from abc_calib.runs.records import file_hash
from abc_calib.version import __version__

FILE, PAGE = "certificate.json", "certificate.md"
VERIFIED = "verified.txt"
"""Next to runs: the hashes of certificates that were verified on this machine."""

Outcome = Literal["certified", "tested", "refuted", "unknown"]
"""Models of ``transformers`` are tested, never certified."""

FILES = {
    "weights": "model/model.safetensors",
    "config": "config.json",
    "model_config": "model/config.json",
    "generation_config": "model/generation_config.json",
}
"""The files of a run that decide, by the names of their hashes."""
READ = ("*.json", "*.safetensors", "*.txt")
"""Files of a folder that is tested: a configuration, settings, weights and a tokenizer."""
NAMES = FILES | {
    "weights": "file of weights",
    "tokenizer": "tokenizer.json",
    "own_tokenizer": "model/tokenizer.json",
    "folder": "folder of the model",
    "lines": "set of lines",
    "rule": "rule of the task",
    "abc_calib": "version of abc-calib",
    "torch": "version of torch",
}
"""What a fingerprint has, in words."""
NOT_COMPARED = ("seconds", "verified", "repair", "machine", "sha256")
"""Fields that may differ when a certificate is made again."""


@dataclass(repr=False)
class Certificate:
    """What ``certificate.json`` holds; see the fields' names, and the page for how to read it.

    ``fingerprint``: hashes of all that decides. ``margin``: in logits, the smallest distance of a
    right token from the next one, computed in float64. ``rounding``: a bound on what float64 may
    take of a margin, whatever the order of its sums. ``sizes``: of problems that were looked at to
    list all ``kinds`` of windows. ``outright``: short widths of which every
    source was run, as {width, sources, wrong}. ``decoded``: sources that were decoded one by one.
    ``source``: how sources are written: the ids of their ``delimiters``, and whether the digits of
    operands are ``aligned``. ``rule``: the automaton of the task. ``compared``: of
    earlier versions, of tasks that answered by code of their own. ``sha256``: of all
    other fields.
    """

    outcome: Outcome
    reason: str
    task: str
    base: int | None
    train_length: int
    scheme: str
    fingerprint: dict[str, str | None]
    source: dict[str, Any] = field(default_factory=dict)
    windows: int = 0
    wrong: int = 0
    margin: float | None = None
    rounding: float | None = None
    sizes: int = 0
    period: int = 1
    lines: dict[str, Any] = field(default_factory=dict)
    rule: dict[str, Any] | None = None
    compared: dict[str, Any] | None = None
    kinds: list[dict[str, Any]] = field(default_factory=list)
    outright: list[dict[str, int | str]] = field(default_factory=list)
    decoded: dict[str, Any] = field(default_factory=dict)
    counterexamples: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    machine: dict[str, str] = field(default_factory=dict)
    verified: dict[str, Any] | None = None
    repair: list[dict[str, Any]] = field(default_factory=list)
    sha256: str = ""

    def __repr__(self) -> str:
        base = "" if self.base is None else f" in base {self.base}"
        return f"Certificate({self.outcome}: {self.task}{base}, {self.reason})"

    def _repr_html_(self) -> str:
        wrong = "".join(
            f"<li><code>{escape(str(case['problem']))}</code> gives "
            f"<code>{escape(str(case['answer'] or 'no end'))}</code></li>"
            for case in self.counterexamples[:3]
        )
        verdict = f"<p><b>{self.outcome}</b>: {escape(self.reason)}</p>"
        return verdict + (f"<ul>{wrong}</ul>" if wrong else "")

    def as_dict(self) -> dict[str, Any]:
        return json.loads(json.dumps(asdict(self)))

    def seal(self) -> str:
        """SHA-256 of all fields but this one."""
        return digest({k: v for k, v in self.as_dict().items() if k != "sha256"})

    @property
    def verified_here(self) -> bool:
        """Was this very certificate verified by ``abc verify`` or ``abc prove`` on this machine?"""
        try:
            return self.seal() in (runs_root() / VERIFIED).read_text().split()
        except (OSError, ValueError):
            return False

    def note_verified(self) -> None:
        """Take down, next to the runs of this machine, that it was verified here.

        Where nothing can be written there, it counts as not verified.
        """
        with suppress(OSError):
            runs_root().mkdir(parents=True, exist_ok=True)
            with (runs_root() / VERIFIED).open("a") as file:
                file.write(f"{self.seal()}\n")

    def save(self, run: Run) -> None:
        """Write the certificate and its page into the run's folder."""
        self.sha256 = self.seal()
        write_text(run.path / FILE, json.dumps(asdict(self), indent=2, allow_nan=False) + "\n")
        write_text(run.path / PAGE, page(asdict(self)))

    @classmethod
    def load(cls, run: Run) -> Certificate:
        """The run's certificate; ``AbcError`` if there is none, or it is of another model.

        Whether what it says is true, ``verify`` finds out.
        """
        path = run.path / FILE
        try:
            certificate = cls(**read_json(path))
            sealed = certificate.seal() == certificate.sha256
        except FileNotFoundError:
            raise AbcError(f"{run} has no certificate: abc certify {run}") from None
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise AbcError(f"{path} is not a certificate ({error}): certify again") from None
        if not sealed:
            raise AbcError(f"{path} was changed after it was written: certify again")
        now = fingerprint(run)
        for name in now:
            if certificate.fingerprint.get(name) != now[name]:
                raise AbcError(
                    f"{path} was made with another {NAMES.get(name, name)} than now: abc certify "
                    f"{run}"
                )
        return certificate


def difference(certificate: Certificate, other: Certificate) -> str:
    """The first field in which two certificates of one model differ; empty if in none."""
    for name in (f.name for f in fields(Certificate) if f.name not in NOT_COMPARED):
        if not alike(certificate.as_dict()[name], other.as_dict()[name]):
            return name
    return ""


def alike(value: Any, other: Any) -> bool:
    """The same plain data, up to the last digits of numbers."""
    if type(value) is not type(other):
        return False
    if isinstance(value, dict):
        return value.keys() == other.keys() and all(alike(value[k], other[k]) for k in value)
    if isinstance(value, list):
        return len(value) == len(other) and all(map(alike, value, other))
    if isinstance(value, float):
        return math.isclose(value, other, rel_tol=2e-3)  # four digits
    return value == other


def fingerprint(run: Run) -> dict[str, str | None]:
    """SHA-256 of files, lines and rule, and the versions that computed.

    ``lines`` is None for a model without lines, ``rule`` for a task that is not a rule on columns.
    A run on pairs has a ``tokenizer``, too, whose file is not the run's own, one next to its
    weights, and the folder that is tested.
    """
    hashes: dict[str, str | None] = {name: _of_file(run, path) for name, path in FILES.items()}
    lines = run.fresh_model().lines
    rule = run.task.rule()
    if (folder := getattr(run.task, "tokenizer", None)) is not None:
        hashes["tokenizer"] = _of_file(run, f"{folder}/tokenizer.json")
        hashes["own_tokenizer"] = _of_file(run, "model/tokenizer.json")
        folder = folder_of(run)
        read = sorted(file for kind in READ for file in folder.glob(kind))
        hashes["folder"] = digest({file.name: _of_file(run, str(file)) for file in read})
    hashes["lines"] = digest(lines.to_dict()) if lines is not None else None
    hashes["rule"] = digest(rule.as_dict()) if rule is not None else None
    return hashes | {"abc_calib": __version__, "torch": torch.__version__}


def folder_of(run: Run) -> Path:
    """The folder of a model of ``transformers`` that is tested.

    The one that the run was adopted from, or of a run that was trained here its own.
    """
    options: Any = run.config.model
    made_here = run.config.parent is not None
    return (run.path / "model" if made_here else Path(options.folder)).resolve()


def digest(content: Any) -> str:
    """SHA-256 of plain data, whatever the order of its keys."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def machine() -> dict[str, str]:
    """What a certificate was computed with, besides what is in its fingerprint."""
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "processor": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
    }


def _of_file(run: Run, name: str) -> str:
    path = run.path / name
    try:
        return file_hash(path)
    except (OSError, ValueError) as error:
        raise AbcError(f"{path} cannot be read ({error}): train again") from None
