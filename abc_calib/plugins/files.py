"""Python files that a user named, executed once each, and errors in them."""

from __future__ import annotations

import contextlib
import hashlib
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from abc_calib.errors import UsageError
from abc_calib.files import check_regular
from abc_calib.plugins.registry import KINDS, Kind, in_words, register

MOST_BYTES = 10**6


@dataclass(frozen=True)
class Plugin:
    """A file as it was executed."""

    path: Path
    content: bytes
    module: ModuleType

    @property
    def names(self) -> list[str]:
        """The names under which its classes are registered."""
        classes = (pair for kind in KINDS.values() for pair in kind.classes.items())
        return [name for name, new in classes if new.__module__ == self.module.__name__]

    def forget(self) -> None:
        """Remove its classes from the registries."""
        for name in self.names:
            for kind in KINDS.values():
                kind.classes.pop(name, None)
        PLUGINS.pop(self.module.__name__, None)
        del sys.modules[self.module.__name__]


PLUGINS: dict[str, Plugin] = {}
"""The files that this process has executed, by the names of their modules."""


def load_plugin(path: Path | str) -> tuple[str, ...]:
    """Execute a Python file and register its tasks and schemes; return their names.

    A class counts if it has a ``name`` of its own. Raises ``UsageError`` if the file does not work,
    has none or a faulty one, and then nothing is registered.
    """
    path = Path(path)
    if path.suffix != ".py":
        raise UsageError(f"plugin {path} is not a file of Python: name one that ends in .py")
    try:
        check_regular(path, MOST_BYTES)
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"plugin {path} cannot be read ({reason}): name a file of Python"
        ) from None
    return load_content(path, content)


def load_content(path: Path, content: bytes) -> tuple[str, ...]:
    """Execute the content of a file, which may have been read on another machine."""
    name = f"abc_plugin_{hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:12]}"
    if (earlier := PLUGINS.get(name)) is not None:
        if earlier.content == content:
            return tuple(earlier.names)
        earlier.forget()
    module = sys.modules[name] = ModuleType(name)
    module.__file__ = str(path)
    plugin = Plugin(path, content, module)
    try:
        _execute(plugin)
        for kind, new in _classes(module):
            register(kind, new, f"plugin {path}")
        if not plugin.names:
            raise UsageError(
                f"plugin {path} has no task and no scheme: give a subclass of Task or Scheme a name"
            )
    except BaseException:
        plugin.forget()
        raise
    PLUGINS[name] = plugin
    return tuple(plugin.names)


def _execute(plugin: Plugin) -> None:
    """Run the file; what it prints goes to stderr, because stdout is for results."""
    path = str(plugin.path)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            code = compile(plugin.content, path, "exec", dont_inherit=True)
            exec(code, plugin.module.__dict__)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: a file does not end the program
        line = error.lineno if isinstance(error, SyntaxError) else _line(error, path)
        at = f", line {line}" if line else ""
        raise UsageError(
            f"plugin {path} does not import{at} ({in_words(error)}): mend it"
        ) from None


def _classes(module: ModuleType) -> Iterator[tuple[Kind, type]]:
    """The classes that a file defines to be used: not private ones, nor bases without a name."""
    defined = [value for value in vars(module).values() if isinstance(value, type)]
    defined = [value for value in dict.fromkeys(defined) if value.__module__ == module.__name__]
    for new in defined:
        is_base = any(other is not new and issubclass(other, new) for other in defined)
        if new.__name__.startswith("_") or (is_base and "name" not in vars(new)):
            continue
        yield from ((kind, new) for kind in KINDS.values() if issubclass(new, kind.base))


def said(error: BaseException) -> str:
    """An error in a user's code in one line, with its place where that is in a plugin."""
    return blamed(error) or in_words(error)


def blamed(error: BaseException) -> str:
    """Where in a plugin an error was raised, in one line; empty if it was not in one."""
    for plugin in PLUGINS.values():
        if line := _line(error, str(plugin.path)):
            return f"{plugin.path.name}, line {line}: {in_words(error)}"
    return ""


def _line(error: BaseException, file: str) -> int | None:
    """The last line of a file that an error has passed through."""
    lines = [n for f, n in traceback.walk_tb(error.__traceback__) if f.f_code.co_filename == file]
    return lines[-1] if lines else None
