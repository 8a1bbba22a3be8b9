"""Values that hardly anything takes, and what a declaration says of them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import TypeAdapter

from abc_calib.config.signature import Named


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
