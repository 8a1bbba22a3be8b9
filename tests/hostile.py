"""Hostile invocations of every command, made from the declarations of its options.

A new option is attacked as it is declared: its type, bounds and choices say which of the values
below are legal, and every other one must be refused. ``tests/warm.py`` runs them.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter

from abc_calib.config import MODEL_OPTIONS, Options, RecurrentOptions
from abc_calib.config.options import flag_of, values_of
from cli.main import app


@dataclass(frozen=True)
class Named:
    """A field of a group, which is an option of a command."""

    kind: type[Options]
    name: str

    @property
    def field(self) -> Any:
        return self.kind.model_fields[self.name]

    @property
    def flag(self) -> str:
        return flag_of(self.name)


def named(command: Any) -> dict[str, Named]:
    """The options of a command that are fields of groups, the first group's of each name."""
    groups = getattr(command.callback, "groups", ())
    return {n: Named(kind, n) for kind in reversed(groups) for n in kind.model_fields}


@dataclass(frozen=True)
class Case:
    """One invocation: ``abc COMMAND WORDS``.

    ``legal``: every value is one that the declarations allow, so that it may be accepted.
    ``shown``: what a refusal must name. ``files``: written first. ``encoding``: of the terminal.
    ``stdout``: where it goes, if not into a file.
    """

    command: str
    kind: str
    words: tuple[str, ...]
    legal: bool = False
    shown: str = ""
    files: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    encoding: str = "utf-8"
    stdout: str = ""

    @property
    def argv(self) -> tuple[str, ...]:
        return (*filter(None, [self.command]), *self.words)


BEYOND = tuple(str(n) for n in (10**30, -(10**30), 2**63, 2**64, -(2**63) - 1, 10**400, 10**19))
NO_NUMBERS = (
    *("", " ", "nan", "-nan", "inf", "-inf", "Infinity", "1e23", "1e400", "-1e23", "0x10", "0b1"),
    *("1_000", "_1", "١٢", "１２", "²", "½", "1,5", "1.5", "--", "-", "+", ".", "e5", "1e", "True"),
    *("None", "five", "-1", "0", "-0.5", "1/2", "10**3", "$((1))", "1 2", "\t7\n8", "7\x007"[:1]),
)
ODD_WORDS = (
    *("", " ", "unknown", "x" * 100_000, "ab" * 60, "\udcff\udcfe", "caf\u00e9\udce9"),
    *("\x1b[31mred\x1b[0m", "\x07bell", "a\nb", "a\r\x1b[2K", "[red]x", "[/]", "[bold", "\x9b31m"),
    *("{0}", "%s", "\\n", "../..", "~", "*", "'", '"', "`id`", "$HOME", "\u202etxt", "\ufeff"),
    *("a b", "a " * 50_000, "--", "-", "None", "0", "\ud7ff\U0010ffff", "e\u0301" * 9, "\x7f"),
    *("\t", "a\0b"[:1]),
)
LISTS = ("", ",", ",,", "{0},", ",{0}", "{0},,{0}", "{0};{0}", "{0} {0}", "{0},zz", "[{0}]", " , ")
PATHS = (
    *("fifo", "zero", "full", "null", "loop", "a-file", "a-folder", "a-file/below", "x" * 300),
    *("y/" * 3000, "\udcff", "\x1b[31mred", "[red]x", "a\nb", "", "missing/", ".", "sep\u2028l"),
    *("/proc/self/mem", "new/folder\x07", "$x_{", "<b>&amp;", "-"),
)
PROBLEMS = (
    *("", " ", "+", "1+", "-1", "--5", "1e5", "1.5", "0x1", "1_000", "１２", "١٢", "½", "７"),
    *("x" * 10**5, "\udcff", "\x1b[31m7", "7\x07", "[red]7[/]", "7+7", "7*7", "NaN", "7;7", "$"),
    *("&", "7$7"),
    *("9" * 50 + "!", "\u200b7", "7\u0300", "{7}", "%7", "010 t3 t4 .", "7\\", "7\ud800", "\0"[:0]),
)


def schema_of(option: Named) -> dict[str, Any]:
    """The JSON schema of its field, without None."""
    annotation: Any = Annotated[option.field.annotation, option.field]
    schema = TypeAdapter(annotation).json_schema()
    kinds = [kind for kind in schema.get("anyOf", [schema]) if kind.get("type") != "null"]
    return next((kind for kind in kinds if kind.get("type") == "array"), kinds[0])


def edges(schema: dict[str, Any]) -> Iterator[str]:
    """The bounds, what is just beyond them, and much beyond them."""
    for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        if name in schema:
            bound = schema[name]
            yield from (f"{bound:.0f}", f"{bound + 1:.0f}", f"{bound - 1:.0f}", f"{bound}.5")


def is_legal(option: Named, text: str) -> bool:
    """Is it a plain number, or several with commas between, within the declared bounds?"""
    schema = schema_of(option)
    parts = text.split(",") if "items" in schema else [text]
    return all(_is_number(part.strip(" \t\n"), schema.get("items", schema)) for part in parts)


def _is_number(text: str, schema: dict[str, Any]) -> bool:
    whole = schema["type"] == "integer"
    plain = r"[+-]?\d+" if whole else r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
    if not re.fullmatch(plain, text, re.ASCII) or len(text) > 300:
        return False
    value = int(text) if whole else float(text)
    return (
        math.isfinite(value)
        and schema.get("minimum", value) <= value <= schema.get("maximum", value)
        and not value <= schema.get("exclusiveMinimum", -math.inf)
        and not value >= schema.get("exclusiveMaximum", math.inf)
    )


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
    "curves": (("vanilla", "calibrated", "calibrated"), {"--labels": "a,b,c"}),
    "heatmap": ((), {"--sites": "cross", "--format": "png", "--digits": "5"}),
    "export": (("certificate", "bare"), {"--out": "checked"}),
    "compile": (("bare",), {"--out": "checked"}),
    "sweep": (("good.toml", "--check"), {}),
    "reproduce": (("table1", "--from-results"), {}),
    "inspect": (("recurrent",), {"--input": "7 8"}),
    "diagnose": (("recurrent",), {}),
}
"""What makes each command quick and possible, but for what is attacked."""

