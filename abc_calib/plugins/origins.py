"""Where the classes of a run are from, and whether they are here as they were."""

from __future__ import annotations

import dis
import hashlib
import inspect
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import CodeType
from typing import Any

from abc_calib.config import Options, Origin, build
from abc_calib.errors import AbcError, UsageError, shortened
from abc_calib.plugins.files import PLUGINS, blamed, code_hash, described
from abc_calib.plugins.registry import KINDS, PACKAGES, find, is_ours
from tasks import FROM_FILES, Task, get_task
from tasks.arithmetic import Arithmetic, check_notation

NEEDED = ("notation", "laws", "symbols", "delimiters", "train_length", "unit", "sampling")
"""What every task has besides its methods."""
PLAIN = (str, int, float, tuple)
"""Kinds of constants that are part of a class that was typed into Python; others may be caches."""
RESERVED = ("$", "&", "@")
"""Symbols of the beginning, the end and the padding."""


def make_task(name: str, base: int | None = None, **options: Any) -> Task:
    """``tasks.get_task``, of installed packages too; ``UsageError`` for a user's that fails.

    ``base`` may be the one of a task that has one alone, as a run has recorded it.
    """
    kind = FROM_FILES.get(name) or find("task", name)
    with in_one_line(name, "cannot be made"):
        takes = "base" in kind.options
        task = get_task(name, **options, base=base if takes else None)
        if (declared := getattr(task, "base", None)) != base:
            task = get_task(name, **options, base=declared if takes else base)  # as a run makes it
        for attribute in NEEDED:
            getattr(task, attribute)
        if origin("task", name) is not None:
            _check_symbols(name, task)
        return task


@contextmanager
def in_one_line(task: str, problem: str = "the first problems fail") -> Iterator[None]:
    """``UsageError`` for what goes wrong in a user's code, or with what it gave."""
    try:
        yield
    except AbcError:
        raise
    except (Exception, SystemExit) as error:
        if origin("task", task) is None and not blamed(error):
            raise
        raise UsageError(f"task {task}: {problem} ({described(error)})") from None


def _check_symbols(name: str, task: Task) -> None:
    if isinstance(task, Arithmetic):
        check_notation(task)
    if type(length := task.train_length) is not int or length < 1:
        raise UsageError(f"the task {name} has train_length = {length!r}: give a number from 1 on")
    for symbol in task.symbols:
        many = task.symbols.count(symbol) > 1
        is_word = isinstance(symbol, str) and symbol.isprintable()
        if not is_word or symbol in ("", *RESERVED) or many:
            raise UsageError(
                f"the task {name} has the symbol {shortened(repr(symbol))}: give words that can be "
                f"printed, each once, and none of {' '.join(RESERVED)}"
            )
    operator = getattr(task, "operator", None)
    if operator and (operator not in task.symbols or operator not in task.delimiters):
        raise UsageError(
            f"the task {name} has the operator {operator!r}, which is not in its symbols and "
            "delimiters: write into __init__, behind super().__init__(base), self.symbols, "
            f"self.delimiters = (*self.symbols[:self.base], {operator!r}), ({operator!r},)"
        )


def origin(word: str, name: str) -> Origin | None:
    """Where a class is from; None for our own."""
    registered = KINDS[word].classes.get(name)
    if registered is None or is_ours(registered):
        return None
    package, plugin = PACKAGES.get(registered, ""), PLUGINS.get(registered.__module__)
    try:
        path = plugin.path if plugin else Path(inspect.getsourcefile(registered) or "")
        content = plugin.content if plugin else path.read_bytes()
    except (OSError, TypeError):
        return Origin(sha256=typed_hash(registered), package=package)
    digest, code = hashlib.sha256(content).hexdigest(), code_hash(content)
    return Origin(file=path.name, sha256=digest, package=package, code=code)


