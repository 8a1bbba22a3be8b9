"""How far a sweep's jobs are, on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from abc_calib.errors import shortened
from abc_calib.progress import bar, is_live
from cli.console import say

if TYPE_CHECKING:
    from abc_calib.sweeps import Outcome, Progress

WORDS = {
    "kept": "complete already",
    "done": "done",
    "failed": "FAILED",
    "blocked": "left out",
    "missing": "not started",
}


@contextmanager
def jobs_progress() -> Iterator[Callable[[Progress, Outcome | None], None]]:
    """What ``run_jobs`` calls: a bar with what a job said last, or a line for each that ended."""
    with bar("jobs", None, "jobs") as update:

        def on_change(progress: Progress, outcome: Outcome | None) -> None:
            done, total = len(progress.outcomes), progress.total
            if outcome is not None and not is_live():
                update(done, total, in_words(outcome), True)
                return
            if outcome is not None and outcome.state in ("failed", "blocked"):
                say(in_words(outcome))
            last = [f"{one.job.task}: {one.last_line}" for one in progress.running[-1:]]
            update(done, total, shortened(" ".join(last)))

        yield on_change


def in_words(outcome: Outcome) -> str:
    """How a job has ended."""
    line = f"{outcome.job.key}: {WORDS[outcome.state]}"
    if outcome.state == "done":
        line += f" after {outcome.seconds:.0f} s"
    return line + (f": {outcome.reason}" if outcome.reason else "")
