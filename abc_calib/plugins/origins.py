"""Where the classes of a run are from, and whether they are here as they were."""

from __future__ import annotations

import hashlib
import inspect
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from abc_calib.config import Origin, build
from abc_calib.errors import AbcError, UsageError, shortened
from abc_calib.plugins.files import blamed, plugin_of, said
from abc_calib.plugins.kinds import KINDS, PACKAGES, find, is_ours
from tasks import FROM_FILES, Task, get_task

NEEDED = ("notation", "laws", "symbols", "delimiters", "train_length", "unit", "sampling")
"""What every task has besides its methods."""
RESERVED = ("$", "&", "@")
"""Symbols of the beginning, the end and the padding."""


def make_task(name: str, **options: Any) -> Task:
    """``tasks.get_task``, of installed packages too; ``UsageError`` for a user's that fails."""
    if name not in FROM_FILES:
        find("task", name)
    try:
        task = get_task(name, **options)
        for attribute in NEEDED:
            getattr(task, attribute)
        if origin("task", name) is not None:
            _check_symbols(name, task.symbols)
        return task
    except AbcError:
        raise
    except Exception as error:
        if origin("task", name) is None:
            raise
        raise UsageError(f"the task {name} cannot be made: {said(error)}") from None


def _check_symbols(name: str, symbols: Sequence[Any]) -> None:
    plain = [isinstance(s, str) and s not in ("", *RESERVED) for s in symbols]
    if not all(plain) or len(set(symbols)) < len(symbols):
        wrong = next(
            s for s, p in zip(symbols, plain, strict=True) if not p or symbols.count(s) > 1
        )
        raise UsageError(
            f"the task {name} has the symbol {shortened(repr(wrong))}: give words, each once, "
            f"and none of {' '.join(RESERVED)}"
        )


@contextmanager
def in_one_line(task: str) -> Iterator[None]:
    """``UsageError`` for what goes wrong in a user's code, or with what it gave."""
    try:
        yield
    except AbcError:
        raise
    except Exception as error:
        if origin("task", task) is None and not blamed(error):
            raise
        raise UsageError(f"task {task}: the first problems fail ({said(error)})") from None


def origin(word: str, name: str) -> Origin | None:
    """Where a class is from; None for our own."""
    one = KINDS[word].known.get(name)
    if one is None or is_ours(one):
        return None
    if (plugin := plugin_of(one)) is not None:
        return Origin(file=plugin.path.name, sha256=plugin.sha256)
    package = PACKAGES.get((word, name), "")
    try:
        path = Path(inspect.getsourcefile(one) or "")
        content = path.read_bytes()
    except (OSError, TypeError):
        return Origin(package=package)
    return Origin(file=path.name, sha256=hashlib.sha256(content).hexdigest(), package=package)


def origins(schemes: Iterable[str], task: str | None = None) -> dict[str, Origin]:
    """Where the classes of a run are from that are not our own, by their word and name."""
    wanted = [] if task is None else [("task", task)]
    wanted += [("scheme", text.partition(":")[0]) for text in schemes]
    found = {f"{word} {name}": origin(word, name) for word, name in wanted}
    return {label: one for label, one in found.items() if one is not None}


def of_model(schemes: Iterable[str]) -> dict[str, Any]:
    """What the configuration of a saved model has beside: nothing, if its schemes are our own."""
    found = {label: one.model_dump() for label, one in origins(schemes).items()}
    return {"plugins": found} if found else {}


def check_model(config: Mapping[str, Any]) -> None:
    """``UsageError`` unless the schemes of a saved model are here as they were."""
    given = config.get("plugins") or {}
    if not isinstance(given, Mapping) or not all(isinstance(o, Mapping) for o in given.values()):
        raise UsageError("plugins of a saved model is not a table of tables: save the model again")
    recorded = {str(label): build(Origin, **one) for label, one in given.items()}
    check_there("this model", recorded)
    check_same("this model", recorded)


def check_there(owner: str, recorded: Mapping[str, Origin]) -> None:
    """``UsageError`` asks for the first file of ``recorded`` whose class is not loaded."""
    for label, then in recorded.items():
        word, _, name = label.partition(" ")
        if word not in KINDS:
            raise UsageError(f"{owner}'s {label} is nothing that this program knows")
        kind = KINDS[word]
        if name in kind.known or name in kind.installed:
            find(word, name)
            continue
        file = shlex.quote(then.file or "FILE.py")
        if then.package:
            source, ask = f"comes from the package {then.package}", "install it"
        elif then.file:
            source, ask = f"comes from {then.file}", f"pass --plugin {file}"
        else:
            source, ask = (
                "was a class in Python",
                f"write it into a file of its own and pass --plugin {file}",
            )
        raise UsageError(f"{owner}'s {label} {source}: {ask}")


def check_same(owner: str, recorded: Mapping[str, Origin]) -> None:
    """``UsageError`` where a class is there, but not from the file that ``recorded`` says."""
    for label, then in recorded.items():
        now = origin(*label.split(" ", 1)) or Origin(file="this program")
        if then.sha256 and then.sha256 != now.sha256:
            raise UsageError(
                f"{owner}'s {label} comes from {then.file} with the SHA-256 {then.sha256[:12]}…, "
                f"and it is from {now.file or 'a class in Python'} "
                f"({now.sha256[:12] + '…' if now.sha256 else 'another one'}) here: pass the file "
                "as it was, or train again"
            )
