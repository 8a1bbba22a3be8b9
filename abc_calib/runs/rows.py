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


def size_of(row: Row) -> str:
    """The length of a row's problems, with their rows where they have several: ``20x15``."""
    return "x".join(str(row[name]) for name in ("length", ROWS) if row.get(name) is not None)


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


def _name(row: Row) -> tuple[Any, ...]:
    return tuple(row.get(name) or 0 if name == ROWS else row[name] for name in NAME)


def _written(rows: list[Row]) -> str:
    columns = list(dict.fromkeys([*KINDS, *(name for row in rows for name in row)]))
    text = io.StringIO()
    file = csv.DictWriter(text, [*columns, HASH], lineterminator="\n")
    file.writeheader()
    for row in rows:
        cells = {name: str(row[name]) for name in columns if row.get(name) is not None}
        file.writerow(cells | {HASH: _hash(cells)})
    return text.getvalue()


def _parsed(text: str) -> list[Row]:
    reader = csv.DictReader(io.StringIO(text), strict=True)
    if not {*KINDS, HASH} <= {*(reader.fieldnames or ())}:
        raise ValueError("it has other columns than an evaluation")
    rows: dict[tuple, Row] = {}
    for number, cells in enumerate(reader, 1):
        if None in cells or cells.pop(HASH) != _hash(cells):
            raise ValueError(f"row {number} was changed")
        row = {name: _value(name, cell or "") for name, cell in cells.items()}
        if _name(row) in rows:
            raise ValueError("a row is there twice")
        rows[_name(row)] = row
    return list(rows.values())


def _value(name: str, cell: str) -> Any:
    if name not in KINDS and not cell:
        return None
    value = (KINDS | {ROWS: int}).get(name, float)(cell)
    if not isinstance(value, str) and not (math.isfinite(value) and value <= LARGEST):
        raise ValueError(f"{name} is {cell}")
    return value


def _hash(cells: dict[str, str]) -> str:
    """What a row is, empty cells aside, whatever other columns there are."""
    filled = sorted(pair for pair in cells.items() if pair[1])
    return hashlib.sha256(repr(filled).encode()).hexdigest()[:16]
