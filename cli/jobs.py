"""The live table of a sweep's jobs, on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.live import Live

from abc_calib.errors import shortened
from abc_calib.progress import clock, err, is_quiet
from abc_calib.text import Table
from cli.console import say
from cli.tables import Fitted

if TYPE_CHECKING:
    from abc_calib.sweeps import Outcome, Progress

WORDS = {
    "kept": "complete already",
    "done": "done",
    "failed": "FAILED",
    "blocked": "left out",
    "missing": "not started",
}
LAST_LINE = 60
"""Characters that are shown of what a job said last."""


@contextmanager
def jobs_progress() -> Iterator[Callable[[Progress, Outcome | None], None]]:
    """What ``run_jobs`` calls: a live table, or a line a job where stderr is no terminal."""
    if is_quiet():
        yield lambda *_: None
        return
    if not err.is_terminal:
        yield say_outcome
        return
    with Live(console=err, refresh_per_second=4, transient=True) as live:

        def update(progress: Progress, outcome: Outcome | None) -> None:
            if outcome is not None and outcome.state in ("failed", "blocked"):
                say_outcome(progress, outcome)
            live.update(jobs_table(progress))

        yield update


def say_outcome(progress: Progress, outcome: Outcome | None) -> None:
    """One line about a job that has ended."""
    if outcome is None:
        return
    ended = len(progress.outcomes)
    line = f"{ended}/{progress.total} {outcome.job.key}: {WORDS[outcome.state]}"
    if outcome.state in ("done", "failed"):
        line += f" after {outcome.seconds:.0f} s"
    line += f": {outcome.reason}" if outcome.reason else ""
    left = progress.seconds_left
    say(line if left is None else f"{line}; {clock(left)} left")


def jobs_table(progress: Progress) -> Fitted:
    """How many jobs have ended, and what runs."""
    left = progress.seconds_left
    parts = [
        f"{progress.count('kept', 'done')}/{progress.total} complete",
        f"{progress.count('failed', 'blocked')} failed" if progress.count("failed") else "",
        f"{len(progress.waiting)} waiting",
        "" if left is None else f"{clock(left)} left",
    ]
    rows = [
        (one.job.key, clock(one.seconds), shortened(one.last_line, LAST_LINE))
        for one in progress.running
    ]
    title = ", ".join(filter(None, parts))
    columns = ("running", "time", "now")
    return Fitted(Table(columns, rows, 1, {"time"}, {"time"}, title))
