"""Hostile invocations of every command, made from the declarations of its options.

A new option is attacked as it is declared: its type, bounds and choices say which of the values
below are legal, and every other one must be refused. ``tests/warm.py`` runs them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

import typer
from hostile_places import of_sweeps, of_terminals
from hostile_values import (
    BEYOND,
    LISTS,
    NO_NUMBERS,
    ODD_WORDS,
    PATHS,
    PROBLEMS,
    Case,
    edges,
    is_legal,
    schema_of,
)

from abc_calib.config import MODEL_OPTIONS, RecurrentOptions
from abc_calib.config.signature import Named
from cli.main import app

QUICK = {
    **{"--steps": "2", "--batch": "4", "--width": "8", "--heads": "2"},
    **{"--feedforward": "8", "--decoder-layers": "1", "--digits": "3"},
}
BASE: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "train": (("successor",), QUICK),
    "calibrate": (("vanilla",), {"--steps": "2", "--threshold": "0.3"}),
    "retrain": (("bare",), {}),
    "prove": (("parity",), {}),
    "check-task": (("parity",), {}),
    "eval": ((), {"--lengths": "3", "--samples": "5"}),
    "stress": ((), {"--lengths": "3", "--samples": "2", "--search": "4"}),
    "predict": (("7",), {}),
    "heatmap": ((), {"--sites": "cross", "--format": "png", "--digits": "5"}),
    "export": (("certificate", "bare"), {"--out": "checked"}),
    "sweep": (("good.toml", "--check"), {}),
    "reproduce": (("table1", "--from-results"), {}),
    "inspect": (("recurrent",), {"--input": "7 8"}),
    "diagnose": (("recurrent",), {}),
}
"""What makes each command quick and possible, but for what is attacked."""

NO_VALUE = {"--stress"}
"""Options that may stand without a value."""
SLOW = {"calibrate", "heatmap"}
LONG = {"demo", "export", "retrain", "certify", "verify", "repair", "prove"}
"""Commands that are no moment's work, whatever they are given."""
LONG_WORK = {
    *("batch", "steps", "epochs", "max_len", "samples", "search", "seeds", "minutes", "budget"),
}
"""Options whose largest values are nothing but much work."""


def cases(seed: int = 0) -> list[Case]:
    """All of them, in an order that follows from ``seed``; the same for the same seed."""
    rng = random.Random(seed)
    found = [*of_commands(), *of_sweeps(), *of_terminals()]
    rng.shuffle(found)
    return found


def sampled(n: int, seed: int = 0) -> list[Case]:
    """``n`` of them, every command and kind among them, but what is accepted slowly."""
    drawn: dict[tuple[str, str], list[Case]] = {}
    for case in cases(seed):
        if case.legal and case.command in SLOW:
            continue
        drawn.setdefault((case.command, case.kind), []).append(case)
    groups = list(drawn.values())
    kept: list[Case] = []
    while len(kept) < n and groups:
        kept += [group.pop() for group in groups]
        groups = [group for group in groups if group]
    return kept[:n]


def of_commands() -> Iterator[Case]:
    """Every parameter of every command, and words that no command knows."""
    group: Any = typer.main.get_command(app)
    for name, command in group.commands.items():
        fields = getattr(command.callback, "options", {})
        by_name = {option.name: option for option in fields.values()}
        mine: list[Case] = []
        for parameter in command.params:
            mine += of_parameter(name, parameter, by_name.get(parameter.name))
        yield from mine
        yield from of_unknown(name)
        if name == "train":
            yield from of_sizes(fields)
    for word in ODD_WORDS[2:]:
        yield Case("", "command", (word,), shown=word)


def of_sizes(fields: dict[str, Named]) -> Iterator[Case]:
    """All sizes of a training at their largest but one: more than any machine has."""
    for kind, group in MODEL_OPTIONS.items():
        mine = [o for o in fields.values() if o.kind is group or o.name in ("batch", "width")]
        sizes = [o for o in mine if o.type is int and o.name != "attention_window"]
        for left_out in sizes:
            pairs = [(o.flag, schema_of(o)["maximum"]) for o in sizes if o is not left_out]
            words = (f"{flag}={value}" for flag, value in pairs)
            yield Case("train", "sizes", ("successor", f"--model={kind}", *words))


