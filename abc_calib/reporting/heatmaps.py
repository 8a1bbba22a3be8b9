"""Heatmaps of attention and of the biases that calibration reads from it.

As in the paper's figures 3, 4, 7 and 8: one image per head, queries downwards, keys to the right.
All weights of a figure have one colour scale, and all biases another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from abc_calib.reporting.style import (
    LABEL_SIZE,
    SMALL,
    TEXT_WIDTH,
    TITLE_SIZE,
    new_figure,
    styled,
    wrapped,
)

NARROWEST, TALLEST, LOWEST = 0.68, 2.0, 0.3
"""Inches that an image is wide at least, and high at most and at least."""
FLAT = 0.6
"""Height of an image by its width at most, where a figure has many lines of them."""
MARGIN = 0.4
"""Inches for the names of the queries."""
DOTS = 150
"""Cells per inch at most: of more, neighbours are one cell with the highest of their values."""
CLOSED = "#A8A8A8"
"""Cells that a query may not look at."""
WEIGHTS = matplotlib.colormaps["Blues"].with_extremes(bad=CLOSED)
BIASES = LinearSegmentedColormap.from_list(
    "biases", matplotlib.colormaps["OrRd"](np.linspace(0.2, 1, 256))
).with_extremes(bad=CLOSED)
"""Dark red where a key is open (0)."""
NO_LINE = "no line"


@dataclass(frozen=True)
class Block:
    """Heads under one heading: ``matrices (h, i, j)`` and the names of rows and keys.

    ``names (h,)`` and ``notes (h,)``: text over each image, by default ``head 0`` and so on; notes
    are what the head reads, grey where they have ``NO_LINE``. ``additive``: biases, of which
    0 is open and -inf closed, in place of weights.
    """

    matrices: np.ndarray
    row_labels: Sequence[str]
    key_labels: Sequence[str]
    notes: Sequence[str] = ()
    heading: str = ""
    additive: bool = False
    names: Sequence[str] = ()

    def title(self, head: int, width: float) -> str:
        """Return what stands over a head: its name and its note."""
        name = self.names[head] if self.names else f"head {head}"
        texts = [name, *self.notes[head : head + 1]]
        return "\n".join(wrapped(text, width) for text in texts if text)

    def height(self, width: float, most: float) -> float:
        """Return the inches of an image: square cells, unless that is far too high or too low."""
        _, rows, keys = self.matrices.shape
        return min(max(width * rows / keys, LOWEST), most)


@styled
def heatmaps(
    blocks: Sequence[Block], title: str = "", across: int = 4, width: float = TEXT_WIDTH
) -> Figure:
    """Draw one image per head, ``across`` side by side; blocks one below the other.

    ``width``: of the figure, in inches.
    """
    heads = len(blocks[0].matrices)
    lines = -(-heads // max(1, min(across, heads, int((width - MARGIN) / NARROWEST))))
    columns = -(-heads // lines)  # about the same number in each line
    cell, heights = (width - MARGIN) / columns - 0.05, []
    most = FLAT * cell if lines * len(blocks) > 4 else TALLEST
    for block in blocks:
        over = 1 + max(block.title(head, cell).count("\n") for head in range(heads))
        heights.append(lines * (block.height(cell, most) + 0.12 * over + 0.06) + 0.45)
    titled = wrapped(title, width - 0.2, TITLE_SIZE)
    figure = new_figure(width, sum(heights) + 0.65 + 0.16 * titled.count("\n"))
    if title:
        figure.suptitle(titled, x=0.01, ha="left")
    rows = figure.subfigures(len(blocks) + 1, 1, squeeze=False, height_ratios=[*heights, 0.4])
    *parts, scales = rows[:, 0]
    weights, biases = _scale(blocks, additive=False), _scale(blocks, additive=True)
    for part, block in zip(parts, blocks, strict=True):
        if block.heading:
            heading = wrapped(block.heading, width - 0.2, LABEL_SIZE)
            part.suptitle(heading, x=0.01, ha="left", fontsize=LABEL_SIZE, style="italic")
        part.supylabel("query", fontsize=SMALL)
        grid = part.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
        for axes in grid.flat[heads:]:
            axes.set_visible(False)
        for head, axes in enumerate(grid.flat[:heads]):
            size = cell, block.height(cell, most)
            _image(axes, block, head, size, biases if block.additive else weights)
    parts[-1].supxlabel("key", fontsize=SMALL)
    _legend(scales, blocks, weights, biases)
    return figure


def _scale(blocks: Sequence[Block], additive: bool) -> Any:
    """The colours of all weights of a figure, from 0 on, or of all its biases, up to 0."""
    values = [block.matrices.ravel() for block in blocks if block.additive == additive]
    finite = np.concatenate([np.zeros(1), *(x[np.isfinite(x)] for x in values)])
    low, high = finite.min(), finite.max()
    if low == high:
        low, high = (-1.0, 0.0) if additive else (0.0, 1.0)
    return ScalarMappable(Normalize(low, high), BIASES if additive else WEIGHTS)


def _legend(
    part: Any, blocks: Sequence[Block], weights: ScalarMappable, biases: ScalarMappable
) -> None:
    """Draw a bar for each scale, and the colours of open and closed cells."""
    bars = [("weight", weights)] if any(not block.additive for block in blocks) else []
    values = np.concatenate([np.zeros(0), *(x.matrices.ravel() for x in blocks if x.additive)])
    patches = []
    if values[np.isfinite(values)].any():
        bars.append(("bias", biases))
    elif values.size:
        patches.append(Patch(facecolor=BIASES(1.0), label="open (0)"))
    if any(np.isinf(block.matrices).any() for block in blocks):
        patches.append(Patch(facecolor=CLOSED, label="closed (−∞)"))
    for number, (name, scale) in enumerate(bars):
        axes = part.add_axes((0.03 + 0.37 * number, 0.55, 0.2, 0.25))
        part.colorbar(scale, cax=axes, orientation="horizontal")
        axes.text(1.08, 0.5, name, fontsize=SMALL, va="center", transform=axes.transAxes)
        ends = scale.get_clim()
        axes.set_xticks(ends, [f"{end:.2g}" for end in ends])
    if patches:
        part.legend(
            handles=patches, loc="center right", handlelength=0.8, handleheight=0.8,
            ncols=3 - len(bars), columnspacing=1.0,
        )  # fmt: skip


def _image(axes: Axes, block: Block, head: int, size: tuple[float, float], scale: Any) -> None:
    """Draw one head of this width and height; cells that are not finite are closed."""
    matrix, (width, height) = block.matrices[head], size
    rows, keys = matrix.shape
    axes.imshow(
        np.ma.masked_invalid(pooled(matrix, height * DOTS, width * DOTS)), cmap=scale.cmap,
        norm=scale.norm, aspect="auto", interpolation="nearest",
        extent=(-0.5, keys - 0.5, rows - 0.5, -0.5),
    )  # fmt: skip
    is_bare = bool(block.notes) and NO_LINE in block.notes[head]
    axes.set_title(
        block.title(head, width), fontsize=SMALL, pad=2, color="0.45" if is_bare else "black"
    )
    is_short = all(len(label) == 1 for label in block.key_labels)
    _label(axes.xaxis, block.key_labels, width, 5.0 if is_short else SMALL + 2)
    _label(axes.yaxis, block.row_labels, height, SMALL)
    axes.tick_params("x", labelrotation=0 if is_short else 90)


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


def _label(axis: Axis, labels: Sequence[str], inches: float, points: float) -> None:
    """Name as many rows or keys as have room (``points``), those between numbers first."""
    room = max(1, int(inches * 72 / points))
    step = -(-len(labels) // room)
    between = [at for at, name in enumerate(labels) if not name[-1:].isdigit()]
    named = between if len(between) < room else []
    for at in range(len(labels)):
        if all(abs(at - other) >= step for other in named):
            named.append(at)
    axis.set_ticks(named, [labels[at] for at in named])
    axis.set_tick_params(labelsize=SMALL, length=1.5, width=0.4, pad=1.5)
