"""Numbers of any length as arrays of digits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Digits:
    """``n`` numbers of any length, one per row, most significant digit first.

    ``values`` is ``(n, width)`` uint8, aligned at the right, zeros to the left of a number;
    ``lengths`` is ``(n,)``: how many digits of each row are written.
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
        """``(n, width)`` bool: which places hold a digit that is written."""
        return np.arange(self.width) >= self.width - self.lengths[:, None]

    def widened(self, width: int) -> np.ndarray:
        """The values, with zeros at the left if they are narrower, ``(n, width)``."""
        if width == self.width:
            return self.values
        values = np.zeros((len(self), width), np.uint8)  # quicker than np.pad
        values[:, width - self.width :] = self.values
        return values

    def take(self, rows: np.ndarray) -> Digits:
        return Digits(self.values[rows], self.lengths[rows])

    def as_integers(self, base: int) -> np.ndarray:
        """The numbers as ``(n,)`` uint64, modulo 2^64."""
        with np.errstate(over="ignore"):
            powers = np.uint64(base) ** np.arange(self.width - 1, -1, -1, dtype=np.uint64)
            return self.values.astype(np.uint64) @ powers


def from_integers(numbers: np.ndarray, base: int) -> Digits:
    """Digits of non-negative int64 ``(n,)``, without leading zeros."""
    columns: list[np.ndarray] = []
    rest = numbers.copy()
    while not columns or rest.any():
        rest, digit = np.divmod(rest, base)
        columns.append(digit.astype(np.uint8))
    return without_zeros(np.stack(columns[::-1], axis=1))


def without_zeros(values: np.ndarray) -> Digits:
    """``values (n, width)`` with the lengths that leave out leading zeros."""
    width = values.shape[1]
    first = np.where(values.any(1), (values != 0).argmax(1), width - 1)
    return Digits(values, width - first)


def nothing(n: int) -> Digits:
    """``n`` operands that are not there: without digits."""
    return Digits(np.zeros((n, 1), np.uint8), np.zeros(n, int))


def stack(*numbers: Digits) -> Digits:
    """The rows of all, one below the other."""
    width = max(number.width for number in numbers)
    return Digits(
        np.concatenate([number.widened(width) for number in numbers]),
        np.concatenate([number.lengths for number in numbers]),
    )


def columns_of(number: Digits, widths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A number as a tape of a rule: its digits, last one first, zeros up to ``widths (n,)``."""
    return number.widened(max(number.width, int(widths.max(initial=1))))[:, ::-1], widths


def number_of(values: np.ndarray, lengths: np.ndarray) -> Digits:
    """The inverse of ``columns_of``: numbers from ``(n, w)`` digits, last ones first."""
    inside = np.arange(values.shape[1]) < np.asarray(lengths)[:, None]
    return Digits(np.where(inside, values, 0)[:, ::-1].astype(np.uint8), np.asarray(lengths))
