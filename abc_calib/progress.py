"""How far a piece of work is: a bar in a terminal or notebook, lines elsewhere; on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Protocol

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

from abc_calib.text import visible

err = Console(stderr=True)


class Step(Protocol):
    """What a training tells after each step."""

    @property
    def step(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def loss(self) -> float: ...
    @property
    def accuracy(self) -> float | None: ...
    @property
    def seconds(self) -> float: ...


class Update(Protocol):
    """``report`` marks what is worth a line where there is no bar."""

    def __call__(self, done: int, total: int, note: str = "", report: bool = False) -> None: ...


def is_live() -> bool:
    """Can a bar be drawn: is stderr a terminal, or this a notebook that has widgets?"""
    return err.is_terminal or (err.is_jupyter and find_spec("ipywidgets") is not None)


@contextmanager
def bar(title: str, show: bool | None, unit: str = "") -> Iterator[Update]:
    """A bar with the time left, or a line now and then; gives what tells it how much is done.

    ``show``: None is a bar in a terminal or notebook, and nothing elsewhere.
    """
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


@contextmanager
def _drawn(title: str, unit: str) -> Iterator[Update]:
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TextColumn("{task.fields[note]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err) as drawn:
        task = drawn.add_task(visible(title), total=None, note="")

        def update(done: int, total: int, note: str = "", report: bool = False) -> None:
            fields = {"note": visible(note)} if note else {}
            drawn.update(task, completed=done, total=total, **fields)  # type: ignore[arg-type]

        yield update


@contextmanager
def training(title: str, show: bool | None) -> Iterator[Callable[[Step], None]]:
    """The progress of a training, as its ``on_step`` callback."""
    with bar(title, show, "steps") as update:

        def on_step(done: Step) -> None:
            if done.accuracy is None:
                update(done.step, done.steps)
                return
            seconds = "" if is_live() else f" after {done.seconds:.0f} s"
            note = f"held-out {100 * done.accuracy:.1f} %, loss {done.loss:.4f}{seconds}"
            update(done.step, done.steps, note, True)

        yield on_step
