"""Files of Python that were named, executed once each, and what goes wrong in them."""

from __future__ import annotations

import contextlib
import hashlib
import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from abc_calib.errors import UsageError
from abc_calib.files import check_regular
from abc_calib.plugins.kinds import KINDS, Kind, check, in_words, name_taken, register

MOST_BYTES = 10**6
"""Of one file."""


@dataclass(frozen=True)
class Plugin:
    """A file as it was executed."""

    path: Path
    content: bytes
    module: ModuleType

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


_PLUGINS: dict[str, Plugin] = {}
"""By the name of the module."""


def load_plugin(path: Path | str) -> tuple[str, ...]:
    """Execute a file of Python and register its tasks and schemes; gives their names.

    A class counts with a ``name`` of its own, or where the file puts it into ``TASKS`` or
    ``SCHEMES``. ``UsageError`` if it does not work, and then nothing is registered.
    """
    path = Path(path)
    return load_content(path, _content(path))


def loaded() -> list[Plugin]:
    """The files that this process has executed."""
    return list(_PLUGINS.values())


def load_content(path: Path, content: bytes) -> tuple[str, ...]:
    """The same for a file that was read already, maybe elsewhere."""
    name = f"abc_plugin_{hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:12]}"
    if (known := _PLUGINS.get(name)) is not None:
        if known.content == content:
            return tuple(_names_of(known.module))
        _forget(known)  # the file was changed meanwhile
    before = {word: dict(kind.known) for word, kind in KINDS.items()}
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    try:
        _execute(path, content, module)
        _register_all(path, module, _others(module, before))
    except BaseException:
        for word, listed in _others(module, before).items():
            KINDS[word].known.clear()
            KINDS[word].known.update(listed)
        del sys.modules[name]
        raise
    _PLUGINS[name] = Plugin(path, content, module)
    return tuple(_names_of(module))


def _content(path: Path) -> bytes:
    if path.suffix != ".py":
        raise UsageError(f"plugin {path} is not a file of Python: name one that ends in .py")
    try:
        check_regular(path, MOST_BYTES)
        return path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"plugin {path} cannot be read ({reason}): name a file of Python"
        ) from None


def _execute(path: Path, content: bytes, module: ModuleType) -> None:
    """Run the file; what it prints goes to stderr, since stdout is for results."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            exec(compile(content, str(path), "exec", dont_inherit=True), module.__dict__)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: whatever a file does, it does not end us
        line = error.lineno if isinstance(error, SyntaxError) else _line(error, str(path))
        at = f", line {line}" if line else ""
        raise UsageError(
            f"plugin {path} does not import{at} ({in_words(error)}): mend it"
        ) from None


def _others(module: ModuleType, before: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What was listed before a file was executed, whose imports may have brought a kind."""
    own = module.__name__
    brought = {word: kind.known for word, kind in KINDS.items() if word not in before}
    return dict(before) | {
        word: {name: one for name, one in known.items() if one.__module__ != own}
        for word, known in brought.items()
    }


def _register_all(path: Path, module: ModuleType, before: Mapping[str, Any]) -> None:
    """Register the classes of a file that was executed; ``UsageError`` for one that cannot be."""
    where = f"plugin {path}"
    for word, kind in KINDS.items():
        for name, one in before[word].items():
            if kind.known.get(name) is not one:
                raise UsageError(name_taken(kind, name, where))
        for name in kind.known.keys() - before[word].keys():
            check(kind, name, kind.known[name], where)
            if kind.known[name].__module__ != module.__name__:
                raise UsageError(f"{where}: {name} is a class of another file: derive your own")
    for kind, one in _classes(module):
        if one not in kind.known.values():
            register(kind, one, where)
    if not list(_names_of(module)):
        raise UsageError(
            f"{where} has no task and no scheme: give a subclass of Task or Scheme a name"
        )


def _classes(module: ModuleType) -> Iterator[tuple[Kind, type]]:
    """The classes that a file defines to be used: not private ones, nor bases without a name."""
    defined = [one for one in vars(module).values() if isinstance(one, type)]
    mine = [one for one in dict.fromkeys(defined) if one.__module__ == module.__name__]
    for one in mine:
        base = any(other is not one and issubclass(other, one) for other in mine)
        if one.__name__.startswith("_") or (base and "name" not in vars(one)):
            continue
        yield from ((kind, one) for kind in KINDS.values() if issubclass(one, kind.base))


def _names_of(module: ModuleType) -> Iterator[str]:
    """What is listed of a file's classes."""
    for kind in KINDS.values():
        yield from (n for n, one in kind.known.items() if one.__module__ == module.__name__)


def _forget(plugin: Plugin) -> None:
    for kind in KINDS.values():
        for name in [n for n, c in kind.known.items() if c.__module__ == plugin.module.__name__]:
            del kind.known[name]
    del _PLUGINS[plugin.module.__name__], sys.modules[plugin.module.__name__]


def said(error: BaseException) -> str:
    """An error in a user's code in a line, with its place where that is in a plugin."""
    return blamed(error) or in_words(error)


def blamed(error: BaseException) -> str:
    """Where in a plugin an error was raised, in a line; empty if it was not in one."""
    for plugin in _PLUGINS.values():
        if line := _line(error, str(plugin.path)):
            return f"{plugin.path.name}, line {line}: {in_words(error)}"
    return ""


def _line(error: BaseException, file: str) -> int | None:
    """The last line of a file that an error has passed through."""
    lines = [n for f, n in traceback.walk_tb(error.__traceback__) if f.f_code.co_filename == file]
    return lines[-1] if lines else None


def plugin_of(one: type) -> Plugin | None:
    """The file that a class is from, if it was executed here."""
    return _PLUGINS.get(one.__module__)
