"""The terminal that a command writes to: closed, full, narrow, or without most characters."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterable

from rich.console import Console

from abc_calib.errors import UsageError
from cli.console import typed

NARROWEST, WIDEST = 20, 1000
"""Columns that a table is still drawn in."""


def prepare(*consoles: Console) -> None:
    """Let standard output and error take any text, and tables have a possible width."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by who started the program
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (open to the end)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    columns = os.environ.get("COLUMNS")
    if columns is None:
        for console in consoles:
            if not console.is_terminal:  # a file or a pipe: every row of a table is one line
                console.width = WIDEST
    if columns is None or (columns.isdecimal() and NARROWEST <= int(columns[:9]) <= WIDEST):
        return
    os.environ["COLUMNS"] = "80"
    for console in consoles:
        console.width = 80


def check_text(words: Iterable[str]) -> None:
    """``UsageError`` for a word whose bytes are not text, as the system encodes it."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{typed(word)} is not UTF-8: write names in that encoding") from None


def flush() -> str:
    """Write what waits for standard output; what to say if that is not possible."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python tries again when it ends
        return "" if error.errno == errno.EPIPE else unwritten(error)
    return ""


def unwritten(error: OSError) -> str:
    """What to say of a file that could not be used."""
    if error.filename is None:
        return f"the output cannot be written ({error.strerror}): send it elsewhere"
    named = typed(os.fsdecode(error.filename))
    return f"{named} cannot be used ({error.strerror}): name another file or folder"
