"""What a task may have of its own, so that a certificate of its rule is about its answers.

And are its sources and outputs laid out as a certificate takes it? Compared token by token.
"""

from __future__ import annotations

from abc import ABC, ABCMeta
from collections.abc import Iterator
from copy import copy
from functools import cached_property
from inspect import getattr_static
from typing import Any

import numpy as np

from abc_calib.data import Data
from abc_calib.errors import shortened
from abc_calib.geometry.layout import placed
from abc_calib.plugins.registry import is_ours
from abc_calib.proof.forms import Gaps, Undecided
from abc_calib.proof.operands import Token, reading
from abc_calib.proof.setup import Frame, Setup, Size
from abc_calib.proof.sources import Sources
from tasks import TaskError
from tasks.arithmetic import Arithmetic, check_notation
from tasks.rules import Rule

RULE = {"begin", "end", "end_below", "step", "step_below"}
DECLARED = {
    *("ahead", "ahead_below", "backward", "closers", "count", "counted", "default_base"),
    *("delimiters", "gold_attention", "inputs", "kinds", "laws", "name", "notation", "operands"),
    *("operator", "options", "pass_size", "remark", "rereads", "row_words", "sampling"),
    *("separators", "shortest", "splits", "start", "start_below", "stride", "symbols"),
    *("train_length", "train_rows", "unit", "usage"),
}
SAMPLING = {
    *("_chains", "_distinct", "_draw", "_random", "_run", "_uniform", "_walked", "families"),
    *("fresh", "fronts", "hard", "held_out_set", "is_held_out", "longer_set", "mutated"),
    *("sample", "sample_between", "smallest", "split", "test_set", "training_set", "walked"),
}
ALLOWED = RULE | DECLARED | SAMPLING
"""All else decides how sources are read, answered and written, which has to be as we have it."""
SMALL = 2
"""A size of problems that are compared besides those that are decoded."""
EACH = 4
"""Problems of each size."""
HARMLESS = {
    *("__abstractmethods__", "__annotations__", "__dict__", "__doc__", "__firstlineno__"),
    *("__init__", "__module__", "__orig_bases__", "__parameters__", "__qualname__"),
    *("__repr__", "__slotnames__", "__static_attributes__", "__str__", "__weakref__"),
    *("_abc_impl", "title"),
}


def check_allowed(task: Any, rule: Rule) -> None:
    """Raise ``Undecided`` where a task overrides more than it may, or its rule is not ``rule``."""
    if isinstance(task, Arithmetic):
        check_notation(task)
    if _plain(rule) != _plain(task._rule) or _replaced(task, "_rule"):
        raise Undecided("its rule is not the same each time")
    if refused := sorted(overridden(task) - ALLOWED):
        raise Undecided(
            f"its task overrides {', '.join(refused)}: a certificate takes the reading of sources "
            "and the writing of outputs as this program has them, and answers as the rule gives "
            "them; override step, end, begin and what draws problems alone"
        )


def overridden(task: Any) -> set[str]:
    """List the names of our classes that a task, or a class it is made of, has otherwise."""
    of = next(kind for kind in type(task).__mro__ if _ours(kind))
    theirs = [kind for kind in type(task).__mro__ if not _ours(kind) and kind not in (ABC, object)]
    names = {name for kind in theirs for name in vars(kind)}
    names |= {"__class__" for kind in type(task).__mro__ if type(kind) not in (type, ABCMeta)}
    hiding = {name for name in vars(task) if hasattr(type(task), name)}
    names |= {name for name in hiding if name not in _cached(task) or _replaced(task, name)}
    return {x for x in names if hasattr(of, x) or x.startswith("__")} - HARMLESS


def _ours(kind: type) -> bool:
    """Do the methods of this class follow the rule?"""
    return is_ours(kind, ["tasks"])


def _cached(task: Any) -> set[str]:
    return {
        x for x in vars(task) if isinstance(getattr_static(type(task), x, None), cached_property)
    }


def _replaced(task: Any, name: str) -> bool:
    """Has the task another value of a cached property than the one that its methods give?"""
    plain, cached = copy(task), _cached(task)
    plain.__dict__ = {x: value for x, value in vars(task).items() if x not in cached}
    return _plain(getattr(plain, name)) != _plain(vars(task)[name])


