"""The paper's calibration: average along lines, cut, extend (Duan & Shi, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import torch

from abc_calib.calibration.fits.base import LAST, Evidence, Fit, LineRow, filled
from abc_calib.calibration.fits.nnls import candidates
from abc_calib.config import CalibrationOptions
from abc_calib.errors import UsageError
from abc_calib.geometry import CORNER, DIRECTIONS, Heads, Layout, Line, LineBias, Site
from abc_calib.geometry.coords import View
from abc_calib.geometry.lines import Direction, formula
from abc_calib.nn.lines import Lines


class MeanOptions(CalibrationOptions):
    """A calibration as in the paper: from the corners, the last layer's lines in all layers."""

    layer: Literal["own", "first", "last"] = "last"
    anchors: Literal["segment", "corner"] = "corner"
    values: Literal["hard", "soft"] = "soft"
    empty: Literal["transparent", "sink"] = "transparent"
    average: Literal["all", "digits"] = "all"


Means = list[dict[Line, float]]
"""For every head, the mean along each line that was looked at, as a line of value 0."""


class Mean(Fit):
    """Lines whose mean stands out in the averaged attention."""

    options_type = MeanOptions
    thresholds = (4.0,)

    def __init__(self, evidence: Evidence, options: CalibrationOptions):
        super().__init__(evidence, options)
        self.attention = {s: a for s, a in evidence.averaged.items() if s in options.sites}
        if options.average == "digits":
            layout, length = evidence.data.layout_at(evidence.data.length), evidence.data.length
            self.attention = {
                site: np.where(of_digits(site, layout, length, layers.shape[-2:]), layers, np.nan)
                for site, layers in self.attention.items()
            }
        self.rows: list[LineRow] = []

    def bias(self, threshold: float) -> LineBias:
        self.rows = []
        sites = {site: self._site(site, threshold) for site in self.attention}
        return self.made(sites)

    def table(self, bias: LineBias) -> list[LineRow]:
        return self.rows

    def _site(self, site: Site, threshold: float) -> tuple[Heads, ...]:
        """The lines of every layer of a site; adds them to the table."""
        layers, last = self.attention[site], self.options.layer == "last"
        made = []
        for layer, origin in enumerate(self.origins(len(layers))):
            found, means = self._stand_out(layers[origin], site, threshold)
            if self.options.values == "hard":
                found = tuple(tuple(replace(x, value=0.0) for x in head) for head in found)
            heads = filled(found, site, self.sinks[site])
            made.append(heads)
            if not (last and layer):
                self.rows += _rows(site, LAST if last else layer, heads, found, means)
        return tuple(made)

    def _stand_out(self, matrices: np.ndarray, site: Site, threshold: float) -> tuple[Heads, Means]:
        """The lines of one layer's heads, and the mean along each line."""
        # anti-diagonals of self-attention have no meaning while the output's length is open
        dirs = [d for d in self.options.dirs if not (site == "self" and d == "anti")]
        if not dirs:
            return ((),) * len(matrices), [{} for _ in matrices]
        if self.options.anchors == "segment":
            evidence = self.evidence
            view, first = evidence.views[site], torch.tensor([0])
            one = View(site, view.queries.samples(first), view.keys.samples(first))
            lines = candidates(site, dirs, evidence.parts, evidence.data.length)
            return segment_mean_lines(matrices, lines, one, threshold)
        return mean_lines(matrices, dirs, threshold), [corner_means(x, dirs) for x in matrices]


def _rows(site: Site, layer: int, heads: Heads, found: Heads, means: Means) -> list[LineRow]:
    """The table of a layer; ``found`` is what it has without sinks."""
    rows = []
    for head, lines in enumerate(heads):
        for line in lines:
            weight = means[head].get(replace(line, value=0.0), 0.0) if found[head] else 0.0
            note = "" if found[head] else "sink"
            rows.append(LineRow.of(site, layer, head, line, weight, note))
        if not lines:
            rows.append(LineRow.transparent(site, layer, head))
    return rows


