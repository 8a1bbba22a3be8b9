"""Where a command's words go: its result on stdout, remarks and errors in a line on stderr."""

from __future__ import annotations

import json
import re
import shlex
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.text import Text

from abc_calib.errors import AbcError, AbcWarning, shortened
from abc_calib.progress import err, is_quiet
from abc_calib.text import Table, visible
from cli.tables import Fitted

out = Console()
LONGEST_LINE = 650
"""Characters of an error at most."""


class Sentence(str):
    """A line of words, which a terminal breaks between them; any other text stays as it is."""


@dataclass(frozen=True)
class Result:
    """What a command found.

    ``data``: the value that ``--json`` prints. ``shown``: what a person reads on stdout instead,
    text and tables. ``remarks``: what stderr says about it then. ``table``: what ``--latex`` and
    ``--csv`` print. ``failed``: the command ends with code 1 all the same.
    """

    data: Any
    shown: Sequence[str | Table] = ()
    remarks: Sequence[str] = ()
    table: Table | None = None
    failed: bool = False


_form: ContextVar[str] = ContextVar("form", default="")
_plugins: ContextVar[Sequence[str]] = ContextVar("plugins", default=())
NEXT = re.compile(
    r"(?<=: )abc (?:train|calibrate|retrain|eval|certify|verify|stress|predict|export)\b.*$"
)
"""A command to type next, where a message ends with one."""


@contextmanager
def printing(form: str, plugins: Sequence[str] = ()) -> Iterator[None]:
    """Results are printed for a person meanwhile, or as ``json``, ``latex`` or ``csv``.

    Commands that messages end with need the same ``plugins``.
    """
    tokens = _form.set(form), _plugins.set(plugins)
    try:
        yield
    finally:
        _form.reset(tokens[0])
        _plugins.reset(tokens[1])


def _complete(message: str) -> str:
    """A message, with the plugins that a command at its end needs."""
    more = "".join(f" --plugin {shlex.quote(one)}" for one in _plugins.get())
    return NEXT.sub(lambda found: found[0] + more, message) if more else message


def show_early(*parts: str | Table) -> None:
    """Parts of a result that a person is to see before the work is done."""
    if not _form.get():
        for part in parts:
            show(part)


def render(result: Result) -> None:
    """Print a result in the form that was asked for."""
    form = _form.get()
    if form == "json":
        sys.stdout.write(json.dumps(result.data) + "\n")
    elif form:
        if result.table is None:
            raise AbcError("nothing was measured: there is no table to show")
        tell((result.table.latex() if form == "latex" else result.table.csv()).rstrip())
    else:
        for part in result.shown:
            show(part)
    for remark in result.remarks if form != "json" else ():
        say(remark)
    if result.failed:
        raise typer.Exit(1)


def show(part: str | Table) -> None:
    """A part of a result on stdout."""
    if isinstance(part, Table):
        out.print(Fitted(part))
    else:
        tell(wrapped(visible(part), out) if isinstance(part, Sentence) else part)


def tell(text: str) -> None:
    """Text on stdout, line by line."""
    typer.echo("\n".join(map(visible, text.split("\n"))))


def say(message: str) -> None:
    """A remark on stderr, if there is one and the command is not to be quiet."""
    if message and not is_quiet():
        _say(message)


def _say(message: str) -> None:
    err.print(Text(wrapped(visible(_complete(message)), err)), soft_wrap=True)


def show_warning(other: Any, message: Any, category: type[Warning], *more: Any) -> None:
    """One line on stderr, also of a quiet command, where it is one of ours."""
    if issubclass(category, AbcWarning):
        _say(f"warning: {message}")
    else:
        other(message, category, *more)


def fail(message: str, code: int) -> NoReturn:
    """Print an error in one line and leave."""
    raise typer.Exit(say_error(message, code))


def say_error(message: str, code: int) -> int:
    """An error in one line; gives the exit code."""
    line = re.sub(r"\S{400,}", lambda found: shortened(found[0]), visible(_complete(message)))
    text = Text(wrapped(f"error: {shortened(line, LONGEST_LINE)}", err))
    text.stylize("bold red", 0, len("error:"))
    err.print(text, soft_wrap=True)
    return code


def typed(value: object) -> str:
    """A value as it would be typed in a shell, cut where it is long."""
    return shlex.quote(shortened(visible(str(value))))


def wrapped(text: str, console: Console) -> str:
    """Lines that fit a terminal, each word whole: a path or a number can be copied. Else one."""
    if not console.is_terminal:
        return text
    indent = " " * (len(text) - len(text.lstrip()))
    look: Any = {"initial_indent": indent, "subsequent_indent": 2 * indent}
    look |= {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.fill(text.lstrip(), console.width, **look)