def _plain(value: Any) -> Any:
    """A rule or an array as plain data; None for what problems are drawn from."""
    if isinstance(value, Rule):
        return value.as_dict(), value.padded.as_dict()
    return value.tolist() if isinstance(value, np.ndarray) else None


def check_laid_out(data: Data, setup: Setup) -> None:
    """Raise ``Undecided`` where a token of a source, or the width of a row, is not as expected.

    Of random problems of four sizes every token is compared with what the shape says of its
    position, and every row's width with what the rule says of it.
    """
    task, rule, rng = data.task, setup.rule, np.random.default_rng(15)
    lengths = Sources(task, rule).lengths
    for length in ((SMALL, SMALL) if isinstance(lengths[0], tuple) else SMALL, *lengths):
        try:
            problems = task.sample(rng, EACH, length, task.sampling, exact=True)
        except TaskError:  # there is none of this size
            continue
        for number in range(len(problems)):
            problem = problems.take(np.array([number]))
            for where, token, expected in _compared(data, setup, problem):
                if token != expected:
                    raise Undecided(
                        "it is not laid out as its rule is followed: for "
                        f"{shortened(task.plain(task.render(problem), 0))} {where} is "
                        f"{shortened(str(token))}, not {shortened(str(expected))}"
                    )


def _compared(data: Data, setup: Setup, problem: Any) -> Iterator[tuple[str, Any, Any]]:
    """Of one problem each place, what stands there, and what is expected."""
    rule, rendered, names = setup.rule, data.task.render(problem), data.vocabulary.symbols
    laid, layout = data.lay_out(rendered), data.layout(rendered)
    source, target = (
        x[0][x[0] != data.vocabulary.pad].tolist() for x in (laid.source, laid.target)
    )
    letters = data.task.letters(problem)
    rows = [row for row in rule.rows(letters) if row.lengths[0] >= 0]
    widths = [int(row.lengths[0]) for row in rows]
    sizes = [*_sizes(setup, letters, widths)]
    yield "the number of tokens of the source", len(source), layout.keys
    for position, token in enumerate(source):
        part, behind = placed(layout.closes, position)
        for row, size in enumerate(sizes):
            if rule.listed and behind >= 0 and part != row + 1:
                continue  # the number of another row
            at, _ = reading(size).token(Token(part, behind))
            if not isinstance(at, int):
                column = row if at.column is None else int(at.column)
                if at.kind == "symbol" and layout.aligned:
                    column = 0
                at = int(letters[row if rule.listed else at.of].values[0, column])
            yield f"token {position} of the source", names[token], names[at]
    output = list[Any]()
    for row, width in enumerate(widths):
        symbols = rows[row].values[0].tolist()
        closer = symbols[width] if rule.closers and row < len(rows) - 1 else setup.row
        output += [*symbols[:width], closer if row < len(rows) - 1 else setup.eos]
    yield "the output", target, output
    for row, (size, width) in enumerate(zip(sizes, widths[:-1], strict=False)):
        if rule.extra is not None:
            yield f"the width of row {row}", width, size.wide.value + rule.extra
        if row and rule.shorter is not None:
            yield f"the width of row {row}", width, widths[row - 1] - rule.shorter


def _sizes(setup: Setup, letters: Any, widths: list[int]) -> Iterator[Size]:
    """Of each row of an output, of these widths, the size of its problem, without gaps."""
    rule: Rule = setup.rule
    for row in range(len(widths)):
        tapes = [row] if rule.listed else [k for k in rule.first.tapes if k >= 0]
        lengths = [int(letters[k].lengths[0]) for k in tapes]
        wide = max(lengths, default=1)
        short = sum(length < wide for length in lengths) if rule.stride > 1 else 0
        frame: Frame = {"column": (0,), "wide": (wide,), "row": (row,), "rows": (len(widths),)}
        if rule.in_rows and rule.extra is None:
            frame["above"] = (widths[row - 1] if row else 0,)
        yield Size(setup, frame, Gaps(()), short)
