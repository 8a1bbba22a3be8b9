"""``eval.csv``: a row for every set, seed and length, each of which vouches for itself."""

from __future__ import annotations

import csv
import hashlib
import io
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from abc_calib.errors import AbcError
from abc_calib.files import locked, read_text, write_text

Row = dict[str, Any]
KINDS: dict[str, type] = {
    **{"length": int, "accuracy": float, "n": int, "set": str, "correct": int, "low": float},
    **{"high": float, "test_seed": int, "test_hash": str, "seconds": float},
}
"""Columns of every row and what they hold; those of tasks on tokens hold a number or nothing."""
ROWS = "rows"
"""The column of outputs of several rows: how many."""
NAME = ("set", "test_seed", "length", ROWS)
"""What names a row."""
HASH = "row_hash"
LARGEST = 2**63 - 1


def read_rows(path: Path) -> list[Row]:
    """The rows of a file, none where there is none; ``AbcError`` if one is not as it was."""
    try:
        return _parsed(read_text(path))
    except FileNotFoundError:
        return []
    except (OSError, ValueError, csv.Error) as error:
        raise AbcError(f"{path} cannot be read ({error}): remove it") from None


def add_rows(path: Path, rows: Iterable[Row]) -> None:
    """Put rows into the file as it is now; those of more samples stay.

    Others that write it meanwhile wait.
    """
    with locked(path.parent):
        kept = {_name(row): row for row in read_rows(path)}
        for row in rows:
            name = _name(row)
            if name not in kept or row["n"] >= kept[name]["n"]:
                kept[name] = row
        write_text(path, _written([kept[name] for name in sorted(kept)]))


def kept_rows(path: Path, rows: Iterable[Row]) -> int:
    """Of how many measured rows the file has an earlier one of more samples."""
    counts = {_name(row): row["n"] for row in read_rows(path)}
    return sum(counts.get(_name(row), 0) > row["n"] for row in rows)


def _name(row: Row) -> tuple[Any, ...]:
    return tuple(row.get(name) or 0 if name == ROWS else row[name] for name in NAME)


def _written(rows: list[Row]) -> str:
    columns = list(dict.fromkeys([*KINDS, *(name for row in rows for name in row)]))
    text = io.StringIO()
    file = csv.writer(text, lineterminator="\n")
    file.writerow([*columns, HASH])
    for row in rows:
        cells = ["" if row.get(name) is None else str(row[name]) for name in columns]
        file.writerow([*cells, _hash(columns, cells)])
    return text.getvalue()


def _parsed(text: str) -> list[Row]:
    lines = list(csv.reader(io.StringIO(text), strict=True))
    if not lines or not {*KINDS, HASH} <= {*lines[0]} or lines[0][-1] != HASH:
        raise ValueError("it has other columns than an evaluation")
    columns = lines[0][:-1]
    rows: dict[tuple, Row] = {}
    for number, (*cells, kept) in enumerate(lines[1:], 1):
        if kept != _hash(columns, cells):
            raise ValueError(f"row {number} was changed")
        row = {name: _value(name, cell) for name, cell in zip(columns, cells, strict=True)}
        rows[_name(row)] = row
    if len(rows) != len(lines) - 1:
        raise ValueError("a row is there twice")
    return list(rows.values())


def _value(name: str, cell: str) -> Any:
    if name not in KINDS and not cell:
        return None
    value = (KINDS | {ROWS: int}).get(name, float)(cell)
    if not isinstance(value, str) and not (math.isfinite(value) and value <= LARGEST):
        raise ValueError(f"{name} is {cell}")
    return value


def _hash(columns: list[str], cells: list[str]) -> str:
    """What a row is, empty cells aside, whatever other columns there are."""
    filled = [pair for pair in zip(columns, cells, strict=False) if pair[1]]
    return hashlib.sha256(repr(sorted(filled)).encode()).hexdigest()[:16]