def of_digits(site: Site, layout: Layout, length: int, shape: tuple[int, int]) -> np.ndarray:
    """Which cells of an attention of ``shape (m, n)`` are of digits that are not padding: bool.

    Their row writes, or in the encoder is, one of the last ``length`` digits, and so is their key.
    """
    source = [layout.coordinate(key) for key in range(layout.keys)]
    given = np.array([c.operand is not None and c.column < length for c in source])
    rows, keys = (np.arange(count) for count in shape)
    row = given if site == "encoder" else rows < length
    # what is read at key 1 was written in row 0
    key = (keys > 0) & (keys <= length) if site == "self" else given
    return np.logical_and.outer(row, key)


def line_means(matrix: np.ndarray, direction: Direction) -> dict[int, float]:
    """The mean of ``matrix (m, n)`` along each of its lines, by line index (eq. 1).

    Cells that are nan are left out, and lines of such cells alone.
    """
    row, column = np.nonzero(~np.isnan(matrix))
    if direction == "diag":
        index = column - row
    elif direction == "anti":
        index = matrix.shape[1] - 1 - (row + column)
    else:
        index = column
    lines, inverse = np.unique(index, return_inverse=True)
    sums = np.bincount(inverse, weights=matrix[row, column].astype(np.float64))
    counts = np.bincount(inverse)
    return dict(zip(lines.tolist(), (sums / counts).tolist(), strict=True))


def mean_lines(
    attention: np.ndarray, dirs: Sequence[Direction] = DIRECTIONS, threshold: float = 4.0
) -> Heads:
    """The lines of each head of an averaged attention ``(h, m, n)`` that stand out.

    Kept where ``d_l > mu + threshold * sigma``, with mu and the population standard deviation
    sigma over all lines of that head and direction; valued ``d_l - d_max`` (eq. 2).
    """
    return tuple(outstanding(corner_means(matrix, dirs), threshold) for matrix in attention)


def corner_means(matrix: np.ndarray, dirs: Sequence[Direction]) -> dict[Line, float]:
    """The mean of ``matrix (m, n)`` along each of its corner lines."""
    return {
        Line(direction, CORNER, index): mean
        for direction in dirs
        for index, mean in line_means(matrix, direction).items()
    }


def outstanding(means: dict[Line, float], threshold: float) -> tuple[Line, ...]:
    """The lines whose mean is above the limit of their direction: see ``mean_lines``."""
    kept: list[Line] = []
    for direction in dict.fromkeys(line.direction for line in means):
        mine = {line: m for line, m in means.items() if line.direction == direction}
        values = np.array(list(mine.values()))
        # a head that attends evenly has no line: rounding does not make one
        noise = 1e-12 * np.abs(values).max()
        limit = values.mean() + threshold * values.std() + noise
        kept += [replace(line, value=m - values.max()) for line, m in mine.items() if m > limit]
    return tuple(kept)


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
            key, outside = formula(line, "cross").key((0, keys - 1), row)
            at = row[~outside], key[~outside]
            matrix[at] = np.maximum(matrix[at], line.value)
        if np.isneginf(matrix).all():
            matrix[:] = 0.0
    return bias


def segment_mean_lines(
    matrices: np.ndarray, lines: Sequence[Line], view: View, threshold: float
) -> tuple[Heads, Means]:
    """``mean_lines`` among given lines of any anchor, and the mean along each for every head.

    ``matrices (h, m, n)`` are of one sample's shape, which ``view`` describes. As there, a
    line has to stand out among those of its direction.
    """
    all_means = []
    key, outside = (x[0, 0].numpy() for x in Lines({view.site: (tuple(lines),)}).positions(view))
    row = np.arange(matrices.shape[1])[:, None]
    inside = ~np.broadcast_to(outside, (len(row), len(lines)))
    key = np.broadcast_to(key, inside.shape)
    for matrix in matrices.astype(np.float64):
        cells = np.where(inside, matrix[row, key], np.nan)
        counts = (~np.isnan(cells)).sum(0)
        means = np.nansum(cells, axis=0) / np.maximum(counts, 1)
        looked = zip(lines, means, counts, strict=True)
        all_means.append({line: mean for line, mean, count in looked if count})
    return tuple(outstanding(means, threshold) for means in all_means), all_means
