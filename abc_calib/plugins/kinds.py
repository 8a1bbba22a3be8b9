"""What a user's own class may be, the names that are taken, and what installed packages add."""

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
    """What a class may be: the ``base`` that it has, and where those of the kind are listed."""

    word: str
    base: type
    known: dict[str, Any]

    @property
    def installed(self) -> dict[str, EntryPoint]:
        """The entry points of installed packages, none of which is loaded here."""
        return {point.name: point for point in entry_points(group=f"abc_calib.{self.word}s")}


KINDS: dict[str, Kind] = {"task": Kind("task", Task, TASKS)}
"""By its word. Schemes are added where they are listed (``abc_calib.nn.positions``)."""
PACKAGES: dict[tuple[str, str], str] = {}
"""The packages of the entry points that were loaded, by word and name."""


def by_name(word: str, thing: Any) -> str:
    """The name of a task or a scheme; of a class, once it is registered under its own."""
    kind = KINDS[word]
    if isinstance(thing, str):
        return thing
    if not isinstance(thing, type) or not issubclass(thing, kind.base):
        raise UsageError(
            f"{shortened(repr(thing))} is not a {word}: give its name, or a subclass of "
            f"{kind.base.__name__}"
        )
    for name, known in kind.known.items():
        if known is thing:
            return name
    return register(kind, thing, f"class {thing.__name__}", again=True)


def options_by_name(options: Mapping[str, Any]) -> dict[str, Any]:
    """``options`` with the names of classes in their place, as in ``scheme=MyScheme``."""
    return {
        name: by_name("scheme", value) if isinstance(value, type) else value
        for name, value in options.items()
    }


def register(kind: Kind, one: type, where: str, again: bool = False) -> str:
    """List a class under its name; ``again``: in place of an earlier one of the user's."""
    name = vars(one).get("name")
    if not isinstance(name, str) or not name:
        raise UsageError(
            f"{where}: the {kind.word} {one.__name__} has no name of its own: write "
            f"name = {one.__name__.lower()!r} into the class"
        )
    if name in kind.known and not (again and not is_ours(kind.known[name])):
        raise UsageError(name_taken(kind, name, where))
    check(kind, name, one, where)
    kind.known[name] = one
    return name


def check(kind: Kind, name: Any, one: Any, where: str) -> None:
    """``UsageError`` for a class that cannot be used, or a name that is none."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise UsageError(
            f"{where}: {shortened(repr(name))} is not a name of a {kind.word}: use letters, digits "
            "and _ or -, at most 60, a letter first"
        )
    if not isinstance(one, type) or not issubclass(one, kind.base):
        raise UsageError(f"{where}: {name} is not a subclass of {kind.base.__name__}: make it one")
    missing = sorted(getattr(one, "__abstractmethods__", ()))
    for base in (k for k in getattr(one, "__mro__", ()) if "either" in vars(k)):
        if all(getattr(one, name) is getattr(base, name) for name in base.either):
            missing.append(" or ".join(base.either))
    if missing:
        raise UsageError(
            f"{where}: the {kind.word} {name} lacks {', '.join(missing)}: write "
            f"{'it' if len(missing) == 1 else 'them'}"
        )


def name_taken(kind: Kind, name: str, where: object) -> str:
    """What to say of a name that exists."""
    return f"{where}: there is a {kind.word} {name} already: choose another name"


def is_ours(one: Any, packages: Sequence[str] = OURS) -> bool:
    """Does a class stand in these packages (this program's), where it says that it does?"""
    module = getattr(one, "__module__", "")
    found = sys.modules.get(module)
    for name in getattr(one, "__qualname__", "").split("."):
        found = getattr(found, name, None)
    return found is one and module.partition(".")[0] in packages


def find(word: str, name: str) -> Any:
    """The class of that name, an installed package's too; ``UsageError`` names the known ones."""
    kind = KINDS[word]
    if name in kind.known:
        return kind.known[name]
    points = kind.installed
    if name not in points:
        raise UsageError(unknown(word, name, [*kind.known, *points]))
    point = points[name]
    package = f"{point.dist.name} {point.dist.version}" if point.dist else point.module
    try:
        one = point.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise UsageError(
            f"the {word} {name} of {package} does not import ({in_words(error)}): mend the package"
        ) from None
    check(kind, name, one, package)
    PACKAGES[word, name] = package
    kind.known[name] = one
    return one


def in_words(error: BaseException) -> str:
    """``ValueError: what it says``, on one line."""
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return shortened(" ".join(f"{type(error).__name__}: {text}".split()).rstrip(": "), 200)
