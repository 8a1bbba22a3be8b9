"""The checkpoint of a training: tensors, and a state that vouches for them and for their run."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from abc_calib.errors import AbcError
from abc_calib.files import check_regular, parse_json, write_atomically
from abc_calib.runs.records import Record, checked, given_files, sealed

NAME = "checkpoint.safetensors"


class Saved(Record):
    """A state: plain data, and a hash of the tensors stored with it."""

    state: dict[str, Any]
    tensors: str


def save(folder: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Replace the checkpoint by these tensors and this plain state."""
    content = {"state": state, "tensors": _hash(tensors)}
    metadata = {"state": json.dumps(sealed(folder, content, given_files(folder)))}
    write_atomically(folder / NAME, lambda made: save_file(tensors, made, metadata=metadata))


def load(folder: Path, tensors: bool = True) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The last checkpoint and its record, or None; ``AbcError`` if it is damaged.

    Without ``tensors`` the record alone, which says what it vouches for.
    """
    path = folder / NAME
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
