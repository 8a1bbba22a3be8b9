"""The paper's calibration: average along lines, cut, extend (Duan & Shi, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from abc_calib.errors import UsageError
from abc_calib.geometry.lines import (
    CORNER,
    DIRECTIONS,
    Direction,
    Heads,
    Line,
    corner_key,
)


def line_means(matrix: np.ndarray, direction: Direction) -> dict[int, float]:
    """The mean of ``matrix (m, n)`` along each of its lines, by line index (eq. 1)."""
    m, n = matrix.shape
    row, column = np.indices((m, n))
    if direction == "diag":
        index = column - row
    elif direction == "anti":
        index = n - 1 - (row + column)
    else:
        index = column
    lines, inverse = np.unique(index, return_inverse=True)
    sums = np.bincount(inverse.ravel(), weights=matrix.astype(np.float64).ravel())
    counts = np.bincount(inverse.ravel())
    return dict(zip(lines.tolist(), (sums / counts).tolist(), strict=True))


def mean_lines(
    attention: np.ndarray, dirs: Sequence[Direction] = DIRECTIONS, threshold: float = 4.0
) -> Heads:
    """The lines of each head of an averaged attention ``(h, m, n)`` that stand out.

    Kept where ``d_l > mu + threshold * sigma``, with mu and the population standard deviation
    sigma over all lines of that head and direction; valued ``d_l - d_max`` (eq. 2).
    """
    heads = []
    for matrix in attention:
        kept = []
        for direction in dirs:
            means = line_means(matrix, direction)
            values = np.array(list(means.values()))
            # a head that attends evenly has no line: rounding does not make one
            noise = 1e-12 * np.abs(values).max()
            limit = values.mean() + threshold * values.std() + noise
            kept += [
                Line(direction, CORNER, index, mean - values.max())
                for index, mean in means.items()
                if mean > limit
            ]
        heads.append(tuple(kept))
    return tuple(heads)


def extend_bias(
    attention: np.ndarray,
    shape: tuple[int, int],
    dirs: Sequence[Direction] = DIRECTIONS,
    threshold: float = 4.0,
) -> np.ndarray:
    """Extend an averaged attention ``(h, m, n)`` to a bias ``(h, M, N)``, float64.

    The paper's steps 2.1 to 2.3: closed cells are -inf, anti-diagonals are aligned at the top
    right and the other lines at the top left, directions combine by their maximum, and a head
    without a line is 0 everywhere. Raises ``UsageError`` for another shape or direction.
    """
    attention = np.asarray(attention)
    if attention.ndim != 3 or 0 in attention.shape:
        raise UsageError(f"attention has shape {attention.shape}: give (heads, rows, keys)")
    unknown = [d for d in dirs if d not in DIRECTIONS]
    if unknown or not dirs:
        given = unknown[0] if unknown else ""
        raise UsageError(f"unknown direction {given!r}: choose among {', '.join(DIRECTIONS)}")
    if len(shape) != 2 or min(shape) < 1:
        raise UsageError(f"shape {shape} is not possible: give (rows, keys), 1 or more each")
    return dense_bias(mean_lines(attention, dirs, threshold), shape)


def dense_bias(heads: Heads, shape: tuple[int, int]) -> np.ndarray:
    """Corner lines as a matrix ``(h, M, N)``, float64, -inf where closed."""
    rows, keys = shape
    row = np.arange(rows)
    bias = np.full((len(heads), rows, keys), -np.inf)
    for matrix, lines in zip(bias, heads, strict=True):
        for line in lines:
            key = corner_key(line.direction, line.offset, row, keys, line.step)
            inside = (key >= 0) & (key < keys)
            at = row[inside], key[inside]
            matrix[at] = np.maximum(matrix[at], line.value)
        if np.isneginf(matrix).all():
            matrix[:] = 0.0
    return bias
