"""How far a piece of work is: a bar in a terminal or notebook, lines elsewhere; on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from typing import Any, Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from abc_calib.text import visible

err = Console(stderr=True)
BAR = 30
"""Characters of a bar at most."""
_shown: ContextVar[bool | None] = ContextVar("shown", default=None)


@contextmanager
def showing(show: bool) -> Iterator[None]:
    """Show progress meanwhile, or none, where the work itself does not say."""
    token = _shown.set(show)
    try:
        yield
    finally:
        _shown.reset(token)


def is_quiet() -> bool:
    """Is nothing to be shown but results and errors?"""
    return _shown.get() is False


class Update(Protocol):
    """``report`` marks what is worth a line where there is no bar."""

    def __call__(self, done: int, total: int, note: str = "", report: bool = False) -> None: ...


def is_live() -> bool:
    """Can a bar be drawn: is stderr a terminal, or this a notebook that has widgets?"""
    return err.is_terminal or (err.is_jupyter and find_spec("ipywidgets") is not None)


@contextmanager
def bar(title: str, show: bool | None, unit: str = "") -> Iterator[Update]:
    """A bar with the time left, or a line now and then; gives what tells it how much is done.

    ``show``: None is what ``showing`` says; else a bar in a terminal or notebook, and nothing
    elsewhere.
    """
    show = _shown.get() if show is None else show
    if show is None:
        show = err.is_terminal or err.is_jupyter
    if show and is_live():
        with _drawn(title, unit) as update:
            yield update
        return

    def line(done: int, total: int, note: str = "", report: bool = False) -> None:
        if show and report:
            err.print(Text(visible(f"{title} {done}/{total} {note}")), soft_wrap=True)

    yield line


def _bar(unit: str) -> Progress:
    """Title, bar, how much is done, what was told last, the time that it took and takes."""
    count = "{task.percentage:.0f}" if unit == "%" else "{task.completed}/{task.total}"
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(BAR),
        TextColumn(f"{count} {unit}"),
        TextColumn("{task.fields[note]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=err,
    )


@contextmanager
def _drawn(title: str, unit: str) -> Iterator[Update]:
    with _bar(unit) as drawn:
        task = drawn.add_task(visible(title), total=None, note="")

        def update(done: int, total: int, note: str = "", report: bool = False) -> None:
            fields = {"note": visible(note)} if note else {}
            drawn.update(task, completed=done, total=total, **fields)  # type: ignore[arg-type]

        yield update


@contextmanager
def busy(title: str, show: bool | None) -> Iterator[None]:
    """That something without steps is being done, in a terminal; nothing elsewhere."""
    show = _shown.get() if show is None else show
    if show is False or not err.is_terminal:
        yield
        return
    with err.status(Text(visible(title))):
        yield


@contextmanager
def training(title: str, show: bool | None) -> Iterator[Callable[[Any], None]]:
    """The progress of a training, as its ``on_step`` callback (``training.trainer.Progress``)."""
    with bar(title, show, "steps") as update:

        def on_step(done: Any) -> None:
            if done.accuracy is None:
                update(done.step, done.steps)
                return
            seconds = "" if is_live() else f" after {done.seconds:.0f} s"
            note = f"held-out {100 * done.accuracy:.1f} %, loss {done.loss:.4f}{seconds}"
            update(done.step, done.steps, note, True)

        yield on_step
