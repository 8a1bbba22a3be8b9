"""Is the rule that a certificate is about what the task itself answers?"""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator
from copy import copy
from functools import cached_property
from inspect import getattr_static
from typing import Any

import numpy as np

from abc_calib.errors import shortened
from abc_calib.plugins.registry import is_ours
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
ANSWERS = {"answer", "solve"}
"""Methods whose answers are compared with the rule's."""
RULE = {"begin", "end", "end_below", "rule", "step", "step_below"}
DECLARED = {
    *("ahead", "ahead_below", "backward", "closers", "count", "counted", "default_base"),
    *("delimiters", "gold_attention", "inputs", "kinds", "laws", "name", "notation", "operands"),
    *("operator", "options", "pass_size", "remark", "rereads", "row_words", "sampling"),
    *("row_operand", "separators", "shortest", "splits", "start", "start_below", "stride"),
    *("symbols", "train_length", "train_rows", "unit", "usage"),
}
SAMPLING = {
    *("_chains", "_distinct", "_draw", "_random", "_run", "_uniform", "_walked", "families"),
    *("fresh", "fronts", "hard", "held_out_set", "is_held_out", "longer_set", "mutated"),
    *("sample", "sample_between", "smallest", "split", "test_set", "training_set", "walked"),
}
MAY_OVERRIDE = ANSWERS | RULE | DECLARED | SAMPLING
"""What a task may have of its own: how it is declared, what its rule is, which problems are drawn.
All else decides how sources are read and outputs written, which a certificate takes as ours."""
HARMLESS = {
    *("__abstractmethods__", "__annotations__", "__dict__", "__doc__", "__firstlineno__"),
    *("__init__", "__module__", "__orig_bases__", "__parameters__", "__qualname__"),
    *("__slotnames__", "__static_attributes__", "__weakref__", "_abc_impl"),
}


def by_rule(task: Any) -> Any:
    """The same task with the methods of the class of ours that it is derived from."""
    of = next(kind for kind in type(task).__mro__ if _ours(kind))
    plain = copy(task)
    plain.__dict__ = {name: value for name, value in vars(task).items() if name not in ANSWERS}
    methods = {name: getattr(of, name) for name in ANSWERS if hasattr(of, name)}
    plain.__class__ = type(type(task).__name__, (type(task),), methods)
    return plain


def _ours(kind: type) -> bool:
    """Do the methods of this class follow the rule?"""
    return is_ours(kind, ["tasks"])


def compared(sources: Sources) -> dict[str, Any] | None:
    """How many sources a task's own answers were compared with its rule on; None if it has none.

    ``Unbounded`` with the first source where they differ, or where its rule is not the one that
    its sources are drawn by.
    """
    task = sources.task
    if _plain(sources.rule) != _plain(task._rule):
        raise Unbounded("its rule is not the same each time")
    names = overridden(task)
    if refused := sorted(names - MAY_OVERRIDE):
        raise Unbounded(
            f"its task overrides {', '.join(refused)}: a certificate takes the reading of sources "
            "and the writing of outputs as this program has them; override step, end, begin, solve "
            "and what draws problems alone"
        )
    if not ANSWERS & names:  # it follows its rule alone
        return None
    count, rng = 0, np.random.default_rng(14)
    differing = _of_words if isinstance(task, WordTask) else _of_numbers
    for problems in _problems(sources, rng):
        if (difference := differing(task, sources.rule, problems, rng)) is not None:
            row, by, solution = difference
            raise Unbounded(
                "its rule and its own answers differ: for "
                f"{shortened(task.plain(problems, row))} the rule writes {shortened(by)} and the "
                f"task {shortened(solution)}"
            )
        count += len(problems)
    return {"sources": count, "longest": max(sources.lengths)}


def overridden(task: Any) -> set[str]:
    """The names of our own classes that a task, or the classes it is made of, has otherwise."""
    of = next(kind for kind in type(task).__mro__ if _ours(kind))
    theirs = [kind for kind in type(task).__mro__ if not _ours(kind) and kind not in (ABC, object)]
    named = {name for kind in theirs for name in vars(kind)}
    named |= {name for name in vars(task) if callable(getattr(type(task), name, None))}
    named |= {name for name in vars(task) if _set(task, name)}
    return {x for x in named if hasattr(of, x) or x.startswith("__")} - HARMLESS


def _set(task: Any, name: str) -> bool:
    """Has the task another value of a cached property than the one that its methods give?"""
    cached = {
        x for x in vars(task) if isinstance(getattr_static(type(task), x, None), cached_property)
    }
    if name not in cached:
        return False
    plain = copy(task)
    plain.__dict__ = {x: value for x, value in vars(task).items() if x not in cached}
    return _plain(getattr(plain, name)) != _plain(vars(task)[name])


def _plain(value: Any) -> Any:
    """A rule or an array as plain data; None for what problems are drawn from."""
    if isinstance(value, Rule):
        return value.as_dict(), value.padded.as_dict()
    return value.tolist() if isinstance(value, np.ndarray) else None


Difference = tuple[int, str, str] | None
"""The number of a problem, what the rule writes, and what the task says."""


def _of_words(task: Any, rule: Rule, problems: Any, rng: np.random.Generator) -> Difference:
    plain = by_rule(task)
    right = plain.posed(plain.letters(problems)).target
    for row in range(len(problems)):
        by = task.read(plain.text(right.row(row)))
        solution = task.solve(task.write(problems, row))
        if not isinstance(solution, str):
            raise Unbounded(f"its solve gives {solution!r}: give the words of an answer as a text")
        if by != solution:
            return row, by, solution
    return None


def _of_numbers(task: Any, rule: Rule, problems: Any, rng: np.random.Generator) -> Difference:
    plain, answer = by_rule(task), (RowTask if rule.in_rows else Arithmetic).answer
    right, answers = answer(plain, *problems.operands), problems.answer
    width = max(right.width, answers.width)
    differ = (right.widened(width) != answers.widened(width)).any(1)
    differ |= right.lengths != answers.lengths
    for row in rng.permutation(len(problems))[:READ].tolist():
        solution = task.solve(task.plain(problems, row))
        differ[row] |= solution != task.read(plain.digits_of(right, row))
    if not differ.any():
        return None
    row = int(differ.argmax())
    by, solution = (plain.digits_of(digits, row) for digits in (right, answers))
    return row, by, solution


def _problems(sources: Sources, rng: np.random.Generator) -> Iterator[Any]:
    task = sources.task
    for _, problems in sources.short(SHORT):
        yield problems
    for size in sources.lengths:
        yield task.sample(rng, LONG, size, task.sampling, exact=True)
        yield task.hard(rng, LONG, size)
