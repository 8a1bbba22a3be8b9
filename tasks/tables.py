"""Tables of machines: CSV files with one line for everything that a machine can read."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from itertools import product

from tasks.base import TaskError


def header(table: str) -> tuple[str, ...]:
    """The names in the first line of the text of a CSV file."""
    return tuple(_cells(table)[0]) if _cells(table) else ()


def table_rows(table: str, columns: Sequence[str], read: int = 2) -> list[list[str]]:
    """The entries of a table, words in these ``columns``.

    There is one for all combinations of the words in the first columns, which are ``read``;
    ``TaskError`` says which entry is wrong, missing or doubled.
    """
    rows = _cells(table)
    if not rows or tuple(rows[0]) != tuple(columns):
        raise TaskError(f"a table begins with the line {','.join(columns)}")
    keys: dict[tuple[str, ...], None] = {}
    for number, row in enumerate(rows[1:], 2):
        if len(row) != len(columns) or not all(row) or any(len(cell.split()) > 1 for cell in row):
            raise TaskError(
                f"line {number} of the table, {','.join(row)!r}: give {len(columns)} words"
            )
        if (key := tuple(row[:read])) in keys:
            raise TaskError(f"the table has two entries for {_named(columns, key)}")
        keys[key] = None
    if not keys:
        raise TaskError("the table has no entries")
    for key in product(*(dict.fromkeys(words) for words in zip(*keys, strict=True))):
        if key not in keys:
            raise TaskError(f"the table has no entry for {_named(columns, key)}")
    return rows[1:]


def _named(columns: Sequence[str], key: Sequence[str]) -> str:
    return " and ".join(f"{name} {word}" for name, word in zip(columns, key, strict=False))


def _cells(table: str) -> list[list[str]]:
    lines = table.removeprefix("\ufeff").splitlines()
    try:
        return [[cell.strip() for cell in row] for row in csv.reader(lines) if any(row)]
    except csv.Error as error:
        raise TaskError(f"the table is not CSV ({error})") from None
