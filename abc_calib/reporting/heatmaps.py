"""Heatmaps of attention and of the biases that calibration reads from it.

As in the paper's figures 3, 4, 7 and 8: one image per head, queries downwards, keys to the right,
each head on its own colour scale. Cells that are closed (-inf) are dark grey.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LinearSegmentedColormap, ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from abc_calib.reporting.style import (
    LABEL_SIZE,
    SMALL,
    TEXT_WIDTH,
    TITLE_SIZE,
    new_figure,
    styled,
    wrapped,
)

NARROWEST, TALLEST, LOWEST = 0.78, 2.0, 0.3
"""Inches that an image is wide at least, and high at most and at least."""
DOTS = 150
"""Cells per inch at most: of more, neighbours are one cell with the highest of their values."""
CLOSED, OPEN = "#262626", "#E4E4E4"
"""Cells that a row may not look at (neutral, and darker than any value), and of a transparent
head."""
_UPPER = matplotlib.colormaps["viridis"].resampled(256)(range(70, 256))
COLOURS = LinearSegmentedColormap.from_list("upper viridis", _UPPER).with_extremes(bad=CLOSED)
"""Viridis without its dark end, so that low values differ from closed cells."""


@dataclass(frozen=True)
class Block:
    """Heads under one heading: ``matrices (h, i, j)`` and the names of rows and keys.

    ``names (h,)``: of the images, by default ``head 0`` and so on; ``notes (h,)``: text over each,
    such as the lines of the head. ``transparent (h,)``: heads that the bias leaves alone.
    ``additive``: 0 is open, not nothing.
    """

    matrices: np.ndarray
    row_labels: Sequence[str]
    key_labels: Sequence[str]
    notes: Sequence[str] = ()
    transparent: Sequence[bool] = ()
    heading: str = ""
    additive: bool = True
    names: Sequence[str] = ()

    def title(self, head: int, width: float) -> str:
        """Return what stands over a head: its note, its name and its range."""
        name = self.names[head] if self.names else f"head {head}"
        text = f"{name}  {value_range(self.matrices[head])}".strip()
        notes = [self.notes[head]] if self.notes else []
        return "\n".join(wrapped(line, width) for line in (*notes, text))

    def height(self, width: float) -> float:
        """Return the inches of an image: square cells, unless that is far too high or too low."""
        _, rows, keys = self.matrices.shape
        return min(max(width * rows / keys, LOWEST), TALLEST)


@styled
def heatmaps(
    blocks: Sequence[Block], title: str = "", across: int = 4, width: float = TEXT_WIDTH
) -> Figure:
    """Draw one image per head, ``across`` side by side; blocks one below the other.

    ``width``: of the figure, in inches.
    """
    heads = len(blocks[0].matrices)
    lines = -(-heads // max(1, min(across, heads, int((width - 0.35) / NARROWEST))))
    columns = -(-heads // lines)  # about the same number in each line
    cell, heights = (width - 0.35) / columns - 0.08, []
    for block in blocks:
        over = 1 + max(block.title(head, cell).count("\n") for head in range(heads))
        heights.append(lines * (block.height(cell) + 0.12 * over + 0.06) + 0.6)
    titled = wrapped(title, width - 0.2, TITLE_SIZE)
    figure = new_figure(width, sum(heights) + 0.41 + 0.16 * titled.count("\n"))
    if title:
        figure.suptitle(titled, x=0.01, ha="left")
    parts = figure.subfigures(len(blocks), 1, squeeze=False, height_ratios=heights)[:, 0]
    for part, block in zip(parts, blocks, strict=True):
        if block.heading:
            heading = wrapped(block.heading, width - 0.2, LABEL_SIZE)
            part.suptitle(heading, x=0.01, ha="left", fontsize=LABEL_SIZE, style="italic")
        part.supylabel("query", fontsize=SMALL)
        part.supxlabel("key", fontsize=SMALL)
        grid = part.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
        for axes in grid.flat[heads:]:
            axes.set_visible(False)
        for head, axes in enumerate(grid.flat[:heads]):
            _image(axes, block, head, cell)
    figure.legend(
        handles=list(_legend(blocks)), loc="outside lower right", handlelength=0.8,
        ncols=5 if width > 4 else 3 if width > 2.4 else 1, handleheight=0.8, columnspacing=1.0,
    )  # fmt: skip
    return figure


def _legend(blocks: Sequence[Block]) -> Iterator[Artist]:
    """Yield what the colours and marks mean."""
    heads = [matrix for block in blocks for matrix in block.matrices]
    blank = [not matrix[np.isfinite(matrix)].any() for matrix in heads]
    closed = [not np.isfinite(matrix).all() for matrix in heads]
    if any(map(all, zip(blank, closed, strict=True))):
        yield Patch(facecolor=COLOURS(1.0), label="open (0)")
    if not all(blank):
        yield Patch(facecolor=COLOURS(0.0), label="lowest")
        yield Patch(facecolor=COLOURS(1.0), label="highest of the head")
    if any(closed):
        yield Patch(facecolor=CLOSED, label="closed (−∞)")


def value_range(matrix: np.ndarray) -> str:
    """Return the least and the largest finite value of ``matrix (i, j)``, as ``[0.02, 0.97]``.

    Nothing where all of them are 0.
    """
    finite = matrix[np.isfinite(matrix)]
    if not finite.size:
        return "closed"
    if finite.min() == finite.max() == 0:  # open and closed cells alone
        return ""
    low, high = (f"{x:.2f}" if abs(x) >= 0.005 else "0" for x in (finite.min(), finite.max()))
    return (low if low == high else f"[{low},\N{NO-BREAK SPACE}{high}]").replace("-", "−")


def _image(axes: Axes, block: Block, head: int, width: float) -> None:
    """Draw one head on its own colour scale; cells that are not finite are closed."""
    matrix, height = block.matrices[head], block.height(width)
    rows, keys = matrix.shape
    cells = np.ma.masked_invalid(pooled(matrix, height * DOTS, width * DOTS))
    low, high = (float(cells.min()), float(cells.max())) if cells.count() else (0.0, 0.0)
    transparent = bool(block.transparent) and block.transparent[head]
    colours: Any = COLOURS
    if low == high:  # one value only: open where it is a bias, nothing where it is a weight
        low, high = (low - 1.0, high) if block.additive else (low, high + 1.0)
        if transparent:
            colours = ListedColormap([OPEN]).with_extremes(bad=CLOSED)
    axes.imshow(
        cells, cmap=colours, norm=Normalize(low, high), aspect="auto", interpolation="nearest",
        extent=(-0.5, keys - 0.5, rows - 0.5, -0.5),
    )  # fmt: skip
    axes.set_title(block.title(head, width), fontsize=SMALL, pad=2)
    _label(axes.xaxis, block.key_labels, width)
    _label(axes.yaxis, block.row_labels, height)
    axes.tick_params("x", labelrotation=90)
    if transparent:
        box: Any = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
        middle: Any = {"ha": "center", "va": "center", "transform": axes.transAxes}
        axes.text(0.5, 0.5, "transparent", fontsize=SMALL, bbox=box, **middle)


def pooled(matrix: np.ndarray, rows: float, keys: float) -> np.ndarray:
    """Return ``matrix (i, j)`` with about these rows and keys at most: of neighbours the highest.

    So a line of single cells is seen however small the image is.
    """
    for axis, most in enumerate((rows, keys)):
        together = math.ceil(matrix.shape[axis] / max(most, 1))
        if together > 1:
            starts = np.arange(0, matrix.shape[axis], together)
            matrix = np.maximum.reduceat(matrix, starts, axis=axis)
    return matrix


def _label(axis: Axis, labels: Sequence[str], inches: float) -> None:
    """Name as many rows or keys as have room."""
    names: dict[float, str] = dict(enumerate(labels))
    room = max(1, min(int(inches * 72 / (SMALL + 2)), len(labels)))
    axis.set_major_locator(MaxNLocator(room, integer=True))
    axis.set_major_formatter(lambda at, _: names.get(at, ""))
    axis.set_tick_params(labelsize=SMALL, length=1.5, width=0.4, pad=1.5)