FORMS: tuple[tuple[str, ...], ...] = (("certificate",), ("lines",), ("lines", "--lengths=3"))
"""What a run may be exported as."""
SLOW = {"calibrate", "heatmap"}
LONG = {"demo", "compile", "export", "retrain", "certify", "verify", "repair", "prove"}
"""Commands that are no moment's work, whatever they are given."""
LONG_WORK = {*("batch", "steps", "max_len", "samples", "search", "seeds", "minutes", "budget")}
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
        fields = named(command)
        mine: list[Case] = []
        for parameter in command.params:
            mine += of_parameter(name, parameter, fields.get(parameter.name))
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
        sizes = [o for o in mine if values_of(o.field) == "int" and o.name != "attention_window"]
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
        yield Case(command, "no value", (*base(command, *spelled), flag), shown=flag)
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
        rest = tuple(word for word in before if word.startswith("--"))
        for form in FORMS if parameter.name == "run" and command == "export" else ((),):
            words = (*rest, *more, *form[1:], "--", *form[:1], value)
            yield Case(command, parameter.name, words, False, value)


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


# Sweep files and terminals that nobody would choose

SWEEP = '[sweep]\ntasks = ["successor"]\nlengths = [3]\nsamples = 5\n'
ODD_TOML = (
    *("", "\ufeff", "[", "a = ", "[[[[", "x" * 100_000, "[sweep]\n" * 2, "[a.b.c]\n", "= 5"),
    *("a = " + "[" * 5000 + "]" * 5000, "a." * 5000 + "b = 1", '["\x1b[31m"]\n', "\udcff = 1"),
    *("seeds = 5", "[sweep]\n[grid]\n", "jobs = 5", "[jobs]\na = 1", "[[sweep]]\n", "[options]\n"),
)
ODD_TOML_VALUES = (
    *("true", "false", '""', '"x"', "[]", "[[]]", "{}", "nan", "inf", "-inf", "-1", "0", "1.5"),
    *("1e400", str(10**30), str(2**64), "1979-05-27", "07:32:00", '"1_000"', '"[red]"', "[true]"),
    *('"\\u001b[31m"', '["a", 1]', '"' + "x" * 10**5 + '"', "[nan]", "{a = {b = {c = 1}}}", "0x10"),
    "[" * 300 + "]" * 300,
)
MAY = {
    "calibrate": ("true", "false"),
    **dict.fromkeys(("seeds", "base", "samples"), ("0x10",)),
    "tasks": (),
}
"""What of them a key of the section takes."""
SECTION = ("tasks", "schemes", "seeds", "base", "preset", "lengths", "samples", "sets", "calibrate")


def of_sweeps() -> Iterator[Case]:
    """Sweep files: texts that are no TOML, values that no key takes, products without end."""

    def case(kind: str, text: str, legal: bool = False) -> Case:
        files = {"odd.toml": text}
        return Case("sweep", kind, ("odd.toml", "--check"), legal, "odd.toml", files)

    for text in ODD_TOML:
        yield case("file", text)
    for key in SECTION:
        rest = "\n".join(line for line in SWEEP.splitlines() if not line.startswith(key))
        for value in ODD_TOML_VALUES:
            may = value in MAY[key] if key in MAY else False
            yield case("[sweep]", f"{rest}\n{key} = {value}\n", may)
    many = ", ".join(str(n) for n in range(1, 40))
    grids = ["warmup", "cooldown", "patience", "halvings", "early_stop_after", "validate_every"]
    yield case("product", SWEEP + "[grid]\n" + "\n".join(f"{g} = [{many}]" for g in grids))
    for seeds in (10**6, 10**9, 2**62, 10**30):
        yield case("product", f"{SWEEP}seeds = {seeds}\n")


# Terminals


def of_terminals() -> Iterator[Case]:
    """Narrow, huge, ASCII and closed ones, for what is refused and for what is right."""
    commands = [("tasks",), ("runs",), ("predict", "7"), ("predict", "7", "--show"), ("--help",)]
    commands += [("certify", "--help"), ("eval", "--lengths", "3", "--samples", "5")]
    refused = [("eval", "--samples", "\x1b[31m"), ("train", "é\udcff"), ("runz",)]
    looks: list[dict[str, Any]] = [
        *({"env": {"COLUMNS": n}} for n in ("0", "1", "7", "100000", "-5", "x", "9" * 30)),
        *({"encoding": name} for name in ("ascii", "latin-1", "cp437")),
        *({"env": env} for env in ({"TERM": "dumb"}, {"FORCE_COLOR": "1"}, {"NO_COLOR": "1"})),
        *({"stdout": where} for where in ("closed pipe", "/dev/full", "closed")),
        *({"env": {"ABC_RUNS": path}} for path in PATHS),
    ]
    for look in looks:
        odd = {"ABC_RUNS"} & look.get("env", {}).keys() or look.get("stdout")
        for command, *words in commands:
            yield Case(command, "terminal", tuple(words), legal=True, **look)
        for command, *words in refused if not odd else []:
            shown = words[-1] if words else command
            yield replace(Case(command, "terminal", tuple(words), shown=shown), **look)
