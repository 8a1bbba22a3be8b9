"""Where run folders are: the latest, those under the root, and new ones."""

from __future__ import annotations

import difflib
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from abc_calib.errors import AbcError, UsageError
from abc_calib.files import make_folder, read_text, runs_root, write_atomically, write_text
from abc_calib.version import ZOO
from tasks.base import unknown

LATEST, FROM_ZOO = "latest", "zoo:"
JOBS = "jobs"
"""The folder of the jobs of sweeps."""
DEEPEST = 4
"""Folders below the root in which runs are looked for."""
LONGEST_NAME = 2**16
"""Bytes of the longest file that names a run."""
SIGNS = ("config.json", "result.json", "model", "checkpoint.safetensors", "bias.safetensors")
"""A folder with one of these is a run, whole or broken."""


def find(path: Path) -> Path:
    """The run folder in ``path``, or of that name under the root, or ``zoo:NAME``, copied there."""
    if str(path).startswith(FROM_ZOO):
        return copied(str(path).removeprefix(FROM_ZOO))
    try:
        if not path.exists() and (runs_root() / path).exists():
            path = runs_root() / path
        if not path.is_dir():
            names = {name: name for name in _names(runs_root()) if name != path.name}
            names |= {run.name: os.path.relpath(run, runs_root()) for run in by_age()}
            close = difflib.get_close_matches(path.name, names, 1, cutoff=0.8)
            near = [names[name] for name in close]
            hint = f"did you mean {near[0]}?" if near else "abc runs lists them"
            what = f"{path} is a file, not a run" if path.is_file() else f"there is no run {path}"
            raise UsageError(f"{what}: {hint}")
        if not os.path.lexists(path / "config.json"):
            raise UsageError(f"{path} is not a run folder (no config.json): abc runs lists them")
    except OSError as error:
        raise UsageError(f"there is no run {path} ({error.strerror}): abc runs") from None
    return path


def zoo() -> list[str]:
    """The names of the certified models that come with the program."""
    return sorted(path.parent.name for path in ZOO.glob("*/certificate.json"))


def copied(name: str) -> Path:
    """A copy under the root of a model of the zoo, made when it is first asked for."""
    if not name:
        raise UsageError(f"name a model, as in {', '.join(FROM_ZOO + model for model in zoo())}")
    if name not in zoo():
        raise UsageError(unknown("model", FROM_ZOO + name, [FROM_ZOO + model for model in zoo()]))
    path = runs_root() / f"zoo-{name}"
    if not path.exists():
        make_folder(runs_root())
        write_atomically(path, lambda new: shutil.copytree(ZOO / name, new), replace=False)
    return path


def latest() -> Path:
    """The run that was made last."""
    marker = runs_root() / LATEST
    try:
        name = read_text(marker, LONGEST_NAME).strip()
    except FileNotFoundError:
        if by_age():
            raise UsageError(
                "it is not known which run is the latest: name one of those that abc runs lists, "
                "or train one (abc train successor)"
            ) from None
        hint = "abc train successor, or name a model, as in --run zoo:addition"
        raise UsageError(f"there is no run in {runs_root()} yet: {hint}") from None
    except (OSError, ValueError) as error:
        raise AbcError(f"{marker} cannot be read ({error}): name a run") from None
    return find(runs_root() / name)


def make_latest(path: Path) -> None:
    """Have commands use this run where none is named."""
    root = runs_root()
    try:
        name = os.path.relpath(path, root)
        root.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError):
        return
    write_text(root / LATEST, name + "\n")


def by_age(jobs: bool = False) -> list[Path]:
    """Every run folder under the root, up to ``DEEPEST`` folders below it, the oldest first.

    ``jobs``: those of sweeps too, of which there may be thousands.
    """
    root = runs_root()
    names = [name for name in _names(root) if jobs or name != JOBS]
    return [path for _, path in sorted(run for name in names for run in _aged(root / name))]


def _aged(path: Path, depth: int = 1) -> Iterator[tuple[float, Path]]:
    """The runs at and below a path, with their ages; links to folders are not followed."""
    signs = [path / sign for sign in SIGNS if os.path.lexists(path / sign)]
    if signs:
        yield signs[0].lstat().st_mtime, path
    elif depth < DEEPEST and not path.is_symlink():
        for name in _names(path):
            yield from _aged(path / name, depth + 1)


def _names(folder: Path) -> list[str]:
    """What is in a folder, except hidden files; nothing where it cannot be read."""
    try:
        return [entry.name for entry in os.scandir(folder) if entry.name[0] != "."]
    except OSError:
        return []


def free(stem: str) -> Path:
    """A new empty folder under the root, numbered."""
    make_folder(runs_root())
    number = 1
    while True:
        path = runs_root() / f"{stem}-{number}"
        with suppress(FileExistsError):
            path.mkdir()
            return path
        number += 1


def empty(path: Path | str) -> Path:
    """``path`` as an empty folder."""
    make_folder(path := Path(path))
    if any(path.iterdir()):
        raise UsageError(f"{path} is not empty: name a new folder, or --resume it")
    return path
