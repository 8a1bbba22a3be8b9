"""Records that vouch for files: their sizes and SHA-256, and the record's own.

``result.json`` vouches for all that a training leaves behind, a checkpoint and ``calibration.json``
for what was there before it. What is written later (``eval.csv``, figures, certificates) stands for
itself.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from abc_calib.config import Options
from abc_calib.errors import AbcError
from abc_calib.files import check_regular, parse_json, read_json, write_atomically, write_text

GIVEN = ("config.json", "bias.safetensors", "lines.csv", "check.csv", "trial.safetensors")
"""What a training begins with."""
CHECKPOINT = "checkpoint.safetensors"
LEFT = ("calibration.json", "history.jsonl")
"""What its result vouches for as well, and for all files in ``model/``."""


class Seal(Options):
    """One file, as it was."""

    bytes: int
    sha256: str


class Record(Options):
    """What every record has besides its own content."""

    files: dict[str, Seal]
    sha256: str


class Saved(Record):
    """A checkpoint: plain data of a training, and a hash of the tensors stored with it."""

    state: dict[str, Any]
    tensors: str


class Calibrated(Record):
    """How a calibration ended: of how many samples how many, in percent, were right."""

    samples: int
    accuracy: float


class Result(Record):
    """How a training ended, and with what files."""

    steps: int
    seconds: float
    validation_accuracy: float
    validation_samples: int
    interpolated: bool


def file_hash(path: Path) -> str:
    """SHA-256 of a regular file."""
    check_regular(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def record_hash(content: Mapping[str, Any]) -> str:
    """SHA-256 of plain data, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def given_files(folder: Path) -> list[str]:
    """The files that a training begins with."""
    return [name for name in GIVEN if os.path.lexists(folder / name)]


def all_files(folder: Path) -> list[str]:
    """Those and the ones that it leaves behind."""
    left = [name for name in LEFT if os.path.lexists(folder / name)]
    model = folder / "model"
    inner = sorted(f"model/{name}" for name in os.listdir(model)) if model.is_dir() else []
    return [*given_files(folder), *left, *inner]


def sealed(folder: Path, content: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """``content`` as a record that vouches for the files of these names."""
    files = {}
    for name in names:
        path = folder / name
        try:
            files[name] = {"bytes": check_regular(path), "sha256": file_hash(path)}
        except (OSError, ValueError) as error:
            raise AbcError(f"{path} cannot be read ({error}): remove it") from None
    record = {**content, "files": files}
    return {**record, "sha256": record_hash(record)}


def write_record(path: Path, content: Mapping[str, Any], names: Iterable[str]) -> None:
    """Write a record next to the files whose hashes it holds."""
    write_text(path, json.dumps(sealed(path.parent, content, names), indent=2) + "\n")


def vouch(folder: Path, samples: int, accuracy: float) -> None:
    """Say of how many samples which share was right, and vouch for what a training begins with."""
    content = {"samples": samples, "accuracy": round(100 * accuracy, 4)}
    write_record(folder / "calibration.json", content, given_files(folder))


def read_record(path: Path, kind: type[Record] = Record) -> dict[str, Any] | None:
    """A record, or None if there is none; ``AbcError`` if it is not as it was written."""
    if not os.path.lexists(path):
        return None
    try:
        return checked(read_json(path), path, kind)
    except (OSError, ValueError) as error:
        raise AbcError(f"{path} cannot be read ({error}): put it back, or train again") from None


def checked(data: Any, path: Path, kind: type[Record] = Record) -> dict[str, Any]:
    """``data`` of ``path``, if it is a record that was not changed."""
    try:
        record = dict(data)
        if record.pop("sha256") != record_hash(record):
            raise ValueError("its content is not what was written")
        kind(**data)
    except ValidationError as error:
        wrong = ".".join(map(str, error.errors()[0]["loc"]))
        raise AbcError(f"{path} was changed ({wrong}): put it back, or train again") from None
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
        raise AbcError(f"{path} was changed ({error}): put it back, or train again") from None
    return data


def check_files(
    folder: Path, record: Mapping[str, Any], source: str, names: Iterable[str], contents: bool
) -> None:
    """``AbcError`` names the first file that is not what the record in ``source`` vouches for.

    ``names``: those that it has to know. Without ``contents`` only their sizes are looked at.
    """
    files = record["files"]
    for name in dict.fromkeys([*files, *names]):
        if wrong := _wrong(folder / name, files.get(name), contents):
            raise AbcError(
                f"{folder / name} is not the file that {source} vouches for (it {wrong}): put it "
                "back or train again"
            )


def _wrong(path: Path, seal: Mapping[str, Any] | None, contents: bool) -> str:
    """What is wrong with a file, if anything."""
    if seal is None:
        return "was added"
    try:
        if check_regular(path) != seal["bytes"]:
            return "was changed"
        return "was changed" if contents and file_hash(path) != seal["sha256"] else ""
    except FileNotFoundError:
        return "is missing"
    except (OSError, ValueError) as error:
        return f"cannot be read ({error})"


def save_checkpoint(folder: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Replace the checkpoint by these tensors and this plain state."""
    content = {"state": state, "tensors": _hash(tensors)}
    metadata = {"state": json.dumps(sealed(folder, content, given_files(folder)))}
    write_atomically(folder / CHECKPOINT, lambda made: save_file(tensors, made, metadata=metadata))


def load_checkpoint(
    folder: Path, tensors: bool = True
) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The last checkpoint and its record, or None; ``AbcError`` if it is damaged.

    Without ``tensors`` the record alone, which says what it vouches for.
    """
    path = folder / CHECKPOINT
    if not os.path.lexists(path):
        return None
    try:
        check_regular(path)
        with safe_open(path, "pt") as file:
            record = checked(parse_json(file.metadata()["state"]), path, Saved)
            found = {name: file.get_tensor(name) for name in file.keys() if tensors}  # noqa: SIM118
        if tensors and _hash(found) != record["tensors"]:
            raise ValueError("its tensors were changed")
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise AbcError(f"{path} is damaged ({error}): train again") from None
    return found, record


def _hash(tensors: dict[str, Tensor]) -> str:
    """SHA-256 of names, types, shapes and values."""
    found = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        found.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        plain = value.detach().cpu().contiguous().flatten()
        found.update(plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b"")
    return found.hexdigest()
