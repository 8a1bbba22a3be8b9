"""How far a piece of work is: a bar in a terminal or notebook, lines elsewhere; on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from abc_calib.text import visible

err = Console(stderr=True)
_shown: ContextVar[bool | None] = ContextVar("shown", default=None)


class Update(Protocol):
    """``report`` marks what is worth a line where there is no bar."""

    def __call__(self, done: int, total: int, note: str = "", report: bool = False) -> None: ...


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


def is_live() -> bool:
    """Can a bar be drawn: is stderr a terminal, or this a notebook that has widgets?"""
    return err.is_terminal or (err.is_jupyter and find_spec("ipywidgets") is not None)


@contextmanager
def bar(
    title: str, show: bool | None, unit: str = "", ends_early: bool = False
) -> Iterator[Update]:
    """Show a bar with the time left, or a line now and then; give what updates it.

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


@contextmanager
def _drawn(title: str, unit: str, ends_early: bool) -> Iterator[Update]:
    """Draw title, bar, how much is done, the last message and the time left."""
    count = "{task.percentage:.0f}" if unit == "%" else "{task.completed}/{task.total}"
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(None, table_column=Column(max_width=30)),
        TextColumn(f"{count} {unit}", markup=False),
        TextColumn("{task.fields[note]}", markup=False),
        TextColumn("at most" if ends_early else "left"),
        TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True)),
    )
    with Progress(*columns, console=err) as drawn:
        task = drawn.add_task(visible(title), total=None, note="", visible=False)

        def update(done: int, total: int, note: str = "", report: bool = False) -> None:
            fields = {"note": visible(note)} if note else {}
            drawn.update(task, completed=done, total=total, visible=True, **fields)  # type: ignore[arg-type]

        yield update


@contextmanager
def training(
    title: str, show: bool | None, ends_early: bool = True
) -> Iterator[Callable[[Any], None]]:
    """Show the progress of a training; give its ``on_step`` (``training.trainer.Progress``)."""
    with bar(title, show, "steps", ends_early) as update:

        def on_step(done: Any) -> None:
            if done.accuracy is None:
                update(done.step, done.steps)
                return
            loss = "" if is_live() else f", loss {done.loss:.4f} after {done.seconds:.0f} s"
            update(done.step, done.steps, f"held-out {100 * done.accuracy:.1f} %{loss}", True)

        yield on_step
