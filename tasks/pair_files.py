"""Files of pairs as people have them: JSON lines, JSON, CSV, TSV, or plain ``12+34=46``."""

from __future__ import annotations

import bz2
import csv
import gzip
import hashlib
import json
import lzma
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tasks.base import TaskError

SOURCES = ("source", "input", "prompt", "question", "problem", "instruction", "src", "x")
TARGETS = ("target", "output", "completion", "answer", "response", "label", "tgt", "y")
EXPECTED = (
    'write {"source": "12+34=", "target": "64"} on each line, or CSV or TSV with the header '
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


PACKED = {
    b"\x1f\x8b": gzip.decompress,
    b"BZh": bz2.decompress,
    **dict.fromkeys([b"\xfd7zXZ", b"\x5d\0\0"], lzma.decompress),
}
"""How files that begin so are read."""
UNPACKED = {".gz", ".bz2", ".xz", ".lzma"}
"""Ends of names that do not say what a file holds."""
REFUSED = {
    b"PK\x03\x04": "is an archive or a spreadsheet: unpack it first, or save it as CSV",
    b"\x28\xb5\x2f\xfd": "is packed with zstd: unpack it first, with unzstd",
    b"PAR1": "is a Parquet file: write it with pandas.read_parquet(FILE).to_json(NEW, "
    "orient='records', lines=True)",
    b"version https://git-lfs": "is a pointer of Git LFS: fetch the file with git lfs pull",
}
CELL = re.compile(r'\s*=".*"\s*|\s*[+-]?\d+(\.\d+)?[eE]\+\d+\s*')
"""What a spreadsheet makes of a number."""
HALF = re.compile("[\ud800-\udfff]")
"""Surrogates, which no tokenizer reads."""
PROSE = re.compile(r"[^\W\d_]{2,}\s+[^\W\d_]{2,}")
"""Two words, which no problem of a plain line holds."""


def _text(raw: bytes) -> str:
    """The text of a file; ``ValueError`` for a kind that is not read."""
    for begin, why in REFUSED.items():
        if raw.startswith(begin):
            raise ValueError(f"it {why}")
    unpack = next((unpack for begin, unpack in PACKED.items() if raw.startswith(begin)), bytes)
    if b"\0" in (raw := unpack(raw)):
        raise ValueError("it has NUL bytes, as UTF-16, spreadsheets and archives: save it as text")
    return raw.decode().lstrip("\ufeff")


def read_pairs(path: Path) -> tuple[Texts, str]:
    """The pairs of a file, and its SHA-256.

    Numbers count as they are written. ``TaskError`` says what was found instead, and where.
    """
    try:
        if path.exists() and not path.is_file():
            raise ValueError("it is not a regular file")
        raw = path.read_bytes()
        text = _text(raw)
    except FileNotFoundError:
        raise TaskError(f"there is no file {path}: name a file of pairs") from None
    except (OSError, ValueError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise TaskError(f"{path} cannot be read ({error}): name a UTF-8 file of pairs") from None
    pairs = []
    for number, entry in _entries(path, text):
        pair = _pair(entry)
        if isinstance(pair, str):
            raise TaskError(f"{number} of {path} {pair}: {EXPECTED}")
        pairs.append(pair)
    if not pairs:
        raise TaskError(f"{path} holds no pairs: {EXPECTED}")
    return Texts(*zip(*pairs, strict=True)), hashlib.sha256(raw).hexdigest()


def _entries(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    """What stands for a pair, an object or a list of texts, and where."""
    if text.lstrip().startswith("[") and isinstance(whole := _parsed(text), list):
        alone = [isinstance(item, str) and isinstance(_plain(item), str) for item in whole]
        for number, item in enumerate([whole] if alone == [True, True] else whole, 1):
            yield f"entry {number}", item if isinstance(item, (dict, list)) else _plain(str(item))
        return
    lines = re.split("\r\n|\r|\n", text)  # what Unicode has more stays inside of texts
    top = next(filter(str.strip, lines), "")
    kinds = [kind.lower() for kind in path.suffixes if kind.lower() not in UNPACKED]
    separator = {".csv": ",", ".tsv": "\t"}.get(["", *kinds][-1])
    if isinstance(_parsed(top), (dict, list)):
        separator = None
    elif separator is None and "\t" in top and top.lstrip()[0] not in "{[":
        separator = "\t"
    elif separator is None and _named(top.split(",")) is not None:
        separator = ","
    if separator is not None:
        yield from _table(lines, top, separator)
        return
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield f"line {number}", _parsed(line) if line.lstrip()[0] in "{[" else _plain(line)


def _plain(line: str) -> list[str] | str:
    """``12+34=46`` in two, the sign with the source."""
    first, sign, then = line.partition("=")
    is_pair = then and not re.match(r"\s*[=,;|>:]|\t", then) and "=" not in then
    is_pair = is_pair and not PROSE.search(line)
    return [first + sign, then] if is_pair else f"is {line[:60]!r}, and no pair"


def _table(lines: list[str], top: str, separator: str) -> Iterator[tuple[str, Any]]:
    """The rows of a table, by the names in its first one, ``top``, if those are known.

    Quotation marks are characters but in CSV, where a row ends on its own line all the same.
    """
    spaced = f"{separator} " in top and _named(top.split(separator)) is not None
    rows = csv.reader(
        (line + "\n" for line in lines),
        delimiter=separator,
        skipinitialspace=spaced,
        quoting=csv.QUOTE_MINIMAL if separator == "," else csv.QUOTE_NONE,
    )
    names: list[str] | None = None
    before, size = 0, sum(map(len, lines)) + len(lines)
    limit = csv.field_size_limit(max(size, csv.field_size_limit()))
    try:
        for row in rows:
            number, before = before + 1, rows.line_num
            where = f"line {number}"
            cells = [cell.strip().lower() for cell in row]
            if names is None and lines[number - 1] == top and _named(row) is not None:
                names = cells
            if not row or cells == names:
                continue
            entry: Any = row
            if before > number:
                entry = f"goes on to line {before}: close its quotation mark, or write it twice"
            elif names is not None and len(row) != len(names):
                entry = f"has {len(row)} cells, and the header {len(names)}"
            elif names is not None:
                entry = dict(zip(names, row, strict=True))
            elif len(row) > 2:
                entry = f"has {len(row)} columns: name two of them source and target in a header"
            yield where, entry
    except csv.Error as error:
        raise TaskError(f"a row is not CSV ({error}): {EXPECTED}") from None
    finally:
        csv.field_size_limit(limit)


def _parsed(text: str) -> Any:
    """JSON with its numbers as they are written; the error's message where it is none."""
    try:
        return json.loads(text, parse_int=str, parse_float=str, object_pairs_hook=_table_of)
    except (ValueError, RecursionError) as error:
        return f"is not JSON ({error})"


def _table_of(entries: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; ``ValueError`` for a key that stands there twice."""
    table = dict(entries)
    if len(table) < len(entries):
        raise ValueError("a key stands there twice")
    return table


def _named(names: Any) -> tuple[str, str] | None:
    """Which of some names are those of a source and of a target; None if that is not clear."""
    normalised = [(str(name).strip().lower(), name) for name in names]
    matches = [
        [original for name, original in normalised if name in choices]
        for choices in (SOURCES, TARGETS)
    ]
    if len(normalised) > 2 and {"x", "y"} <= {name for name, _ in normalised}:
        return None  # which may be operands
    return (matches[0][0], matches[1][0]) if all(len(match) == 1 for match in matches) else None


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
    if half := HALF.search("".join(entry)):
        return f"has {half[0]!r}, half of a character"
    if cell := next(filter(CELL.fullmatch, entry), None):
        return f"has {cell[:40]!r}, a number as a spreadsheet writes it: save numbers as text"
    return entry[0], entry[1]
