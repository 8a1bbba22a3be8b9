"""Python files that a user named, executed once each, and errors in them."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import sys
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from abc_calib.errors import AbcWarning, UsageError
from abc_calib.files import check_regular
from abc_calib.plugins.registry import KINDS, Kind, in_words, register

MOST_BYTES = 10**6
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
"""What may begin with a docstring."""


@dataclass(frozen=True)
class Plugin:
    """A file as it was executed."""

    path: Path
    content: bytes
    module: ModuleType

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


def code_hash(content: bytes) -> str:
    """SHA-256 of the code of a file, without its comments, docstrings and layout."""
    tree = ast.parse(content)
    for node in ast.walk(tree):
        body: Any = getattr(node, "body", None)
        if isinstance(body, list) and isinstance(node, DOCUMENTED) and ast.get_docstring(node):
            del body[0]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


_PLUGINS: dict[str, Plugin] = {}
"""By the name of the module."""


def load_plugin(path: Path | str) -> tuple[str, ...]:
    """Execute a Python file and register its tasks and schemes; return their names.

    A class counts if it has a ``name`` of its own; a faulty one is left out with a warning. Raises
    ``UsageError`` if the file does not work or has no other, and then nothing is registered.
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


def loaded() -> list[Plugin]:
    """The files that this process has executed."""
    return list(_PLUGINS.values())


def load_content(path: Path, content: bytes) -> tuple[str, ...]:
    """Execute the content of a file, which may have been read on another machine."""
    name = f"abc_plugin_{hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:12]}"
    earlier = _PLUGINS.get(name)
    if earlier is not None and earlier.content == content:
        return tuple(_names_of(earlier.module))
    if earlier is not None:
        _forget(earlier)
    before = {word: dict(kind.classes) for word, kind in KINDS.items()}
    module = sys.modules[name] = ModuleType(name)
    module.__file__ = str(path)
    try:
        _execute(path, content, module)
        if any(KINDS[word].classes != classes for word, classes in before.items()):
            raise UsageError(
                f"plugin {path} changes TASKS or SCHEMES: leave that out, "
                "a class with a name counts"
            )
        faults = []
        for kind, new in _classes(module):
            try:
                register(kind, new, f"plugin {path}")
            except UsageError as error:
                faults.append(error)
        if not (names := tuple(_names_of(module))):
            nothing = "has no task and no scheme: give a subclass of Task or Scheme a name"
            raise faults[0] if faults else UsageError(f"plugin {path} {nothing}")
        for fault in faults:
            warnings.warn(str(fault), AbcWarning, stacklevel=2)
    except BaseException:
        for word, kind in KINDS.items():  # importing schemes may have added theirs
            earlier_classes = before.get(word, kind.classes)
            kept = {n: c for n, c in earlier_classes.items() if c.__module__ != name}
            kind.classes.clear()
            kind.classes.update(kept)
        del sys.modules[name]
        raise
    _PLUGINS[name] = Plugin(path, content, module)
    return names


def _execute(path: Path, content: bytes, module: ModuleType) -> None:
    """Run the file; what it prints goes to stderr, because stdout is for results."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            exec(compile(content, str(path), "exec", dont_inherit=True), module.__dict__)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: a file does not end the program
        line = error.lineno if isinstance(error, SyntaxError) else _line(error, str(path))
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


def _names_of(module: ModuleType) -> Iterator[str]:
    """The names under which a file's classes are registered."""
    for kind in KINDS.values():
        yield from (n for n, c in kind.classes.items() if c.__module__ == module.__name__)


def _forget(plugin: Plugin) -> None:
    for name in list(_names_of(plugin.module)):
        for kind in KINDS.values():
            kind.classes.pop(name, None)
    del _PLUGINS[plugin.module.__name__], sys.modules[plugin.module.__name__]


def said(error: BaseException) -> str:
    """An error in a user's code in one line, with its place where that is in a plugin."""
    return blamed(error) or in_words(error)


def blamed(error: BaseException) -> str:
    """Where in a plugin an error was raised, in one line; empty if it was not in one."""
    for plugin in _PLUGINS.values():
        if line := _line(error, str(plugin.path)):
            return f"{plugin.path.name}, line {line}: {in_words(error)}"
    return ""


def _line(error: BaseException, file: str) -> int | None:
    """The last line of a file that an error has passed through."""
    lines = [n for f, n in traceback.walk_tb(error.__traceback__) if f.f_code.co_filename == file]
    return lines[-1] if lines else None


def plugin_of(registered: type) -> Plugin | None:
    """The file that a class is from, if it was executed here."""
    return _PLUGINS.get(registered.__module__)
