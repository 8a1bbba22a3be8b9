"""How far a piece of work is: a bar in a terminal or notebook, lines elsewhere; on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from typing import Protocol

from rich.console import Console
from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task
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


class Line(ProgressColumn):
    """All of a bar in one line that fits the terminal.

    What is measured is never cut: the bar and then the title are shortened.
    """

    def __init__(self, unit: str):
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        return Text(fitted(task, self.unit, err.width - 1), no_wrap=True)


def fitted(task: Task, unit: str, width: int) -> str:
    """The line of a task, of at most ``width`` characters if that is possible."""
    if task.total is None:  # nobody knows yet how much there is to do
        known = [task.description, task.fields["note"], clock(task.elapsed or 0)]
        return "  ".join(filter(None, known))[:width]
    total = task.total
    count = f"{100 * task.completed / total:.0f} %" if unit == "%" and total else ""
    count = count or f"{task.completed:.0f}/{total:.0f} {unit}".rstrip()
    left = "" if task.time_remaining is None else f"{clock(task.time_remaining)} left"
    parts = [count, task.fields["note"], clock(task.elapsed or 0), left]
    for spare in (2, 1, 3):  # what is left out first where there is no room
        if len("  ".join(filter(None, parts))) > width:
            parts[spare] = ""
    rest = "  ".join(filter(None, parts))
    room = width - len(rest) - 2
    title = task.description if len(task.description) <= room else task.description[: max(room, 0)]
    cells = min(room - len(title) - 2, BAR)
    if cells < 4:
        return "  ".join(filter(None, [title.rstrip(), rest]))[:width]
    full = int(cells * min(task.completed / total, 1)) if total else 0
    return f"{title}  {chr(0x2501) * full}{chr(0x2500) * (cells - full)}  {rest}"


def clock(seconds: float) -> str:
    """``1:02:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextmanager
def _drawn(title: str, unit: str) -> Iterator[Update]:
    with Progress(Line(unit), console=err) as drawn:
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
    with Progress(SpinnerColumn(), Line(""), console=err, transient=True) as drawn:
        drawn.add_task(visible(title), total=None, note="")
        yield


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
