"""What all commands share: results on stdout, remarks on stderr, one clear line for errors."""

from __future__ import annotations

import functools
import inspect
import json
import os
import re
import shlex
import sys
import textwrap
import warnings
from collections.abc import Callable, Collection, Iterable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar, get_type_hints

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from abc_calib.errors import AbcError, AbcWarning, Interrupted, UsageError, shortened
from abc_calib.launch import shadowed
from abc_calib.progress import busy, err
from abc_calib.stopping import like_interrupts
from abc_calib.text import visible
from cli import terminal

out = Console()
LONGEST_LINE = 650
"""Characters of an error at most."""
NO_MEMORY = "out of memory: use shorter lengths or fewer samples"

KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY
Plugin = Annotated[
    list[str] | None,
    typer.Option(
        help="A file of Python with tasks or schemes of your own; may be given several times.",
        metavar="<FILE.py>",
    ),
]

F = TypeVar("F", bound=Callable[..., Any])


def command(function: F, loads: str = "torch") -> F:
    """Turn expected errors into one line on stderr: exit code 2 for usage, 1 for failure.

    And give it ``--plugin``: files that are executed before anything else is done. What it
    ``loads`` may take seconds, which a terminal is told of.
    """

    @functools.wraps(function)
    def wrapped(*args: Any, plugin: list[str] | None = None, **kwargs: Any) -> Any:
        from tasks import TaskError

        try:
            with like_interrupts(), warnings.catch_warnings():
                warnings.showwarning = functools.partial(show_warning, warnings.showwarning)
                load(loads, not kwargs.get("quiet"))
                load_plugins(plugin or [])
                return function(*args, **kwargs)
        except (UsageError, TaskError) as error:
            fail(str(error), 2)
        except AbcError as error:
            fail(str(error), 130 if isinstance(error, Interrupted) else 1)
        except BrokenPipeError:
            raise
        except OSError as error:
            fail(terminal.unwritten(error), 1)
        except UnicodeError as error:
            fail(f"{error}: a file or a name in it is not UTF-8", 1)
        except Exception as error:
            if is_memory(error):
                fail(NO_MEMORY, 1)
            if place := in_plugin(error):
                fail(place, 1)
            raise
        except KeyboardInterrupt:
            fail("stopped", 130)

    hints = get_type_hints(function, include_extras=True)
    mine = [
        parameter.replace(annotation=hints[parameter.name])
        for parameter in inspect.signature(function).parameters.values()
    ]
    mine.append(inspect.Parameter("plugin", KEYWORD_ONLY, default=None, annotation=Plugin))
    wrapped.__signature__ = inspect.Signature(mine)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in mine}
    return wrapped  # type: ignore[return-value]


def light(function: F) -> F:
    """A command that needs no model, and nothing that takes long to load."""
    return command(function, loads="")


def load(module: str, show: bool) -> None:
    """Import what a command is going to need, and say so in a terminal."""
    if module and module not in sys.modules and err.is_terminal:
        with busy("loading", show):
            import_module(module)


def load_plugins(files: list[str]) -> None:
    """Execute the files that ``--plugin`` names."""
    if files:
        from abc_calib.stages import load_plugin

        for file in files:
            load_plugin(file)


def in_plugin(error: Exception) -> str:
    """Where in a plugin it was raised, if any is loaded."""
    plugins = sys.modules.get("abc_calib.plugins")
    return plugins.blamed(error) if plugins else ""


def is_memory(error: Exception) -> bool:
    """Did the memory run out, in the words of Python or torch?"""
    words = ("out of memory", "allocate memory")
    told = isinstance(error, RuntimeError) and any(word in str(error) for word in words)
    return isinstance(error, MemoryError) or told


