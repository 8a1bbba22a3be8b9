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
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from abc_calib.text import visible

err = Console(stderr=True)
BAR = 30
"""Characters of a bar at most."""
NARROW = 115
"""Columns of a terminal below which a bar shows only what is essential."""
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


class Left(TimeRemainingColumn):
    """The time left, or the most that may be left of work that can end early."""

    def render(self, task: Task) -> Text:
        left = super().render(task).plain
        if task.finished or "-" in left:
            return Text("")
        left = left.removeprefix("0") + " left"
        if not task.fields["ends_early"]:
            return Text(left)
        return Text(f"at most {left}" + ("" if err.width < NARROW else ", may stop earlier"))


@contextmanager
def bar(
    title: str, show: bool | None, unit: str = "", ends_early: bool = False
) -> Iterator[Update]:
    """A bar with the time left, or a line now and then; gives what tells it how much is done.

    ``show``: None is what ``showing`` says; else a bar in a terminal or notebook, and nothing
    elsewhere. ``ends_early``: the work may end before all of it is done.
    """
    show = _shown.get() if show is None else show
    if show is None:
        show = err.is_terminal or err.is_jupyter
    if show and is_live():
        with _drawn(title, unit, ends_early) as update:
            yield update
        return

    def line(done: int, total: int, note: str = "", report: bool = False) -> None:
        if show and report:
            err.print(Text(visible(f"{title} {done}/{total} {note}")), soft_wrap=True)

    yield line


def _bar(unit: str) -> Progress:
    """Title, bar, how much is done, the last message, the time that it took and takes."""
    count = "{task.percentage:.0f}" if unit == "%" else "{task.completed}/{task.total}"
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(None, table_column=Column(max_width=BAR)),
        TextColumn(f"{count} {unit}"),
        TextColumn("{task.fields[note]}", markup=False),
        *([] if err.width < NARROW else [TimeElapsedColumn(Column(no_wrap=True))]),
        Left(compact=True, table_column=Column(no_wrap=True)),
        console=err,
    )


@contextmanager
def _drawn(title: str, unit: str, ends_early: bool) -> Iterator[Update]:
    with _bar(unit) as drawn:
        task = drawn.add_task(visible(title), total=None, note="", ends_early=ends_early)

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
def training(
    title: str, show: bool | None, ends_early: bool = True
) -> Iterator[Callable[[Any], None]]:
    """The progress of a training, as its ``on_step`` callback (``training.trainer.Progress``)."""
    with bar(title, show, "steps", ends_early) as update:

        def on_step(done: Any) -> None:
            if done.accuracy is None:
                update(done.step, done.steps)
                return
            seconds = "" if is_live() else f" after {done.seconds:.0f} s"
            loss = "" if is_live() and err.width < NARROW else f", loss {done.loss:.4f}"
            note = f"held-out {100 * done.accuracy:.1f} %{loss}{seconds}"
            update(done.step, done.steps, note, True)

        yield on_step
