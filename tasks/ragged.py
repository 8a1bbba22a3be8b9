"""Rows of different lengths in one array: words, and numbers of any length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Rng = np.random.Generator
"""What random numbers are drawn from."""


@dataclass(frozen=True)
class Ragged:
    """``n`` sequences: ``values (n, width)`` aligned at the left, ``lengths (n,)``.

    Words stand in the order of reading. Numbers begin with their last digit, and behind their first
    one stand zeros. What stands behind the length of other rows means nothing.
    """

    values: np.ndarray
    lengths: np.ndarray

    def __len__(self) -> int:
        return len(self.values)

    @property
    def width(self) -> int:
        return self.values.shape[1]

    @property
    def inside(self) -> np.ndarray:
        """``(n, width)`` bool: which values belong to a row."""
        return np.arange(self.width) < self.lengths[:, None]

    @property
    def flat(self) -> np.ndarray:
        """All values, row after row."""
        return self.values[self.inside]

    def row(self, index: int) -> np.ndarray:
        return self.values[index, : self.lengths[index]]

    def take(self, rows: np.ndarray) -> Ragged:
        return Ragged(self.values[rows], self.lengths[rows])

    def reversed(self) -> Ragged:
        """Each row from its last value to its first."""
        columns = self.lengths[:, None] - 1 - np.arange(self.width)
        return Ragged(np.take_along_axis(self.values, np.maximum(columns, 0), 1), self.lengths)

    def widened(self, width: int) -> np.ndarray:
        """The values, with zeros behind them if they are narrower, ``(n, width)``."""
        if width <= self.width:
            return self.values
        values = np.zeros((len(self), width), self.values.dtype)  # quicker than np.pad
        values[:, : self.width] = self.values
        return values


def from_flat(flat: np.ndarray, lengths: np.ndarray) -> Ragged:
    """The inverse of ``Ragged.flat``."""
    lengths = np.asarray(lengths, np.int64)
    values = np.zeros((len(lengths), int(lengths.max(initial=1))), flat.dtype)
    values[np.arange(values.shape[1]) < lengths[:, None]] = flat
    return Ragged(values, lengths)


def column(values: np.ndarray) -> Ragged:
    """Rows of one value each."""
    return Ragged(values[:, None], np.ones(len(values), np.int64))


def stack(parts: Sequence[Ragged]) -> Ragged:
    """The rows of all, one below the other."""
    flat = np.concatenate([part.flat for part in parts])
    return from_flat(flat, np.concatenate([part.lengths for part in parts]))


def join(*parts: Ragged | int, fill: int = 0, dtype: Any = None) -> Ragged:
    """Row by row, the values of each part one after another; a number is one in each row.

    ``fill``: what stands behind a row's end.
    """
    n = next(len(part) for part in parts if isinstance(part, Ragged))
    lengths = [part.lengths if isinstance(part, Ragged) else np.ones(n, np.int64) for part in parts]
    total = np.sum(lengths, axis=0)
    types = [part.values.dtype if isinstance(part, Ragged) else np.int16 for part in parts]
    values = np.full((n, int(total.max(initial=0))), fill, dtype or np.result_type(*types))
    start = np.zeros(n, np.int64)
    for part, length in zip(parts, lengths, strict=True):
        end = start + length
        if isinstance(part, Ragged):
            first, last = start.min(initial=values.shape[1]), end.max(initial=0)
            place = np.arange(first, last)
            here = (place >= start[:, None]) & (place < end[:, None])
            values[:, first:last][here] = part.flat
        else:
            values[np.arange(n), start] = part
        start = end
    return Ragged(values, total)


def joined_rows(rows: Sequence[Ragged], closer: int | None) -> Ragged:
    """Outputs from their rows, whose length is -1 where there is none, ``closer`` between them.

    Without a ``closer`` it is the symbol behind a row's others.
    """
    parts: list[Ragged] = []
    for number, row in enumerate(rows):
        present, wide = row.lengths >= 0, np.maximum(row.lengths, 0)
        if number and closer is not None:
            closers = np.full((len(wide), 1), closer, np.int16)
            parts.append(Ragged(closers, present.astype(int)))
        elif number + 1 < len(rows) and closer is None:
            wide = wide + (rows[number + 1].lengths >= 0)
        parts.append(Ragged(row.values, wide))
    return join(*parts) if len(parts) > 1 else parts[0]


# Numbers


def from_integers(numbers: np.ndarray, base: int) -> Ragged:
    """Digits of non-negative int64 ``(n,)``, without leading zeros."""
    columns: list[np.ndarray] = []
    rest = numbers.copy()
    while not columns or rest.any():
        rest, digit = np.divmod(rest, base)
        columns.append(digit.astype(np.uint8))
    return without_zeros(np.stack(columns, axis=1))


def as_integers(number: Ragged, base: int) -> np.ndarray:
    """The numbers as ``(n,)`` uint64, modulo 2^64."""
    with np.errstate(over="ignore"):
        powers = np.uint64(base) ** np.arange(number.width, dtype=np.uint64)
        return number.values.astype(np.uint64) @ powers


def without_zeros(values: np.ndarray) -> Ragged:
    """Numbers of these digits ``(n, width)``, last ones first, whose lengths leave out zeros."""
    zeros = (values[:, ::-1] != 0).argmax(1)
    return Ragged(values, np.where(values.any(1), values.shape[1] - zeros, 1))
