"""Where run folders are: the latest, those under the root, and new ones."""

from __future__ import annotations

import os
from pathlib import Path

from abc_calib.errors import AbcError, UsageError
from abc_calib.files import read_text, runs_root, write_text

LATEST = "latest"
LONGEST_NAME = 2**16
"""Bytes of the longest file that names a run."""
SIGNS = ("config.json", "result.json", "model", "checkpoint.safetensors", "bias.safetensors")
"""A folder with one of these is a run, whole or broken."""


def found(path: Path) -> Path:
    """The run folder in ``path``, or of that name under the root."""
    try:
        if not path.exists() and (runs_root() / path).exists():
            path = runs_root() / path
        if not path.is_dir():
            raise UsageError(f"there is no run {path}: abc runs lists them")
        if not os.path.lexists(path / "config.json"):
            raise AbcError(f"{path} is not a run folder (it has no config.json): abc runs")
    except OSError as error:
        raise UsageError(f"there is no run {path} ({error.strerror}): abc runs") from None
    return path


def latest() -> Path:
    """The run that was made last."""
    marker = runs_root() / LATEST
    try:
        return found(runs_root() / read_text(marker, LONGEST_NAME).strip())
    except FileNotFoundError:
        raise UsageError(f"there is no run in {runs_root()} yet: abc train successor") from None
    except UsageError:
        raise
    except (OSError, ValueError) as error:
        raise AbcError(f"{marker} cannot be read ({error}): name a run") from None


def make_latest(path: Path) -> None:
    """Have commands use this run where none is named."""
    root = runs_root()
    try:
        name = os.path.relpath(path, root)
        root.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError):
        return
    write_text(root / LATEST, name + "\n")


def by_age() -> list[Path]:
    """Every run folder under the root, the oldest first."""
    root, found = runs_root(), []
    for name in os.listdir(root) if root.is_dir() else ():
        there = [root / name / sign for sign in SIGNS if os.path.lexists(root / name / sign)]
        if there and not name.startswith("."):
            found.append((there[0].lstat().st_mtime, root / name))
    return [path for _, path in sorted(found)]


def free(stem: str) -> Path:
    """A new empty folder under the root, numbered."""
    number = 1
    while True:
        path = runs_root() / f"{stem}-{number}"
        try:
            path.mkdir(parents=True)
            return path
        except FileExistsError:
            if not runs_root().is_dir():
                raise AbcError(f"cannot make the folder {path} ({runs_root()} is a file)") from None
            number += 1
        except OSError as error:
            raise AbcError(f"cannot make the folder {path} ({error.strerror})") from None


def empty(path: Path) -> Path:
    """``path`` as an empty folder."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise UsageError(f"{path} is not empty: name a new folder, or --resume it")
    except OSError as error:
        raise AbcError(f"cannot make the folder {path} ({error.strerror})") from None
    return path
