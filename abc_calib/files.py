"""Files that are either as they were or complete, and where runs lie."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from abc_calib.errors import AbcError


def runs_root() -> Path:
    """Where runs lie: the folder named by ``ABC_RUNS``, or ``runs``."""
    return Path(os.environ.get("ABC_RUNS", "runs"))


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Let ``write`` make a file or folder beside ``path``, then put it in its place.

    Whatever goes wrong, ``path`` is either as it was or complete; ``AbcError`` if the disk
    does not take it.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise AbcError(f"{path} is neither a file nor a folder: name another one")
    temporary = None
    try:
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        made = temporary / path.name
        write(made)
        for file in [made, *made.rglob("*")]:
            if file.is_file():  # safetensors files come out private to their owner
                file.chmod(0o644)
        if made.is_dir() and path.exists():
            path.rename(temporary / "old")
        os.replace(made, path)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise AbcError(
            f"cannot write {path} ({reason}): free some space or choose another folder with "
            "ABC_RUNS; what was there before is untouched"
        ) from None
    finally:
        if temporary is not None:
            if (temporary / "old").exists() and not path.exists():
                (temporary / "old").rename(path)
            shutil.rmtree(temporary, ignore_errors=True)


def make_folder(path: Path) -> None:
    """Make a folder, if it is not there; ``AbcError`` if that is not possible."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AbcError(
            f"cannot make the folder {path} ({error.strerror}): choose another one"
        ) from None


def write_text(path: Path, text: str) -> None:
    """``write_atomically`` for text."""
    write_atomically(path, lambda made: made.write_text(text))
