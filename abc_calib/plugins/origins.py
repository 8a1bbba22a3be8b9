"""Where the classes of a run are from, and whether they are here as they were."""

from __future__ import annotations

import hashlib
import inspect
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from abc_calib.config import Origin, build
from abc_calib.errors import AbcError, UsageError, shortened
from abc_calib.plugins.files import PLUGINS, blamed, said
from abc_calib.plugins.registry import KINDS, find, is_ours, package
from tasks import FROM_FILES, Task, get_task

NEEDED = ("notation", "laws", "symbols", "delimiters", "train_length", "unit", "sampling")
"""What every task has besides its methods."""
RESERVED = ("$", "&", "@")
"""Symbols of the beginning, the end and the padding."""


def make_task(name: str, **options: Any) -> Task:
    """``tasks.get_task``, of installed packages too; ``UsageError`` for a user's that fails."""
    if name not in FROM_FILES:
        find("task", name)
    is_custom = origin("task", name) is not None
    try:
        task = get_task(name, **options)
        for attribute in NEEDED:
            getattr(task, attribute)
        if is_custom:
            _check(name, task)
        return task
    except AbcError:
        raise
    except Exception as error:
        if not is_custom:
            raise
        raise UsageError(f"the task {name} cannot be made: {said(error)}") from None


def _check(name: str, task: Task) -> None:
    """Raise ``UsageError`` for symbols, or an operator, that no data can lay out."""
    symbols, operator = task.symbols, getattr(task, "operator", None)
    for symbol in symbols:
        if not isinstance(symbol, str) or symbol in ("", *RESERVED) or symbols.count(symbol) > 1:
            raise UsageError(
                f"the task {name} has the symbol {shortened(repr(symbol))}: give words, each once, "
                f"and none of {' '.join(RESERVED)}"
            )
    if operator and (operator not in symbols or operator not in task.delimiters):
        raise UsageError(
            f"the task {name} has the operator {operator!r}, which is not in its symbols and "
            "delimiters: write into __init__, behind super().__init__(base), self.symbols, "
            f"self.delimiters = (*self.symbols[:self.base], {operator!r}), ({operator!r},)"
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
    """Where a class is from; None for our own, without a file for one that was typed."""
    kind = KINDS[word]
    registered = kind.classes.get(name)
    if registered is None or is_ours(registered):
        return None
    if plugin := PLUGINS.get(registered.__module__):
        path, content = plugin.path, plugin.content
    else:
        try:
            path = Path(inspect.getsourcefile(registered) or "")
            content = path.read_bytes()
        except (OSError, TypeError):
            return Origin()
    point = kind.installed.get(name)
    where = package(point) if point and point.module == registered.__module__ else ""
    return Origin(file=path.name, sha256=hashlib.sha256(content).hexdigest(), package=where)


def origins(schemes: Iterable[str], task: str | None = None) -> dict[str, Origin]:
    """Where the classes of a run are from that are not our own, by their word and name."""
    names = [] if task is None else [("task", task)]
    names += [("scheme", text.partition(":")[0]) for text in schemes]
    by_label = {f"{word} {name}": origin(word, name) for word, name in names}
    return {label: where for label, where in by_label.items() if where is not None}


def of_model(schemes: Iterable[str]) -> dict[str, Any]:
    """What a saved model's configuration says of schemes that are not our own."""
    recorded = {label: where.model_dump() for label, where in origins(schemes).items()}
    return {"plugins": recorded} if recorded else {}


def check_model(config: Mapping[str, Any]) -> None:
    """Raise ``UsageError`` unless the schemes of a saved model are here as they were."""
    recorded = config.get("plugins") or {}
    if not isinstance(recorded, Mapping) or not all(
        isinstance(where, Mapping) for where in recorded.values()
    ):
        raise UsageError("plugins of a saved model is not a table of tables: save the model again")
    check_origins("this model", {str(k): build(Origin, **v) for k, v in recorded.items()})


def check_origins(owner: str, recorded: Mapping[str, Origin]) -> None:
    """Raise ``UsageError`` for a class that is not loaded, or not from the file recorded."""
    for label, then in recorded.items():
        word, _, name = label.partition(" ")
        if word not in KINDS:
            raise UsageError(f"{owner}'s {label} is nothing that this program knows")
        if name not in KINDS[word].classes and name not in KINDS[word].installed:
            raise UsageError(f"{owner}'s {label} {_request(then)}")
        find(word, name)
        now = origin(word, name) or Origin(file="this program")
        if then.file and then.sha256 != now.sha256:
            raise UsageError(
                f"{owner}'s {label} comes from {then.file} with the SHA-256 {then.sha256[:12]}…, "
                f"and it is from {now.file or 'a class in Python'} ({now.sha256[:12]}…) here: pass "
                "the file as it was, or train again"
            )


def _request(then: Origin) -> str:
    """Where a class is from, and what to do to have it here."""
    if then.package:
        return f"comes from the package {then.package}: install it"
    if then.file:
        return f"comes from {then.file}: pass --plugin {shlex.quote(then.file)}"
    return "was a class in Python: write it into a file of its own and pass --plugin FILE.py"
