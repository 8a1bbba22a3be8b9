"""Files that are either as they were or complete, read with care, and where runs lie."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from safetensors import SafetensorError

from abc_calib.errors import AbcError

try:
    import fcntl
except ImportError:  # not on Windows: there, leave a run to one process at a time
    fcntl = None  # type: ignore[assignment]

MARK = ".abc-"
"""In the name of a temporary folder."""
MOST_TEXT = 2**26
"""Bytes of the largest text file of a run that is read."""
MOST_TENSORS = 2**34
"""The same for a file of tensors."""


def runs_root() -> Path:
    """Where runs lie: the folder named by ``ABC_RUNS``, or ``runs``."""
    return Path(os.environ.get("ABC_RUNS", "runs"))


# Reading


def check_regular(path: Path, most: int = MOST_TENSORS) -> int:
    """The size of a regular file; ``OSError`` or ``ValueError`` for anything else or a larger one.

    To open a pipe may wait for ever, and a link may lead to a device without an end.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is not a regular file")
    if status.st_size > most:
        raise ValueError(f"it has {status.st_size} bytes, and at most {most} are read")
    return status.st_size


def read_text(path: Path, most: int = MOST_TEXT) -> str:
    """A text of a run; ``OSError`` or ``ValueError`` if it is not a regular file of UTF-8."""
    check_regular(path, most)
    return path.read_text("utf-8")


def read_json(path: Path) -> Any:
    """The value in a JSON file; ``OSError`` or ``ValueError`` if there is none."""
    return parse_json(read_text(path))


def parse_json(text: str) -> Any:
    """A JSON value, all numbers finite; ``ValueError`` if it is none."""

    def refuse(word: str) -> NoReturn:
        raise ValueError(f"{word} is not a number of JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


# Writing


def write_atomically(path: Path, write: Callable[[Path], Any], replace: bool = True) -> None:
    """Let ``write`` make a file or folder next to ``path``, then put it in its place.

    Whatever goes wrong, ``path`` is either as it was or complete; ``AbcError`` if the disk
    does not take it. After a kill ``tidy`` puts back a folder that was to be replaced. Without
    ``replace`` a folder that holds something stays.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise AbcError(f"{path} is neither a file nor a folder: name another one")
    temporary = None
    try:
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}{MARK}", dir=path.parent))
        with _held(temporary):
            new = temporary / path.name
            write(new)
            (temporary / "mode").touch()
            mode = stat.S_IMODE((temporary / "mode").stat().st_mode)
            for file in [new, *new.rglob("*")]:
                if file.is_file():  # safetensors makes them private to their owner
                    file.chmod(mode)
            if new.is_dir() and path.exists() and replace:
                path.rename(temporary / "old")
            os.replace(new, path)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        is_full = getattr(error, "errno", None) == errno.ENOSPC
        advice = "free some space or choose another folder" if is_full else "name another place"
        raise AbcError(
            f"cannot write {path} ({reason}): {advice}, with --out or ABC_RUNS; what was there "
            "before is untouched"
        ) from None
    finally:
        if temporary is not None:
            _clear(temporary, path)


def _clear(temporary: Path, path: Path) -> None:
    """Remove a temporary folder, the old content of ``path`` put back where there is no new one."""
    if (temporary / "old").exists() and not path.exists():
        (temporary / "old").rename(path)
    shutil.rmtree(temporary, ignore_errors=True)


def tidy(folder: Path) -> None:
    """Put away what processes that were killed left half-written in ``folder``.

    Nothing of a process that is alive, here or on another machine: it holds a lock.
    """
    if fcntl is None:
        return
    with suppress(OSError):
        for path in folder.glob(f".?*{MARK}*"):
            if path.is_dir() and any(path.iterdir()):  # an empty one is about to be locked
                with suppress(BlockingIOError), _held(path):
                    _clear(path, folder / path.name[1:].rpartition(MARK)[0])


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Keep ``tidy`` away from a temporary folder; ``BlockingIOError`` if another process does."""
    if fcntl is None:
        yield
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(number)


@contextmanager
def locked(folder: Path, refusal: str = "") -> Iterator[None]:
    """Keep other processes from working in ``folder`` meanwhile: they wait.

    With a ``refusal`` they do not, and this is their ``AbcError``.
    """
    make_folder(folder)
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NONBLOCK", 0)  # a pipe is not waited for
    try:
        number = os.open(folder / "lock", flags, 0o644)
    except OSError as error:
        raise AbcError(f"cannot write {folder / 'lock'} ({error.strerror})") from None
    try:
        if fcntl is not None:
            try:
                fcntl.flock(number, fcntl.LOCK_EX | (fcntl.LOCK_NB if refusal else 0))
            except BlockingIOError:
                raise AbcError(refusal) from None
        tidy(folder)
        yield
    finally:
        os.close(number)


def make_folder(path: Path, to_write: Path | None = None) -> None:
    """Make a folder (``to_write``'s), if it is not there; ``AbcError`` if that is not possible."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        purpose = f"cannot write {to_write}: " if to_write else ""
        raise AbcError(
            f"{purpose}cannot make the folder {path} ({error.strerror}): choose another one"
        ) from None


def write_text(path: Path, text: str) -> None:
    """``write_atomically`` for text."""
    write_atomically(path, lambda new: new.write_text(text, "utf-8"))
