"""Is the rule that a certificate is about what the task itself answers?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from abc_calib.errors import shortened
from abc_calib.proof.forms import Unbounded
from abc_calib.proof.witness import Witnesses
from tasks.arithmetic import Arithmetic
from tasks.base import Problems
from tasks.rows import RowTask

SHORT = 100_000
"""Sources of each width that are all compared, if they are not more."""
LONG = 2000
"""Random and hard ones of each longer width."""
READ = 500
"""Sources that are written, and read again, as a person does."""
ANSWERS = ("answer", "problems", "solve", "parse", "tapes", "read")
"""Methods from which answers come."""


def own_answers(task: Any) -> bool:
    """Does a task answer by code of its own, and not by its rule?"""
    found = (getattr(type(task), name).__module__.split(".")[0] for name in ANSWERS)
    return any(whose != "tasks" for whose in found) or bool({*ANSWERS} & vars(task).keys())


def compared(witnesses: Witnesses) -> dict[str, Any] | None:
    """How many sources a task's own answers were compared with its rule on; None if it has none.

    ``Unbounded`` with the first source where they differ.
    """
    task = witnesses.task
    if not own_answers(task):
        return None
    by_rule = RowTask if witnesses.rule.in_rows else Arithmetic
    sources, rng = 0, np.random.default_rng(14)
    for problems in _problems(witnesses, rng):
        right = by_rule.answer(task, *problems.operands)
        given = problems.answer
        width = max(right.width, given.width)
        differ = (right.widened(width) != given.widened(width)).any(1)
        differ |= right.lengths != given.lengths
        for row in rng.permutation(len(problems))[:READ].tolist():
            said = task.solve(task.plain(problems, row))
            differ[row] |= said != task.read(task.digits_of(right, row))
        if differ.any():
            row = int(differ.argmax())
            by, said = (shortened(task.digits_of(one, row)) for one in (right, given))
            raise Unbounded(
                "its rule and its own answers differ: for "
                f"{shortened(task.plain(problems, row))} the rule writes {by} and the task {said}"
            )
        sources += len(problems)
    return {"sources": sources, "longest": max(witnesses.lengths)}


def _problems(witnesses: Witnesses, rng: np.random.Generator) -> Iterator[Problems]:
    task = witnesses.task
    for _, problems in witnesses.short(SHORT):
        yield problems
    for size in witnesses.lengths:
        yield task.sample(rng, LONG, size, "mixed", exact=True)
        yield task.hard(rng, LONG, size)
