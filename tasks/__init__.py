"""Tasks: the rules that models learn, in the notation that a person writes.

>>> get_task("addition").solve("999+1")
'1000'
>>> get_task("lookup").solve("010 t3 t4 .")
'010 011 010'
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tasks import copies
from tasks.arithmetic import Arithmetic
from tasks.automata import Automaton
from tasks.base import Problems, Rows, Size, Task, TaskError, unknown
from tasks.basic import Addition, Multiplication, Parity, Subtraction, Successor
from tasks.division import Division, Mod
from tasks.expressions import Brackets, Equation, Stack
from tasks.gcd import Gcd
from tasks.pairs import FilePairs
from tasks.published import copying, lookup
from tasks.published.cfq import Cfq
from tasks.published.scan import Scan
from tasks.ragged import Ragged
from tasks.roots import SquareRoot
from tasks.rows import LongMultiplication, RowTask, Sum
from tasks.sorting import Compare, Sort
from tasks.tape import Tape
from tasks.tokens import TokenTask
from tasks.whole import Power
from tasks.words import WordTask

ARITHMETIC: dict[str, type[Arithmetic]] = {
    "successor": Successor,
    "addition": Addition,
    "subtraction": Subtraction,
    "multiplication": Multiplication,
    "parity": Parity,
}
ROW_TASKS: dict[str, type[RowTask]] = {
    "long_multiplication": LongMultiplication,
    "sum": Sum,
}
TOKEN_TASKS: dict[str, type[TokenTask]] = {
    "automaton": Automaton,
    "tape": Tape,
    "division": Division,
    "mod": Mod,
    "gcd": Gcd,
    "square_root": SquareRoot,
    "power": Power,
    "compare": Compare,
    "sort": Sort,
    "stack": Stack,
    "brackets": Brackets,
    "solve_equation": Equation,
    "duplicate": copies.Duplicate,
    "odds_first": copies.OddsFirst,
    "missing_duplicate": copies.MissingDuplicate,
    "copy": copying.Copy,
    "reverse_copy": copying.ReverseCopy,
    "recopy": copying.ReCopy,
    "reverse_recopy": copying.ReverseReCopy,
    "inv_recopy": copying.InvReCopy,
    "inv_reverse_recopy": copying.InvReverseReCopy,
    "dedupe": copying.DeDupe,
    "posretrieve": copying.PosRetrieve,
    "lookup": lookup.Lookup,
    "reverse_lookup": lookup.ReverseLookup,
    "noisy_lookup_single": lookup.NoisySingle,
    "noisy_lookup_multi": lookup.NoisyMulti,
    "intermediate_noise": lookup.IntermediateNoise,
    "lookup_one_shot": lookup.OneShot,
    "scan": Scan,
    "cfq": Cfq,
}
TASKS: dict[str, type[Task]] = {**ARITHMETIC, **ROW_TASKS, **TOKEN_TASKS}
FROM_FILES: dict[str, type[Task]] = {"pairs": FilePairs}
"""Tasks that need a file and cannot be chosen by name."""


def get_task(name: str, **options: Any) -> Task:
    """The task of that name with its options, those that are None left out.

    ``TaskError`` names the known tasks, or the options that the task takes.
    """
    kinds = {**TASKS, **FROM_FILES}
    if name not in kinds:
        raise TaskError(unknown("task", name, TASKS))
    kind = kinds[name]
    chosen = {key: value for key, value in options.items() if value is not None}
    for key, value in chosen.items():
        if key not in kind.options:
            allowed = f"it takes {', '.join(kind.options)}" if kind.options else "it takes none"
            raise TaskError(
                f"{name} has no option {key!r} (here {str(value)[:60]!r}): {allowed}; leave it out"
            )
    return kind(**chosen)


GROUPS = {
    "successor": "Numbers",
    "long_multiplication": "Numbers, in rows",
    "automaton": "Machines",
    "division": "Division, roots and order",
    "duplicate": "Copies",
    "lookup": "Tables that are composed",
    "scan": "Language",
}
"""The first task of each group, and what the group is called."""


def examples() -> list[dict[str, str]]:
    """Group, name and rule of each task, with a sample, and what it trains on by default.

    The sample is that of the task's docstring; without one a short problem is drawn.
    """
    rows: list[dict[str, str]] = []
    group = ""
    for name, kind in TASKS.items():
        group = GROUPS.get(name, group) if kind.__module__.startswith("tasks.") else "Plugins"
        about = (kind.__doc__ or name).split("\n\n")[0]
        what = " ".join(re.split(r"[:,]?(?: as)? ``|[:.]$", about, maxsplit=1)[0].split())
        sample = next(iter(re.findall(r"``([^`]+ -> [^`]+)``", about)), "")
        row = {"task": name, "what": what, "sample": sample, "trained_on": "local files"}
        try:
            task = get_task(name)
            if not sample:
                problems = task.sample(np.random.default_rng(0), 1, min(task.train_length, 6))
                row["sample"] = f"{(source := task.write(problems, 0))} -> {task.solve(source)}"
            row["trained_on"] = f"up to {task.train_length} {task.unit}"
        except TaskError:  # it needs files that are not named here
            pass
        except Exception as error:
            if group != "Plugins":
                raise
            row |= {"sample": f"fails: {type(error).__name__}: {error}", "trained_on": ""}
        rows.append({"group": group, **row})
    return rows
