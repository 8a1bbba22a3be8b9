"""The paper's means along lines that count from delimiters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from abc_calib.geometry.lines import Heads, Line
from abc_calib.nn.biases import Frame, LayerBias


def segment_mean_lines(
    matrices: np.ndarray, lines: Sequence[Line], frame: Frame, threshold: float
) -> tuple[Heads, list[dict[Line, float]]]:
    """``mean_lines`` among given lines of any anchor, and the mean along each for every head.

    ``matrices (h, m, n)`` are of one sample's shape, which ``frame`` describes. As there, a
    line has to stand out among those of its direction.
    """
    heads, all_means = [], []
    key, outside = (
        x[0, 0].numpy() for x in LayerBias((tuple(lines),), frame.site).positions(frame)
    )
    row = np.arange(matrices.shape[1])[:, None]
    inside = ~np.broadcast_to(outside, (len(row), len(lines)))
    key = np.broadcast_to(key, inside.shape)
    for matrix in matrices.astype(np.float64):
        sums = np.where(inside, matrix[row, key], 0.0).sum(0)
        means = dict(zip(lines, sums / np.maximum(inside.sum(0), 1), strict=True))
        kept: list[Line] = []
        for direction in dict.fromkeys(line.direction for line in lines):
            mine = {line: m for line, m in means.items() if line.direction == direction}
            values = np.array(list(mine.values()))
            limit = values.mean() + threshold * values.std() + 1e-12 * np.abs(values).max()
            top = float(values.max())
            kept += [replace(line, value=m - top) for line, m in mine.items() if m > limit]
        heads.append(tuple(kept))
        all_means.append(means)
    return tuple(heads), all_means
