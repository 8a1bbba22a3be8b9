"""Where a command's words go: its result on stdout, remarks and errors in a line on stderr."""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import typer
from pydantic_core import to_json
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


def render(result: Result, form: str = "") -> None:
    """Print a result for a person, or as ``json``, ``latex`` or ``csv``."""
    if form == "json":
        typer.echo(to_json(result.data, inf_nan_mode="null"))
    elif form and result.table is None:
        raise AbcError("nothing was measured: there is no table to show")
    elif result.table is not None and form:
        show(result.table.latex() if form == "latex" else result.table.csv().rstrip())
    for part in () if form else result.shown:
        show(part)
    for remark in () if form == "json" else result.remarks:
        say(remark)
    if result.failed:
        raise typer.Exit(1)


def say(part: str | Table) -> None:
    """Write a remark to stderr, unless the command is to be quiet."""
    if part and not is_quiet():
        show(part, err)


def show(part: str | Table, console: Console | None = None) -> None:
    """Write text or a table; a terminal breaks text between words, so a path can be copied."""
    console = console or out
    if isinstance(part, Table):
        return show_table(part, console)
    for line in part.split("\n"):
        line = visible(line)
        if console.is_terminal:
            whole: Any = {"break_long_words": False, "break_on_hyphens": False}
            line = textwrap.fill(line, console.width, **whole)
        console.print(Text(line), soft_wrap=True)


def show_table(table: Table, console: Console) -> None:
    """Write the columns of a table that hold something, as wide as the terminal.

    Where it is narrow, a column ``run`` is folded before a word of the others is broken.
    """
    drawn = RichTable(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True, padding=(0, 1)
    )
    cells = [[Text(visible(table.text(cell))) for cell in row] for row in table.rows]
    full = [k for k in range(len(table.columns)) if not cells or any(row[k] for row in cells)]
    texts = {k: " ".join([table.columns[k], *(row[k].plain for row in cells)]) for k in full}
    words = {k: max(map(len, text.split()), default=0) for k, text in texts.items()}
    room = console.width - sum(words[k] + 2 for k in full if table.columns[k] != "run")
    for k in full:
        name = table.columns[k]
        side: Any = "right" if name in table.right else "left"
        most = max(room, 12) if name == "run" else None
        is_whole = most is not None and all(row[k].cell_len <= most for row in cells)
        drawn.add_column(
            Text(visible(name)), justify=side, overflow="fold", no_wrap=is_whole, max_width=most
        )
    for row in cells:
        drawn.add_row(*(row[k] for k in full))
    if table.title:
        console.print(Text(visible(table.title), style="bold"))
    console.print(drawn)
    if table.caption:
        show(table.caption, console)


def show_warning(other: Any, message: Any, category: type[Warning], *location: Any) -> None:
    """Write one line to stderr, also of a quiet command, if the warning is one of ours."""
    if issubclass(category, AbcWarning):
        show(f"warning: {message}", err)
    else:
        other(message, category, *location)


def say_error(message: str) -> None:
    """Write an error in one line."""
    line = re.sub(r"\S{400,}", lambda match: shortened(match[0]), visible(message))
    show(f"error: {shortened(line, LONGEST_LINE)}", err)


def typed(value: object) -> str:
    """Return a value as it would be typed in a shell, cut where it is long."""
    return shlex.quote(shortened(visible(str(value))))


def prepare() -> None:
    """Let standard output and error take any text, and files a row of a table in a line."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by who started the program
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (open to the end)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if len(os.environ.get("COLUMNS", "")) > 6:  # no terminal is so wide
        del os.environ["COLUMNS"]
    for console in (out, err):
        if not console.is_terminal:
            console.width = WIDEST
