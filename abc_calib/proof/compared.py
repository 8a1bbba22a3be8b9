"""Is the rule that a certificate is about what the task itself answers?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from abc_calib.errors import shortened
from abc_calib.proof.forms import Unbounded
from abc_calib.proof.witness import Sources
from tasks.arithmetic import Arithmetic
from tasks.rows import RowTask
from tasks.rules import Rule
from tasks.words import WordTask

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
    known = [getattr(type(task), name) for name in ANSWERS if hasattr(task, name)]
    whose = {method.__module__.split(".")[0] for method in known}
    return whose != {"tasks"} or bool({*ANSWERS} & vars(task).keys())


def compared(sources: Sources) -> dict[str, Any] | None:
    """How many sources a task's own answers were compared with its rule on; None if it has none.

    ``Unbounded`` with the first source where they differ.
    """
    task = sources.task
    if not own_answers(task):
        return None
    count, rng = 0, np.random.default_rng(14)
    differing = _of_words if isinstance(task, WordTask) else _of_numbers
    for problems in _problems(sources, rng):
        if (found := differing(task, sources.rule, problems, rng)) is not None:
            row, by, said = found
            raise Unbounded(
                "its rule and its own answers differ: for "
                f"{shortened(task.plain(problems, row))} the rule writes {shortened(by)} and the "
                f"task {shortened(said)}"
            )
        count += len(problems)
    return {"sources": count, "longest": max(sources.lengths)}


Difference = tuple[int, str, str] | None
"""The number of a problem, what the rule writes, and what the task says."""


def _of_words(task: Any, rule: Rule, problems: Any, rng: np.random.Generator) -> Difference:
    for row in range(len(problems)):
        by = task.read(task.text(problems.target.row(row)))
        said = task.solve(task.write(problems, row))
        if not isinstance(said, str):
            raise Unbounded(f"its solve gives {said!r}: give the words of an answer as a text")
        if by != said:
            return row, by, said
    return None


def _of_numbers(task: Any, rule: Rule, problems: Any, rng: np.random.Generator) -> Difference:
    by_rule = RowTask if rule.in_rows else Arithmetic
    right, given = by_rule.answer(task, *problems.operands), problems.answer
    width = max(right.width, given.width)
    differ = (right.widened(width) != given.widened(width)).any(1)
    differ |= right.lengths != given.lengths
    for row in rng.permutation(len(problems))[:READ].tolist():
        said = task.solve(task.plain(problems, row))
        differ[row] |= said != task.read(task.digits_of(right, row))
    if not differ.any():
        return None
    row = int(differ.argmax())
    by, said = (task.digits_of(one, row) for one in (right, given))
    return row, by, said


def _problems(sources: Sources, rng: np.random.Generator) -> Iterator[Any]:
    task = sources.task
    for _, problems in sources.short(SHORT):
        yield problems
    for size in sources.lengths:
        yield task.sample(rng, LONG, size, task.sampling, exact=True)
        yield task.hard(rng, LONG, size)
