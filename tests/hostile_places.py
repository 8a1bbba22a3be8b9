"""Sweep files and terminals that nobody would choose."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hostile_values import PATHS, Case

# Files that a command reads


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
