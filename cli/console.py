"""Where a command's words go: its result on stdout, remarks and errors in a line on stderr."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import re
import shlex
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NoReturn

import typer
from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from abc_calib.errors import AbcError, AbcWarning, shortened
from abc_calib.progress import err, is_quiet
from abc_calib.text import Table, visible

out = Console()
LONGEST_LINE = 650
"""Characters of an error at most."""
WIDEST = 1000
"""Columns of a file or a pipe: every row of a table is one line."""


class Sentence(str):
    """A line of words, which a terminal breaks between them; any other text stays as it is."""


@dataclass(frozen=True)
class Result:
    """What a command returns.

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
    """Print results for a person meanwhile, or as ``json``, ``latex`` or ``csv``.

    Commands that messages end with need the same ``plugins``.
    """
    tokens = _form.set(form), _plugins.set(plugins)
    try:
        yield
    finally:
        _form.reset(tokens[0])
        _plugins.reset(tokens[1])


def _complete(message: str) -> str:
    """Return a message, with the plugins that a command at its end needs."""
    flags = "".join(f" --plugin {shlex.quote(file)}" for file in _plugins.get())
    return NEXT.sub(lambda match: match[0] + flags, message) if flags else message


def show_early(*parts: str | Table) -> None:
    """Show parts of a result that a person is to see before the work is done."""
    if not _form.get():
        for part in parts:
            show(part)


def render(result: Result) -> None:
    """Print a result in the form that was asked for."""
    form = _form.get()
    if form == "json":
        sys.stdout.write(json.dumps(_numbers(result.data), allow_nan=False) + "\n")
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


def _numbers(data: Any) -> Any:
    """Return data with None in place of numbers that JSON does not have."""
    if isinstance(data, Mapping):
        return {name: _numbers(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [_numbers(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def show(part: str | Table) -> None:
    """Show a part of a result on stdout."""
    if isinstance(part, Table):
        show_table(part)
    elif isinstance(part, Sentence):
        print_line(visible(part), out)
    else:
        tell(part)


def show_table(table: Table) -> None:
    """Show a table as wide as the terminal; longer cells go on in the next line."""
    if table.title:
        out.print(Text(visible(table.title), style="bold"))
    drawn = RichTable(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True, padding=(0, 1)
    )
    for name in table.columns:
        side: Any = "right" if name in table.right else "left"
        drawn.add_column(Text(visible(name)), justify=side, overflow="fold")
    for row in table.rows:
        cells = (table.text(cell).split("\n") for cell in row)
        drawn.add_row(*(Text("\n".join(map(visible, lines))) for lines in cells))
    out.print(drawn)
    if table.caption:
        out.print(Text(visible(table.caption)))


def tell(text: str) -> None:
    """Write text to stdout, line by line."""
    typer.echo("\n".join(map(visible, text.split("\n"))))


def say(message: str) -> None:
    """Write a remark to stderr, if there is one and the command is not to be quiet."""
    if message and not is_quiet():
        _say(message)


def _say(message: str) -> None:
    print_line(visible(_complete(message)), err)


def show_warning(other: Any, message: Any, category: type[Warning], *location: Any) -> None:
    """Write one line to stderr, also of a quiet command, if the warning is one of ours."""
    if issubclass(category, AbcWarning):
        _say(f"warning: {message}")
    else:
        other(message, category, *location)


def fail(message: str, code: int) -> NoReturn:
    """Print an error in one line and leave."""
    raise typer.Exit(say_error(message, code))


def say_error(message: str, code: int) -> int:
    """Print an error in one line; return the exit code."""
    line = re.sub(r"\S{400,}", lambda match: shortened(match[0]), visible(_complete(message)))
    print_line(f"error: {shortened(line, LONGEST_LINE)}", err)
    return code


def typed(value: object) -> str:
    """Return a value as it would be typed in a shell, cut where it is long."""
    return shlex.quote(shortened(visible(str(value))))


def print_line(text: str, console: Console) -> None:
    """Print a line; a terminal breaks it between words, each whole: a path can be copied."""
    if console.is_terminal:
        indent = " " * (len(text) - len(text.lstrip()))
        text = textwrap.fill(
            text.lstrip(),
            console.width,
            initial_indent=indent,
            subsequent_indent=2 * indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    line = Text(text)
    if text.startswith("error:"):
        line.stylize("bold red", 0, len("error:"))
    console.print(line, soft_wrap=True)


# The streams that a command writes to: closed, full, or without most characters


def prepare() -> None:
    """Let standard output and error take any text, and tables have a possible width."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by who started the program
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (open to the end)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    columns = os.environ.get("COLUMNS")
    if columns is not None and not re.fullmatch("[2-9][0-9]|[1-9][0-9]{2}", columns):
        columns = os.environ["COLUMNS"] = "80"
    for console in (out, err):
        if not console.is_terminal:
            console.width = WIDEST
        elif columns is not None:
            console.width = int(columns)


def flush() -> str:
    """Write what waits for standard output; return what to say if that is not possible."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python tries again when it ends
        return "" if error.errno == errno.EPIPE else unwritten(error)
    return ""


def unwritten(error: OSError) -> str:
    """Return what to say of a file that could not be used."""
    if error.filename is None:
        return f"the output cannot be written ({error.strerror}): send it elsewhere"
    name = typed(os.fsdecode(error.filename))
    return f"{name} cannot be used ({error.strerror}): name another file or folder"
