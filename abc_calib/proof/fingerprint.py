"""What a certificate is about: everything that decides what a run's model writes."""

from __future__ import annotations

import hashlib
import json
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch

from abc_calib.errors import AbcError
from abc_calib.runs import Run
from abc_calib.runs.records import file_hash
from abc_calib.version import __version__

FILES = {
    "weights": "model/model.safetensors",
    "config": "config.json",
    "model_config": "model/config.json",
    "generation_config": "model/generation_config.json",
}
"""The files of a run that decide, by the names of their hashes."""
READ = ("*.json", "*.safetensors", "*.txt")
"""Files of a folder that is tested: a configuration, settings, weights and a tokenizer."""


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
