"""Tasks: the rules that models learn, in the notation that a person writes.

>>> get_task("addition").solve("999+1")
'1000'
"""

from __future__ import annotations

import difflib
from typing import Any

from tasks.arithmetic import Addition, Arithmetic, Multiplication, Parity, Successor
from tasks.base import Problems, Task, TaskError
from tasks.digits import Digits

TASKS: dict[str, type[Arithmetic]] = {
    "successor": Successor,
    "addition": Addition,
    "multiplication": Multiplication,
    "parity": Parity,
}


def get_task(name: str, **options: Any) -> Arithmetic:
    """The task of that name; ``TaskError`` names the known ones."""
    if name not in TASKS:
        near = difflib.get_close_matches(name, TASKS, 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise TaskError(f"unknown task {name!r}{hint}: choose one of {', '.join(TASKS)}")
    return TASKS[name](**options)


__all__ = ["TASKS", "Arithmetic", "Digits", "Problems", "Task", "TaskError", "get_task"]
