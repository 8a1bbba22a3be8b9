"""What all commands share: progress on stderr, results on stdout, one clear line for errors."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

out = Console()
err = Console(stderr=True)

F = TypeVar("F", bound=Callable[..., Any])


def command(function: F) -> F:
    """Turn expected errors into one line on stderr: exit code 2 for usage, 1 for failure."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        from abc_calib.errors import AbcError, Interrupted, UsageError
        from tasks import TaskError

        try:
            return function(*args, **kwargs)
        except (UsageError, TaskError) as error:
            fail(str(error), 2)
        except Interrupted as error:
            fail(str(error), 130)
        except AbcError as error:
            fail(str(error), 1)
        except MemoryError:
            fail("out of memory: use shorter lengths or fewer samples", 1)
        except RuntimeError as error:
            if "allocate memory" not in str(error) and "out of memory" not in str(error):
                raise
            fail("out of memory: use shorter lengths or fewer samples", 1)
        except KeyboardInterrupt:
            fail("stopped", 130)

    return wrapped  # type: ignore[return-value]


def fail(message: str, code: int) -> None:
    """Print one line and leave."""
    line = Text.assemble(("error:", "bold red"), " ", " ".join(message.split()))
    err.print(line, soft_wrap=True)
    raise typer.Exit(code)


def say(message: str, quiet: bool = False) -> None:
    """A remark on stderr, if there is one."""
    if message and not quiet:
        err.print(Text(message), soft_wrap=True)


def print_json(data: Any) -> None:
    """The result, and nothing else, on stdout."""
    sys.stdout.write(json.dumps(data) + "\n")


def set_threads(threads: int | None, training: bool = False) -> None:
    """How many threads torch may use; unless told, one for training.

    The weights that a seed gives depend on their number, so the machine must not choose it; and
    small steps gain little from a second one, but wait for it long where other work is running.
    """
    if threads is None and training:
        threads = 1
    if threads is not None:
        import torch

        from abc_calib.errors import UsageError

        if threads < 1:
            raise UsageError(f"--threads {threads} is not possible: give 1 or more")
        torch.set_num_threads(threads)


@contextmanager
def progress(title: str, total: int, quiet: bool, unit: str = "") -> Iterator[Callable[..., None]]:
    """A live bar with the time left; where stderr is no terminal, a line now and then.

    Gives a function ``update(done, note, report)``: ``report`` marks what is worth a line.
    """
    if quiet:
        yield lambda *_: None
        return
    if not err.is_terminal:

        def line(done: int, note: str = "", report: bool = False) -> None:
            if report:
                err.print(f"{title} {done}/{total} {note}", soft_wrap=True, highlight=False)

        yield line
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err) as bar:
        task = bar.add_task(title, total=total, note="")
        kept = [""]

        def update(done: int, note: str = "", report: bool = False) -> None:
            kept[0] = note or kept[0]
            bar.update(task, completed=done, note=kept[0])

        yield update


@contextmanager
def training_progress(title: str, steps: int, quiet: bool) -> Iterator[Callable[[Any], None]]:
    """The progress of a training, as its ``on_step`` callback."""
    with progress(title, steps, quiet, "steps") as update:

        def on_step(done: Any) -> None:
            if done.accuracy is None:
                update(done.step)
                return
            seconds = f" after {done.seconds:.0f} s" if not err.is_terminal else ""
            note = f"held-out {100 * done.accuracy:.1f} %, loss {done.loss:.4f}{seconds}"
            update(done.step, note, True)

        yield on_step
