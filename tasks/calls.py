"""The functions of a rule, called so that a mistake in one is a line with the call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from abc_calib.errors import shortened
from tasks.base import TaskError
from tasks.rules import END, ROW

Fault = Callable[[Any], str]
"""What a returned value should have been; empty if it is right."""


def guarded(function: Callable[..., Any], name: str, fault: Fault) -> Callable[..., Any]:
    """Wrap a function so that each call is made twice and its value checked.

    ``TaskError`` for a value with a fault, and for two different ones. An error that the function
    raises gets the call as a note.
    """
    defined = getattr(function, "__name__", "")
    name = defined if defined.isidentifier() else name

    def call(*arguments: Any) -> Any:
        try:
            value = function(*arguments)
            again = value if (why := fault(value)) else function(*arguments)
            differs = bool(again != value)
        except (Exception, SystemExit) as error:
            error.add_note(f"in {shown(name, arguments)}")
            raise
        if differs:
            why = f"and then {shortened(repr(again))}: give one value for the same arguments"
            raise wrong(name, arguments, value, f" {why}")
        if why:
            raise wrong(name, arguments, value, f": {why}")
        return value

    call.__name__ = name
    return call


def wrong(name: str, arguments: Sequence[Any], value: Any, why: str) -> TaskError:
    """Return the error of a call that gives a wrong value."""
    return TaskError(f"{shown(name, arguments)} gives {shortened(repr(value))}{why}")


def shown(name: str, arguments: Sequence[Any]) -> str:
    """A call as it is written in Python."""
    return f"{name}({', '.join(shortened(repr(value)) for value in arguments)})"


def state_fault(state: Any) -> str:
    """What a state should have been."""
    try:
        hash(state)
    except TypeError:
        return "let the state be a number, a text, or a tuple of these"
    return ""


def move_fault(move: Any) -> str:
    """What a step on words should have given, whatever its word is."""
    if move is None:
        return ""
    if not isinstance(move, tuple) or len(move) != 2:
        return "give (next state, word), or None"
    if type(move[1]) is not str and move[1] is not None:
        return "give a text as the word, or None"
    return state_fault(move[0])


def end_fault(symbols: Collection[str]) -> Fault:
    """What an end on words should have given."""

    def fault(written: Any) -> str:
        if written is None:
            return ""
        plain = isinstance(written, tuple | list) and {*map(type, written)} <= {str}
        if not plain or {*written[:-1]} & {ROW, END}:
            return f"give a tuple of words, {ROW} or {END} last, or None"
        return next(filter(None, (word_fault(word, symbols) for word in written)), "")

    return fault


def word_fault(word: str | None, symbols: Collection[str]) -> str:
    """What is wrong with a word that is written."""
    if word in (None, ROW, END) or word in symbols:
        return ""
    allowed = f"they are {', '.join([*symbols][:10])}{', ...' * (len(symbols) > 10)}"
    return f"{shortened(repr(word))} is written and is not a symbol: {allowed}"


def digit_fault(base: int) -> Fault:
    """What a step on digits should have given."""

    def fault(move: Any) -> str:
        if not isinstance(move, tuple) or len(move) != 2 or move[1] not in range(base):
            return "give (next state, digit)"
        return state_fault(move[0])

    return fault


def last_fault(base: int) -> Fault:
    """What an end on digits should have given."""

    def fault(written: Any) -> str:
        fits = written is None or (
            isinstance(written, Sequence)
            and len(written) <= 1
            and all(digit in range(base) for digit in written)
        )
        return "" if fits else "give a tuple of at most one digit, or None"

    return fault
