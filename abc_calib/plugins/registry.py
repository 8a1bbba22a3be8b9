"""Registries of tasks and schemes: names, installed packages, and what a class needs.

Schemes register their kind when ``abc_calib.nn.positions`` is imported.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from abc_calib.errors import UsageError, shortened
from tasks import TASKS, Task
from tasks.base import unknown

OURS = ("abc_calib", "tasks")
"""Packages whose classes need no file."""
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,59}")


@dataclass(frozen=True)
class Kind:
    """A registry: the ``base`` that each class derives from, and the classes by name."""

    word: str
    base: type
    classes: dict[str, Any]

    @property
    def installed(self) -> dict[str, EntryPoint]:
        """The entry points of installed packages, none of which is loaded here."""
        return {point.name: point for point in entry_points(group=f"abc_calib.{self.word}s")}


KINDS: dict[str, Kind] = {"task": Kind("task", Task, TASKS)}
PACKAGES: dict[type, str] = {}
"""The package, with its version, of each class that came from an entry point."""


def by_name(word: str, value: Any) -> str:
    """Return the name of a task or a scheme, given by name or as a class, which is registered."""
    kind = KINDS[word]
    if isinstance(value, str):
        return value
    names = [name for name, registered in kind.classes.items() if registered is value]
    return names[0] if names else register(kind, value, "in Python", replace=True)


def options_by_name(options: Mapping[str, Any]) -> dict[str, Any]:
    """Replace classes among options by their names, as in ``scheme=MyScheme``."""
    return {
        name: by_name("scheme", value) if isinstance(value, type) else value
        for name, value in options.items()
    }


def register(kind: Kind, new: Any, where: str, name: Any = None, replace: bool = False) -> str:
    """Put a class into a registry, by default under its own name; ``UsageError`` says why not.

    ``replace``: in place of an earlier one of the user's.
    """
    if not isinstance(new, type) or not issubclass(new, kind.base):
        raise UsageError(
            f"{where}: {shortened(repr(new))} is not a {kind.word}: give its name, or a subclass "
            f"of {kind.base.__name__}"
        )
    if not (name := name or vars(new).get("name")):
        raise UsageError(
            f"{where}: the {kind.word} {new.__name__} has no name of its own: write "
            f"name = {new.__name__.lower()!r} into the class"
        )
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise UsageError(
            f"{where}: {shortened(repr(name))} is not a name of a {kind.word}: use letters, digits "
            "and _ or -, at most 60, a letter first"
        )
    if name in kind.classes and not (replace and not is_ours(kind.classes[name])):
        raise UsageError(f"{where}: there is a {kind.word} {name} already: choose another name")
    missing = sorted(getattr(new, "__abstractmethods__", ()))
    for base in [base for base in new.__mro__ if "either" in vars(base)]:
        either = vars(base)["either"]
        if all(getattr(new, method) is getattr(base, method) for method in either):
            missing.append(" or ".join(either))
    if missing:
        raise UsageError(
            f"{where}: the {kind.word} {name} lacks {', '.join(missing)}: write "
            f"{'it' if len(missing) == 1 else 'them'}"
        )
    kind.classes[name] = new
    sys.set_int_max_str_digits(0)  # its code may take numbers of any length with int()
    return name


def is_ours(registered: Any, packages: Sequence[str] = OURS) -> bool:
    """Does a class stand in these packages (this program's), where it says that it does?"""
    module = getattr(registered, "__module__", "")
    value = sys.modules.get(module)
    for name in getattr(registered, "__qualname__", "").split("."):
        value = getattr(value, name, None)
    return value is registered and module.partition(".")[0] in packages


def find(word: str, name: str) -> Any:
    """The class of that name, an installed package's too; ``UsageError`` lists the names."""
    kind = KINDS[word]
    if name in kind.classes:
        return kind.classes[name]
    points = kind.installed
    if name not in points:
        advice = "one of your own comes with --plugin FILE.py"
        if word == "task" and name in getattr(KINDS.get("scheme"), "classes", ()):
            raise UsageError(f"{name} is a position scheme, not a task: --scheme {name}")
        raise UsageError(unknown(word, name, [*kind.classes, *points], advice))
    point = points[name]
    package = f"{point.dist.name} {point.dist.version}" if point.dist else point.module
    try:
        new = point.load()
    except Exception as error:
        raise UsageError(
            f"the {word} {name} of {package} does not import ({in_words(error)}): mend the package"
        ) from None
    register(kind, new, package, name)
    PACKAGES[new] = package
    return new


def in_words(error: BaseException) -> str:
    """``ValueError: what it says``, on one line, with the notes that it has."""
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    sentence = shortened(" ".join(f"{type(error).__name__}: {text}".split()).rstrip(": "), 200)
    return ", ".join([sentence, *getattr(error, "__notes__", ())])
