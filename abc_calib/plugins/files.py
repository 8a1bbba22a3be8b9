"""Python files that a user named, executed once each, and errors in them."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import re
import sys
import traceback
import warnings
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from abc_calib.errors import AbcWarning, UsageError
from abc_calib.files import check_regular
from abc_calib.plugins.registry import KINDS, Kind, in_words, register

MOST_BYTES = 10**6
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
"""What may begin with a docstring."""


class Plugin(NamedTuple):
    """A file as it was executed."""

    path: Path
    content: bytes


PLUGINS: dict[str, Plugin] = {}
"""Those that this process has executed, by the name of the module."""


def code_hash(content: bytes) -> str:
    """SHA-256 of the code of a file, without its comments, docstrings and layout."""
    tree = ast.parse(content)
    for node in ast.walk(tree):
        body: Any = getattr(node, "body", None)
        if isinstance(body, list) and isinstance(node, DOCUMENTED) and ast.get_docstring(node):
            del body[0]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


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


def load_content(path: Path, content: bytes) -> tuple[str, ...]:
    """Execute the content of a file, which may have been read on another machine."""
    name = f"abc_plugin_{hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:12]}"
    if name not in PLUGINS or PLUGINS[name].content != content:
        forget(name)
        before = {word: dict(kind.classes) for word, kind in KINDS.items()}
        module = sys.modules[name] = ModuleType(name)
        module.__file__ = str(path)
        PLUGINS[name] = Plugin(path, content)
        try:
            _execute(path, content, module)
            if any(KINDS[word].classes != classes for word, classes in before.items()):
                raise UsageError(
                    f"plugin {path} changes TASKS or SCHEMES: leave that out, "
                    "a class with a name counts"
                )
            _register(path, module)
        except BaseException:
            for word, classes in before.items():
                KINDS[word].classes.clear()
                KINDS[word].classes.update(classes)
            forget(name)
            raise
    return tuple(key for _, key in _registered(name))


def forget(module: str) -> None:
    """Take back what a file's module has registered."""
    for kind, name in _registered(module):
        del kind.classes[name]
    PLUGINS.pop(module, None)
    sys.modules.pop(module, None)


def _registered(module: str) -> list[tuple[Kind, str]]:
    """The classes of a file's module, by registry and name."""
    return [
        (kind, name)
        for kind in KINDS.values()
        for name, registered in kind.classes.items()
        if getattr(registered, "__module__", "") == module
    ]


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
            f"plugin {path} does not import{at} ({in_words(error)}): mend it (docs/own-task.md)"
        ) from None


def _register(path: Path, module: ModuleType) -> None:
    """Register the classes that a file defines; a faulty one is left out with a warning.

    Not private ones, nor bases without a name.
    """
    faults = []
    defined = [value for value in vars(module).values() if isinstance(value, type)]
    defined = [value for value in dict.fromkeys(defined) if value.__module__ == module.__name__]
    for new in defined:
        is_base = any(other is not new and issubclass(other, new) for other in defined)
        if new.__name__.startswith("_") or (is_base and "name" not in vars(new)):
            continue
        for kind in [kind for kind in KINDS.values() if issubclass(new, kind.base)]:
            try:
                register(kind, new, f"plugin {path}")
            except UsageError as error:
                faults.append(error)
    if not _registered(module.__name__):
        nothing = "has no task and no scheme: give a subclass of Task or Scheme a name"
        raise faults[0] if faults else UsageError(f"plugin {path} {nothing}")
    for fault in faults:
        warnings.warn(str(fault), AbcWarning, stacklevel=3)


def described(error: BaseException) -> str:
    """An error in a user's code in one line, with its place where that is in a plugin."""
    return blamed(error) or in_words(error)


def blamed(error: BaseException) -> str:
    """Where in a plugin an error was raised, in one line; empty if it was not in one."""
    for module, plugin in PLUGINS.items():
        if line := _line(error, str(plugin.path)) or _method_line(error, sys.modules[module]):
            return f"{plugin.path.name}, line {line}: {in_words(error)}"
    return ""


def _method_line(error: BaseException, module: ModuleType) -> int | None:
    """Where the method of a module begins that was called with other arguments than it takes."""
    called = re.match(r"(\w+)\.(\w+)\(\)", str(error))
    method = called and vars(getattr(module, called[1], object)).get(called[2])
    return method.__code__.co_firstlineno if isinstance(method, FunctionType) else None


def _line(error: BaseException, file: str) -> int | None:
    """The last line of a file that an error has passed through."""
    lines = [n for f, n in traceback.walk_tb(error.__traceback__) if f.f_code.co_filename == file]
    return lines[-1] if lines else None