def base(command: str, *without: str) -> tuple[str, ...]:
    """The words that make a command quick, but for some options."""
    arguments, options = BASE.get(command, ((), {}))
    kept = [(k, v) for k, v in options.items() if k not in without]
    return (*arguments, *(word for pair in kept for word in pair))


def of_parameter(command: str, parameter: Any, option: Named | None) -> Iterator[Case]:
    """Every value that its declaration leaves room for, and those that it does not."""
    kind, flag = parameter.type_descriptor.annotation, parameter.opts[0]
    if parameter.param_type_name == "argument":
        yield from of_argument(command, parameter)
    elif parameter.is_flag:
        yield Case(command, "switch", (*base(command), f"{flag}=5"), shown=flag)
    elif option is not None:
        spelled = (flag, option.flag)
        gru = option.kind is RecurrentOptions
        kind = ("--model=gru",) if gru else ()
        others = ("--heads", "--feedforward", "--decoder-layers") if gru else ()
        for what, value, legal in values(option):
            if legal and command in LONG:
                continue
            words = (*base(command, *spelled, *others), *kind, f"{flag}={value}")
            yield Case(command, what, words, legal, "" if what == "path" else value)
        alone = flag in NO_VALUE
        yield Case(command, "no value", (*base(command, *spelled), flag), alone, flag)
    else:
        path = "Path" in str(kind)
        odd = () if path and command in LONG else PATHS if path else ODD_WORDS
        for value in odd:
            words = (*base(command, flag), f"{flag}={value}")
            # a path may be written to, where it is one, and 0 is a source of many tasks
            legal = path or (flag, value) == ("--input", "0")
            yield Case(command, "path" if path else "word", words, legal, value)
        yield Case(command, "no value", (*base(command, flag), flag), shown=flag)


def of_argument(command: str, parameter: Any) -> Iterator[Case]:
    """What stands without a flag: a task, a problem, a run, a file, a target."""
    before, options = BASE.get(command, ((), {}))
    more = tuple(word for pair in options.items() for word in pair)
    if parameter.name == "problem":
        for value in PROBLEMS:
            digits = re.fullmatch(r"\s*[0-9]+\s*", value, re.ASCII) is not None
            yield Case(command, "problem", ("--", value), digits)
        return
    for value in (*ODD_WORDS, *PATHS):
        first = ("certificate",) if parameter.name == "run" and command == "export" else ()
        rest = tuple(word for word in before if word.startswith("--")) if not first else ()
        yield Case(command, parameter.name, (*rest, *more, "--", *first, value), False, value)


def of_unknown(command: str) -> Iterator[Case]:
    """Options and arguments that it does not have."""
    for word in ODD_WORDS[2:]:
        if not word.startswith("-") and "=" not in word:
            yield Case(command, "unknown option", (*base(command), f"--{word}"), shown=word)
    for word in ("\x1b[1m", "x" * 5000, "[red]"):
        words = (*base(command), *["extra"] * 3, word)
        yield Case(command, "too many", words, shown="extra" if BASE.get(command) else "")


def values(option: Named) -> Iterator[tuple[str, str, bool]]:
    """Kind, value, and whether the declaration allows it."""
    schema = schema_of(option)
    several, inner = "items" in schema, schema.get("items", schema)
    number = inner.get("type") in ("integer", "number")
    example = str(inner["enum"][0]) if "enum" in inner else "6" if number else "png"
    if number:
        for value in dict.fromkeys((*edges(inner), *NO_NUMBERS, *BEYOND)):
            legal = is_legal(option, value)
            if not legal or is_quick(option, inner, value):
                yield ("number", value, legal)
    else:
        path = inner.get("maxLength") == 4096  # any word may be a folder's name
        for value in ODD_WORDS:
            if value not in inner.get("enum", ()):
                yield ("path" if path else "word", value, path)
    if several:
        for shape in LISTS:
            value = shape.format(example)
            yield ("list", value, number and is_legal(option, value))


def is_quick(option: Named, schema: dict[str, Any], text: str) -> bool:
    """Is it no more than the work of a moment, where it is taken?"""
    first = float(text.split(",")[0])
    return option.name not in LONG_WORK or first <= schema.get("minimum", 0) + 1
