"""Files of pairs as people have them: JSON lines, JSON, CSV, TSV, or plain ``12+34=46``."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tasks.base import TaskError

SOURCES = ("source", "input", "prompt", "question", "problem", "instruction", "src", "x")
TARGETS = ("target", "output", "completion", "answer", "response", "label", "tgt", "y")
EXPECTED = (
    'write {"source": "12+34=", "target": "46"} on each line, or CSV or TSV with the header '
    "source,target, or 12+34=46"
)


@dataclass(frozen=True)
class Texts:
    """A batch of pairs; an empty target means that it is unknown."""

    source: tuple[str, ...]
    target: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.source)

    def take(self, rows: np.ndarray) -> Texts:
        return Texts(*(tuple(part[i] for i in rows) for part in (self.source, self.target)))

    def joined(self, *others: Texts) -> Texts:
        all_texts = (self, *others)
        return Texts(
            tuple(text for texts in all_texts for text in texts.source),
            tuple(text for texts in all_texts for text in texts.target),
        )


def read_pairs(path: Path) -> tuple[Texts, str]:
    """Return the pairs of a file, and its SHA-256.

    Numbers count as they are written. ``TaskError`` says what was found instead, and where.
    """
    try:
        if path.exists() and not path.is_file():
            raise ValueError("it is not a regular file")
        raw = path.read_bytes()
        text = raw.decode("utf-8-sig")
    except FileNotFoundError:
        raise TaskError(f"there is no file {path}: name a file of pairs") from None
    except (OSError, ValueError) as error:
        raise TaskError(f"{path} cannot be read ({error}): name a UTF-8 file of pairs") from None
    pairs = []
    for where, entry in _entries(path, text):
        pair = _pair(entry)
        if isinstance(pair, str):
            raise TaskError(f"{where} of {path} {pair}: {EXPECTED}")
        pairs.append(pair)
    if not pairs:
        raise TaskError(f"{path} holds no pairs: {EXPECTED}")
    return Texts(*zip(*pairs, strict=True)), hashlib.sha256(raw).hexdigest()


def _entries(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    """Yield where a pair stands, and its object or list of texts; a text says what is wrong."""
    if text.lstrip().startswith("[") and isinstance(whole := _parsed(text), list):
        yield from ((f"entry {number}", entry) for number, entry in enumerate(whole, 1))
        return
    lines = re.split("\r\n|\r|\n", text)  # what Unicode has more stays inside of texts
    separator = {".csv": ",", ".tsv": "\t"}.get(path.suffix.lower())
    if separator is None and "\t" in lines[0] and lines[0].lstrip()[:1] not in ("{", "["):
        separator = "\t"
    if separator is None and _named(lines[0].split(",")) is not None:
        separator = ","
    if separator is not None:
        yield from _table(lines, separator)
        return
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield f"line {number}", _parsed(line) if line.lstrip()[0] in "{[" else _plain(line)


def _plain(line: str) -> list[str] | str:
    """Split ``12+34=46`` in two, the sign with the source."""
    first, sign, target = line.partition("=")
    is_pair = target and not re.match(r"\s*[,;|>:]|\t", target) and "=" not in target
    return [first + sign, target] if is_pair else f"is {line[:60]!r}, and no pair"


def _table(lines: list[str], separator: str) -> Iterator[tuple[str, Any]]:
    """Yield the rows of a table, by the names in its first one if those are known.

    Quotation marks are characters but in CSV.
    """
    quoted: Any = {"quoting": csv.QUOTE_NONE} if separator == "\t" else {}
    rows: Any = csv.reader((f"{x}\n" for x in lines), delimiter=separator, strict=True, **quoted)
    names: list[str] | None = None
    first = 1  # a row of CSV may have several lines
    try:
        for row in rows:
            number, first = first, rows.line_num + 1
            if number == 1 and _named(row) is not None:
                names = [name.strip().lower() for name in row]
            elif row:
                entry: Any = row
                if names is not None and len(row) != len(names):
                    entry = f"has {len(row)} cells, and the header {len(names)}"
                elif names is not None:
                    entry = dict(zip(names, row, strict=True))
                elif len(row) > 2:
                    entry = (
                        f"has {len(row)} columns: name two of them source and target in a header"
                    )
                yield f"line {number}", entry
    except csv.Error as error:
        raise TaskError(f"line {first} is not CSV ({error}): {EXPECTED}") from None


def _parsed(text: str) -> Any:
    """Read JSON with its numbers as they are written; return the error's message if it is none."""
    try:
        return json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError) as error:
        return f"is not JSON ({error})"


def _named(names: Any) -> tuple[str, str] | None:
    """Which of some names are those of a source and of a target; None if that is not clear."""
    normalised = [(str(name).strip().lower(), name) for name in names]
    sources, targets = (
        [original for name, original in normalised if name in choices]
        for choices in (SOURCES, TARGETS)
    )
    if len(normalised) > 2 and {"x", "y"} <= {name for name, _ in normalised}:
        return None  # which may be operands
    return (sources[0], targets[0]) if len(sources) == len(targets) == 1 else None


def _pair(entry: Any) -> tuple[str, str] | str:
    """Source and target, or what is wrong."""
    if isinstance(entry, str):
        return entry
    if isinstance(entry, dict):
        named = _named(entry)
        if named is None:
            keys = ", ".join(map(repr, list(entry)[:6])) or "none"
            return f"has the keys {keys}, and not one of a source and one of a target"
        entry = [entry[name] for name in named]
    if not isinstance(entry, list) or len(entry) != 2:
        return f"is {str(entry)[:60]}, and no pair"
    if not all(isinstance(text, str) and text.strip() for text in entry):
        return f"is {str(entry)[:60]}, not two texts"
    return entry[0], entry[1]
