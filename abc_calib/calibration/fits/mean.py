"""The paper's calibration: average along lines, cut, extend (Duan & Shi, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np

from abc_calib.calibration.fits.base import Evidence, Fit, LineRow
from abc_calib.config import CalibrationOptions
from abc_calib.errors import OptionError, UsageError
from abc_calib.geometry import CORNER, DIRECTIONS, SITES, Heads, Line, LineBias, Site
from abc_calib.geometry.lines import FARTHEST, Direction, formula

END = Line("anti", CORNER, 0, stride=FARTHEST - 1)
"""Of a matrix of any width the cell at the top right: the end of the source in row 0."""
LAST = -1
"""In the table, the layer of lines that were found in the last one and serve all."""


class Mean(Fit):
    """Lines whose mean stands out in the averaged attention."""

    defaults: ClassVar[Mapping[str, str]] = {
        "layer": "last",
        "average": "all",
        "attention": "weights",
    }
    by_share = False
    thresholds = (4.0,)
    closes = False

    def __init__(self, evidence: Evidence, options: CalibrationOptions):
        super().__init__(evidence, options)
        #: of each layer and head the mean (or sum) along each line looked at, of value 0
        self.looked = self.means = dict[Site, list[list[dict[Line, float]]]]()
        for site, layers in evidence.averaged.items():
            if site in options.sites:
                rows = evidence.length if options.average == "sum" else None
                means = [self._along(site, layer[:, :rows]) for layer in layers]
                self.means[site] = [means[origin] for origin in self.origins(len(means))]

    def _along(self, site: Site, matrices: np.ndarray) -> list[dict[Line, float]]:
        """The mean along each line that is looked for, of every head of a layer."""
        # anti-diagonals of self-attention have no meaning while the output's length is open
        dirs = self.options.dirs_at(site)
        dirs = tuple(d for d in dirs if not (site == "self" and d == "anti"))
        summed = self.options.average == "sum"
        return [corner_means(matrix, dirs, summed) for matrix in matrices]

    def bias(self, threshold: float | dict[Site, float]) -> LineBias:
        summed = self.options.average == "sum"
        sites: dict[Site, tuple[Heads, ...]] = {}
        for site, layers in self.means.items():
            k = threshold[site] if isinstance(threshold, dict) else threshold
            end = (END,) if summed and site == "cross" else ()
            sites[site] = tuple(
                tuple((*outstanding(x, k, summed), *end) for x in heads) for heads in layers
            )
        return self.bias_of(sites)

    def share(self, site: Site, layer: int, head: int, line: Line) -> tuple[float, str]:
        return self.means[site][layer][head].get(replace(line, value=0.0), 0.0), ""

    def table(self, bias: LineBias) -> list[LineRow]:
        table = super().table(bias)
        if self.options.layer != "last":
            return table
        return [replace(row, layer=LAST) for row in table if row.layer == 0]


def line_means(matrix: np.ndarray, direction: Direction, summed: bool = False) -> dict[int, float]:
    """The mean of ``matrix (m, n)`` along each of its lines, by line index (eq. 1).

    Cells that are nan are left out, and lines of such cells alone. ``summed``: the sum instead.
    """
    row, column = np.nonzero(~np.isnan(matrix))
    anti = matrix.shape[1] - 1 - row - column
    index = {"diag": column - row, "anti": anti, "vert": column}[direction]
    lines, inverse = np.unique(index, return_inverse=True)
    sums = np.bincount(inverse, weights=matrix[row, column].astype(np.float64))
    counts = 1 if summed else np.bincount(inverse)
    return dict(zip(lines.tolist(), (sums / counts).tolist(), strict=True))


def corner_means(
    matrix: np.ndarray, dirs: Sequence[Direction], summed: bool = False
) -> dict[Line, float]:
    """The mean (or the sum) of ``matrix (m, n)`` along each of its corner lines."""
    return {
        Line(direction, CORNER, index): mean
        for direction in dirs
        for index, mean in line_means(matrix, direction, summed).items()
        if mean or not summed
    }


def outstanding(
    means: dict[Line, float], threshold: float, summed: bool = False
) -> tuple[Line, ...]:
    """The lines of a head that stand out, by the ``means`` along all of its lines.

    Kept where ``d_l > mu + threshold * sigma``, with mu and the population standard deviation
    sigma over all lines of a direction; valued ``d_l - d_max`` (eq. 2). ``summed``: as in the
    public code, ``d_l`` is the sum along the line and its value, and mu and sigma are over the
    different sums that are not zero.
    """
    kept: list[Line] = []
    for direction in dict.fromkeys(line.direction for line in means):
        by_line = {line: m for line, m in means.items() if line.direction == direction}
        values = np.array(list({*by_line.values()} if summed else by_line.values()))
        # a head that attends evenly has no line: rounding does not make one
        noise = 1e-12 * np.abs(values).max()
        limit = values.mean() + threshold * values.std() + noise
        highest = 0 if summed else values.max()
        kept += [replace(line, value=m - highest) for line, m in by_line.items() if m > limit]
    return tuple(kept)


def extend_bias(
    attention: np.ndarray | Sequence[Any],
    shape: tuple[int, int],
    dirs: Sequence[Direction] = DIRECTIONS,
    threshold: float = 4.0,
    average: Literal["all", "sum"] = "all",
    site: Literal["self", "cross"] = "cross",
) -> np.ndarray:
    """Extend an averaged attention ``(h, m, n)`` to a bias ``(h, M, N)``, float64.

    The paper's steps 2.1 to 2.3: closed cells are -inf, anti-diagonals are aligned at the top
    right and the other lines at the top left, directions combine by their maximum, and a head
    without a line is 0 everywhere. A row that no line of its head reaches is -inf throughout:
    softmax of it is nan, and ``scaled_dot_product_attention`` of torch gives zeros.

    ``average="sum"``: as the paper's public code does. A line is kept by the sum of its cells,
    which is its value, and in cross-attention (``site``) every head sees the end of the source in
    row 0, cell (0, N-1). There ``attention`` has the rows below the training length.

    Raises ``UsageError`` for another shape or direction, and for attention that is not finite.
    """
    try:
        attention = np.asarray(attention, dtype=float)
    except (TypeError, ValueError) as error:
        raise UsageError(f"attention is not an array ({error}): give (heads, rows, keys)") from None
    if attention.ndim != 3 or 0 in attention.shape:
        raise UsageError(f"attention has shape {attention.shape}: give (heads, rows, keys)")
    if len(bad := np.argwhere(~np.isfinite(attention))):
        head, row, key = bad[0].tolist()
        raise UsageError(
            f"the attention of head {head}, row {row}, key {key} is {attention[head, row, key]}: "
            "average samples of one shape, in which every row has a key"
        )
    unknown = [*(d for d in dirs if d not in DIRECTIONS), ""]
    if unknown[0] or not dirs:
        raise UsageError(f"unknown direction {unknown[0]!r}: choose among {', '.join(DIRECTIONS)}")
    if not isinstance(threshold, Real) or np.isnan(threshold):
        raise OptionError("threshold", threshold, "give a number of standard deviations")
    if np.shape(shape) != (2,) or min(shape) < 1:
        raise UsageError(f"shape {shape} is not possible: give (rows, keys), 1 or more each")
    for name, choice, allowed in ("average", average, ("all", "sum")), ("site", site, SITES[1:]):
        if choice not in allowed:
            raise OptionError(name, choice, f"choose {' or '.join(allowed)}")
    summed = average == "sum"
    end = (END,) if summed and site == "cross" else ()
    means = (corner_means(matrix, dirs, summed) for matrix in attention)
    return dense_bias(tuple((*outstanding(x, threshold, summed), *end) for x in means), shape)


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
