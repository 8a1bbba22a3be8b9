"""Tasks: the rules that models learn, in the notation that a person writes.

>>> get_task("addition").solve("999+1")
'1000'
>>> get_task("lookup").solve("010 t3 t4 .")
'010 011 010'
"""

from __future__ import annotations

import difflib
from typing import Any

import numpy as np

from tasks.arithmetic import Addition, Arithmetic, Parity, Successor
from tasks.base import Problems, Rows, Task, TaskError
from tasks.cfq import Cfq
from tasks.copying import (
    Copy,
    DeDupe,
    InvReCopy,
    InvReverseReCopy,
    PosRetrieve,
    ReCopy,
    ReverseCopy,
    ReverseReCopy,
)
from tasks.digits import Digits
from tasks.lookup import (
    IntermediateNoise,
    Lookup,
    NoisyMulti,
    NoisySingle,
    OneShot,
    ReverseLookup,
)
from tasks.scan import Scan
from tasks.tokens import Pairs, Tokens, TokenTask
from tasks.wider import (
    Addition3,
    Addition4,
    Multiplication,
    Multiplication2,
    Multiplication3,
    Zigzag,
)

ARITHMETIC: dict[str, type[Arithmetic]] = {
    "successor": Successor,
    "addition": Addition,
    "multiplication": Multiplication,
    "parity": Parity,
    "addition3": Addition3,
    "addition4": Addition4,
    "multiplication2": Multiplication2,
    "multiplication3": Multiplication3,
    "zigzag": Zigzag,
}
TOKEN_TASKS: dict[str, type[TokenTask]] = {
    "copy": Copy,
    "reverse_copy": ReverseCopy,
    "recopy": ReCopy,
    "reverse_recopy": ReverseReCopy,
    "inv_recopy": InvReCopy,
    "inv_reverse_recopy": InvReverseReCopy,
    "dedupe": DeDupe,
    "posretrieve": PosRetrieve,
    "lookup": Lookup,
    "reverse_lookup": ReverseLookup,
    "noisy_lookup_single": NoisySingle,
    "noisy_lookup_multi": NoisyMulti,
    "intermediate_noise": IntermediateNoise,
    "lookup_one_shot": OneShot,
    "scan": Scan,
    "cfq": Cfq,
}
TASKS: dict[str, type[Task]] = {**ARITHMETIC, **TOKEN_TASKS}


def get_task(name: str, **options: Any) -> Task:
    """The task of that name with its options, those that are None left out.

    ``TaskError`` names the known tasks, or the options that the task takes.
    """
    if name not in TASKS:
        near = difflib.get_close_matches(name, TASKS, 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise TaskError(f"unknown task {name!r}{hint}: choose one of {', '.join(TASKS)}")
    kind = TASKS[name]
    given = {key: value for key, value in options.items() if value is not None}
    for key in given:
        if key not in kind.options:
            allowed = f"it takes {', '.join(kind.options)}" if kind.options else "it takes none"
            raise TaskError(f"{name} has no option {key!r}: {allowed}")
    return kind(**given)


def examples() -> list[dict[str, str]]:
    """What each task is, with a sample, and what it trains on by default."""
    rows = []
    for name, kind in TASKS.items():
        what = (kind.__doc__ or "").splitlines()[0].split(":")[0]
        row = {"task": name, "what": what, "sample": "", "trained_on": "local files"}
        if kind is not Cfq:
            task = get_task(name)
            length = min(task.train_length, 6)
            source = task.write(task.sample(np.random.default_rng(0), 1, length, exact=True), 0)
            row["sample"] = f"{source} -> {task.solve(source)}"
            row["trained_on"] = f"up to {task.train_length} {task.unit}"
        rows.append(row)
    return rows


__all__ = [
    "ARITHMETIC",
    "TASKS",
    "TOKEN_TASKS",
    "Arithmetic",
    "Digits",
    "Pairs",
    "Problems",
    "Rows",
    "Task",
    "TaskError",
    "TokenTask",
    "Tokens",
    "examples",
    "get_task",
]
