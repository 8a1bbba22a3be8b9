"""What a task may have of its own, so that a certificate of its rule is about its answers."""

from __future__ import annotations

from abc import ABC, ABCMeta
from copy import copy
from functools import cached_property
from inspect import getattr_static
from typing import Any

import numpy as np

from abc_calib.plugins.registry import is_ours
from abc_calib.proof.forms import Undecided
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