def typed_hash(registered: type) -> str:
    """SHA-256 of what a class that was typed into Python is made of: functions and constants.

    Its own and its typed bases', and the globals of these kinds that its functions name.
    """
    module, parts, named = registered.__module__, list[tuple[str, str]](), set[str]()
    kinds = [kind for kind in registered.__mro__ if kind.__module__ == module]
    members: list[tuple[str, Any]] = [x for kind in kinds for x in sorted(vars(kind).items())]
    for name, value in members:  # which grows
        function = getattr(value, "fget", None) or getattr(value, "__func__", value)
        if (code := getattr(function, "__code__", None)) is None:
            if not name.startswith("__") and isinstance(value, PLAIN):
                parts.append((name, repr(value)))
            continue
        try:
            parts.append((name, inspect.getsource(function)))
        except OSError:  # of code that nothing keeps
            parts.append((name, repr(_content_of(code))))
        for used in sorted(_globals_of(code) & {*function.__globals__} - named):
            named.add(used)
            other = function.__globals__[used]
            if isinstance(other, PLAIN) or getattr(other, "__module__", "") == module:
                members.append((used, other))
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _content_of(code: CodeType) -> tuple[Any, ...]:
    inner = [_content_of(x) if isinstance(x, CodeType) else x for x in code.co_consts]
    constants = [sorted(map(repr, x)) if isinstance(x, frozenset) else x for x in inner]
    return code.co_code, code.co_names, code.co_varnames, constants


def _globals_of(code: CodeType) -> set[str]:
    """The names of globals in a function's code, and in functions inside it."""
    names = {x.argval for x in dis.get_instructions(code) if x.opname == "LOAD_GLOBAL"}
    inner = (value for value in code.co_consts if isinstance(value, CodeType))
    return names.union(*map(_globals_of, inner))


def origins(schemes: Iterable[str], task: str | None = None) -> dict[str, Origin]:
    """Where the classes of a run are from that are not our own, by their word and name."""
    names = [] if task is None else [("task", task)]
    names += [("scheme", text.partition(":")[0]) for text in schemes]
    by_label = {f"{word} {name}": origin(word, name) for word, name in names}
    return {label: where for label, where in by_label.items() if where is not None}


class Recorded(Options):
    """What a saved model's configuration says of schemes that are not our own."""

    plugins: dict[str, Origin] = {}


def of_model(schemes: Iterable[str]) -> dict[str, Any]:
    """The fields of ``Recorded``, where there are such schemes."""
    recorded = Recorded(plugins=origins(schemes))
    return recorded.model_dump() if recorded.plugins else {}


def check_model(config: Mapping[str, Any]) -> None:
    """Raise ``UsageError`` unless the schemes of a saved model are here as they were."""
    recorded = build(Recorded, plugins=config.get("plugins") or {})
    check_origins("this model", recorded.plugins)


def check_origins(owner: str, recorded: Mapping[str, Origin]) -> None:
    """Raise ``UsageError`` for a class that is not loaded, or not from the file recorded."""
    for label, then in recorded.items():
        word, _, name = label.partition(" ")
        source = then.file or "a class in Python"
        if word not in KINDS:
            raise UsageError(f"{owner}'s {label} is nothing that this program knows")
        if name not in KINDS[word].classes and name not in KINDS[word].installed:
            request = f"comes from {source}: pass --plugin {shlex.quote(then.file)}"
            if then.package:
                request = f"comes from the package {then.package}: install it"
            elif not then.file:
                request = f"was {source}: write it into a file of its own and pass --plugin FILE.py"
            raise UsageError(f"{owner}'s {label} {request}")
        find(word, name)
        now = origin(word, name) or Origin(file="this program")
        is_alike = then.sha256 == now.sha256 or (then.code and then.code == now.code)
        if then.sha256 and not is_alike:
            here = f"{now.sha256[:12]}…" if now.sha256 else "another one"
            raise UsageError(
                f"{owner}'s {label} comes from {source} with the SHA-256 {then.sha256[:12]}…, and "
                f"it is from {now.file or 'a class in Python'} ({here}) here, with other code: "
                f"{'pass the file' if then.file else 'define it'} as it was, or train again"
            )