class OneLine(TyperGroup):
    """The group of commands; what its parser refuses is one line, as every other error is."""

    def main(self, *args: Any, **extra: Any) -> Any:
        if not extra.get("standalone_mode", True):
            return super().main(*args, **extra)
        terminal.prepare(out, err)
        try:
            if hidden := shadowed():
                raise AbcError(hidden)
            terminal.check_text([*sys.argv[1:], os.environ.get("ABC_RUNS", "")])
            code = super().main(*args, **{**extra, "standalone_mode": False})
        except AbcError as error:
            code = _say_error(str(error), 2 if isinstance(error, UsageError) else 1)
        except typer.Abort:
            code = _say_error("stopped", 130)
        except OSError as error:
            code = _say_error(terminal.unwritten(error), 1)
        except Exception as error:
            message = getattr(error, "format_message", None)
            if message is None:
                raise
            code = _refuse(error, message())
        if (lost := terminal.flush()) and not code:
            code = _say_error(lost, 1)
        sys.exit(code if isinstance(code, int) else 0)


def _refuse(error: Any, message: str) -> int:
    """What Typer's parser does not take, in a line; the help where nothing was asked."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "abc COMMAND"
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return 2
    message = message.removesuffix(".").replace("\n", " ")
    if not re.search(r"[Dd]id you mean|\bchoose\b", message):
        message += f": {path} --help shows what there is"
    return _say_error(message[:1].lower() + message[1:], 2)


def fail(message: str, code: int) -> NoReturn:
    """Print one line and leave."""
    raise typer.Exit(_say_error(message, code))


def _say_error(message: str, code: int) -> int:
    line = re.sub(r"\S{400,}", lambda found: shortened(found[0]), visible(message))
    text = Text(wrapped(f"error: {shortened(line, LONGEST_LINE)}", err))
    text.stylize("bold red", 0, len("error:"))
    err.print(text, soft_wrap=True)
    return code


def typed(value: object) -> str:
    """A value as it would be typed in a shell, cut where it is long."""
    return shlex.quote(shortened(visible(str(value))))


def show_warning(other: Any, message: Any, category: type[Warning], *more: Any) -> None:
    """One line on stderr, where it is one of ours."""
    if issubclass(category, AbcWarning):
        say(f"warning: {message}")
    else:
        other(message, category, *more)


def say(message: str, quiet: bool = False) -> None:
    """A remark on stderr, if there is one."""
    if message and not quiet:
        err.print(Text(wrapped(visible(message), err)), soft_wrap=True)


def tell(text: str) -> None:
    """A result on stdout, line by line."""
    typer.echo("\n".join(map(visible, text.split("\n"))))


def tell_sentence(text: str) -> None:
    """A result in words on stdout, broken between them where it is a terminal."""
    typer.echo(wrapped(visible(text), out))


def wrapped(text: str, console: Console) -> str:
    """Lines that fit a terminal, each word whole: a path or a number can be copied. Else one."""
    if not console.is_terminal:
        return text
    indent = " " * (len(text) - len(text.lstrip()))
    look: Any = {"initial_indent": indent, "subsequent_indent": 2 * indent}
    look |= {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.fill(text.lstrip(), console.width, **look)


def print_table(
    columns: Iterable[str],
    rows: Iterable[Iterable[object]],
    right: Collection[str] = (),
    whole: Collection[str] | None = None,
    **more: str,
) -> None:
    """A table on stdout, with a ``title`` or ``caption``: None is an empty cell.

    As ``Lines``; the first column is kept whole unless others are named.
    """
    from cli.tables import Lines

    names = list(columns)
    cells = [["" if cell is None else visible(str(cell)) for cell in row] for row in rows]
    out.print(Lines(names, cells, right, names[:1] if whole is None else whole, **more))


def show_files(run: object, files: Iterable[Path], as_json: bool, **more: object) -> None:
    """The files that were written for a run, a line each or as JSON with ``more`` about them."""
    if as_json:
        print_json({"run": str(run), **more, "files": [str(path) for path in files]})
        return
    for path in files:
        tell(str(path))


def print_json(data: Any) -> None:
    """The result, and nothing else, on stdout."""
    sys.stdout.write(json.dumps(data) + "\n")


def set_threads(threads: int | None, in_parts: bool = False) -> None:
    """How many threads torch may use; unless told one, or for work in parts those that are free.

    The weights that a seed gives depend on their number, so the machine must not choose it; and
    small steps gain little from a second one, but wait for it long where other work is running.
    """
    import torch

    from abc_calib.evaluation.parts import free_processors

    torch.set_num_threads(threads or (free_processors() if in_parts else 1))
