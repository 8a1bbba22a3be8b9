"""The record of a run: how its training ended, with size and SHA-256 of each of its files.

It is ``result.json``; before a training has ended, the checkpoint holds one, and of a calibrated
run ``calibration.json``. What is written later (``eval.csv``, figures, certificates) is not in it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from abc_calib.errors import AbcError
from abc_calib.files import check_regular, parse_json, read_json, write_atomically, write_text

RESULT, CALIBRATION, CHECKPOINT = "result.json", "calibration.json", "checkpoint.safetensors"
BEFORE = ("config.json", "bias.safetensors", "lines.csv", "check.csv", "trial.safetensors")
"""What a training begins with."""
AFTER = (CALIBRATION, "history.jsonl")
"""What else is recorded when it has ended, with every file in ``model/``."""
SEALS = ("files", "sha256")
"""Keys of a record that are not its content."""


def file_hash(path: Path) -> str:
    """SHA-256 of a regular file."""
    check_regular(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def record_hash(content: Mapping[str, Any]) -> str:
    """SHA-256 of plain data, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def recorded_files(folder: Path, ended: bool) -> list[str]:
    """The files of a run that its record names: before its training, or when that has ended."""
    names = [name for name in (*BEFORE, *AFTER * ended) if os.path.lexists(folder / name)]
    if ended and (folder / "model").is_dir():
        names += sorted(f"model/{name}" for name in os.listdir(folder / "model"))
    return names


def sealed(folder: Path, content: Mapping[str, Any], ended: bool = False) -> dict[str, Any]:
    """``content`` with the sizes and hashes of a run's files, and a hash of it all."""
    files = {}
    for name in recorded_files(folder, ended):
        try:
            size = check_regular(folder / name)
            files[name] = {"bytes": size, "sha256": file_hash(folder / name)}
        except (OSError, ValueError) as error:
            raise AbcError(f"{folder / name} cannot be read ({error}): remove it") from None
    record = {k: v for k, v in content.items() if k not in SEALS} | {"files": files}
    return {**record, "sha256": record_hash(record)}


def write_record(path: Path, content: Mapping[str, Any]) -> None:
    """Write a record next to the files whose hashes it holds."""
    record = sealed(path.parent, content, path.name == RESULT)
    write_text(path, json.dumps(record, indent=2) + "\n")


def read_record(path: Path) -> dict[str, Any] | None:
    """A record, or None if there is none; ``AbcError`` if it is not as it was written."""
    if not os.path.lexists(path):
        return None
    try:
        return checked(read_json(path), path)
    except (OSError, ValueError) as error:
        raise AbcError(f"{path} cannot be read ({error}): put it back, or train again") from None


def checked(data: Any, path: Path) -> dict[str, Any]:
    """``data`` of ``path``, if it is a record that was not changed."""
    content = dict(data) if isinstance(data, dict) else {}
    if content.pop("sha256", None) != record_hash(content) or "files" not in content:
        raise AbcError(
            f"{path} was changed (its content is not what was written): put it back, or train again"
        )
    return data


def check_files(folder: Path, record: Mapping[str, Any], source: str) -> None:
    """Raise ``AbcError`` for the first file that is not what the record in ``source`` says."""
    files = record["files"]
    for name in dict.fromkeys([*files, *recorded_files(folder, ended=source == RESULT)]):
        if problem := _problem(folder / name, files.get(name)):
            raise AbcError(
                f"{folder / name} is not the file of this run (it {problem}; {source} has its "
                "hash): put it back, or train again"
            )


def _problem(path: Path, seal: Mapping[str, Any] | None) -> str:
    """What is wrong with a file, if anything."""
    if seal is None:
        return "was added"
    try:
        is_same = check_regular(path) == seal["bytes"] and file_hash(path) == seal["sha256"]
        return "" if is_same else "was changed"
    except FileNotFoundError:
        return "is missing"
    except (OSError, ValueError) as error:
        return f"cannot be read ({error})"


def save_checkpoint(folder: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Replace the checkpoint by these tensors and this plain state."""
    content = {"state": state, "tensors": _hash(tensors)}
    metadata = {"state": json.dumps(sealed(folder, content))}
    write_atomically(folder / CHECKPOINT, lambda new: save_file(tensors, new, metadata=metadata))


def load_checkpoint(
    folder: Path, tensors: bool = True
) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The last checkpoint and its record, or None; ``AbcError`` if it is damaged.

    Without ``tensors`` only the record is read.
    """
    path = folder / CHECKPOINT
    if not os.path.lexists(path):
        return None
    try:
        check_regular(path)
        with safe_open(path, "pt") as file:
            record = checked(parse_json(file.metadata()["state"]), path)
            loaded = {name: file.get_tensor(name) for name in file.keys() if tensors}  # noqa: SIM118
        if tensors and _hash(loaded) != record["tensors"]:
            raise ValueError("its tensors were changed")
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise AbcError(f"{path} is damaged ({error}): train again") from None
    return loaded, record


def _hash(tensors: dict[str, Tensor]) -> str:
    """SHA-256 of names, types, shapes and values."""
    digest = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        plain = value.detach().cpu().contiguous().flatten()
        digest.update(plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b"")
    return digest.hexdigest()
