"""Is the rule that a certificate is about what the task itself answers?"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any

import numpy as np

from abc_calib.errors import shortened
from abc_calib.plugins.kinds import is_ours
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
ANSWERS = {
    "answer",
    "columns",
    "digits_of",
    "letters",
    "padded",
    "parse",
    "parts",
    "plain",
    "posed",
}
ANSWERS |= {"problems", "read", "solve", "tapes", "text", "words", "write", "_number", "_read"}
"""Methods from which answers come, and what is read and written of them."""


def by_rule(task: Any) -> Any:
    """The same task with the methods of the class of ours that it is derived from."""
    of = next(one for one in type(task).__mro__ if _ours(one))
    plain = copy(task)
    plain.__dict__ = {name: value for name, value in vars(task).items() if name not in ANSWERS}
    methods = {name: getattr(of, name) for name in ANSWERS if hasattr(of, name)}
    plain.__class__ = type(type(task).__name__, (type(task),), methods)
    return plain


def _ours(one: type) -> bool:
    """Do the methods of this class follow the rule?"""
    return is_ours(one, ["tasks"])


def compared(sources: Sources) -> dict[str, Any] | None:
    """How many sources a task's own answers were compared with its rule on; None if it has none.

    ``Unbounded`` with the first source where they differ, or where its rule is not the one that
    its sources are drawn by.
    """
    task = sources.task
    if sources.rule.as_dict() != task._rule.as_dict():
        raise Unbounded("its rule is not the same each time")
    own = {name for one in type(task).__mro__ if not _ours(one) for name in vars(one)}
    if not ANSWERS & (own | vars(task).keys()):  # it follows its rule alone
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
    plain = by_rule(task)
    right = plain.posed(plain.letters(problems)).target
    for row in range(len(problems)):
        by = task.read(plain.text(right.row(row)))
        said = task.solve(task.write(problems, row))
        if not isinstance(said, str):
            raise Unbounded(f"its solve gives {said!r}: give the words of an answer as a text")
        if by != said:
            return row, by, said
    return None


def _of_numbers(task: Any, rule: Rule, problems: Any, rng: np.random.Generator) -> Difference:
    plain, answer = by_rule(task), (RowTask if rule.in_rows else Arithmetic).answer
    right, given = answer(plain, *problems.operands), problems.answer
    width = max(right.width, given.width)
    differ = (right.widened(width) != given.widened(width)).any(1)
    differ |= right.lengths != given.lengths
    for row in rng.permutation(len(problems))[:READ].tolist():
        said = task.solve(task.plain(problems, row))
        differ[row] |= said != task.read(plain.digits_of(right, row))
    if not differ.any():
        return None
    row = int(differ.argmax())
    by, said = (plain.digits_of(one, row) for one in (right, given))
    return row, by, said


def _problems(sources: Sources, rng: np.random.Generator) -> Iterator[Any]:
    task = sources.task
    for _, problems in sources.short(SHORT):
        yield problems
    for size in sources.lengths:
        yield task.sample(rng, LONG, size, task.sampling, exact=True)
        yield task.hard(rng, LONG, size)
