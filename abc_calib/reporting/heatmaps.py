"""Heatmaps of attention and of the biases that calibration reads from it.

As in the paper's figures 3, 4, 7 and 8: one image a head, queries downwards, keys to the right,
each head on its own colour scale. Cells that are closed (-inf) are dark grey.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from abc_calib.reporting.style import (
    CLOSED,
    LABEL_SIZE,
    OPEN,
    PALETTE,
    SMALL,
    TEXT_WIDTH,
    TITLE_SIZE,
    new_figure,
    styled,
    value_colours,
    wrapped,
)

ACROSS, MOST_ACROSS = 4, 8
"""Heads side by side, and at most."""
NARROWEST, TALLEST, LOWEST = 0.78, 2.0, 0.3
"""Inches that an image is wide at least, and high at most and at least."""
AROUND = 0.6
"""Inches of a block in addition to its images."""
DOTS = 150
"""Cells an inch: of more, neighbours are one cell, which has the highest of their values."""
MARKED = PALETTE[1]


@dataclass(frozen=True)
class Marks:
    """On images of a source longer than those of training, and of an output that is wrong.

    ``rows`` and ``keys``: positions between the tokens within ``length`` and those beyond;
    ``wrong``: the rows that write a wrong token.
    """

    length: int
    rows: Sequence[float] = ()
    keys: Sequence[float] = ()
    wrong: Sequence[int] = ()


@dataclass(frozen=True)
class Block:
    """Heads under one heading: ``matrices (h, i, j)`` and the names of rows and keys.

    ``names (h,)``: of the images, by default ``head 0`` and so on; ``notes (h,)``: a line over
    each, such as the lines of the head. ``transparent (h,)``: heads that the bias leaves alone.
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
    marks: Marks | None = None

    def title(self, head: int, width: float) -> str:
        """The lines over a head: its note, its name and its range."""
        name = self.names[head] if self.names else f"head {head}"
        line = "  ".join(filter(None, [name, value_range(self.matrices[head])]))
        note = self.notes[head] if self.notes else ""
        return "\n".join(wrapped(text, width) for text in (note, line) if text)

    def height(self, width: float) -> float:
        """Inches of an image: square cells, unless that is far too high or too low."""
        _, rows, keys = self.matrices.shape
        return min(max(width * rows / keys, LOWEST), TALLEST)


@styled
def heatmaps(
    blocks: Sequence[Block], title: str = "", across: int = ACROSS, width: float = TEXT_WIDTH
) -> Figure:
    """Draw one image for each head, ``across`` side by side; blocks one below the other.

    ``width``: of the figure, in inches.
    """
    heads = len(blocks[0].matrices)
    columns = max(1, min(across, heads, int((width - 0.35) / NARROWEST)))
    lines = -(-heads // columns)
    columns = -(-heads // lines)  # of about the same number in each line
    cell, heights = (width - 0.35) / columns - 0.08, []
    for block in blocks:
        over = 1 + max(block.title(head, cell).count("\n") for head in range(heads))
        heights.append(lines * (block.height(cell) + 0.12 * over + 0.06) + AROUND)
    titled = wrapped(title, width - 0.2, TITLE_SIZE)
    figure = new_figure(width, sum(heights) + 0.25 + 0.16 * (1 + titled.count("\n")))
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
        for number, axes in enumerate(grid.flat[:heads]):
            _image(axes, block, number, cell)
            _label_axes(axes, block, cell)
    figure.legend(
        handles=list(_legend(blocks)), loc="outside lower right", handlelength=0.8,
        ncols=5 if width > 4 else 3 if width > 2.4 else 1, handleheight=0.8, columnspacing=1.0,
    )  # fmt: skip
    return figure


def _legend(blocks: Sequence[Block]) -> Iterator[Artist]:
    """What the colours and marks mean."""
    colours = value_colours()
    heads = [matrix for block in blocks for matrix in block.matrices]
    blank = [not matrix[np.isfinite(matrix)].any() for matrix in heads]
    closed = [not np.isfinite(matrix).all() for matrix in heads]
    if any(map(all, zip(blank, closed, strict=True))):
        yield Patch(facecolor=colours(1.0), label="open (0)")
    if not all(blank):
        yield Patch(facecolor=colours(0.0), label="lowest")
        yield Patch(facecolor=colours(1.0), label="highest of the head")
    if any(closed):
        yield Patch(facecolor=CLOSED, label="closed (−∞)")
    style: Any = {"color": MARKED, "markersize": 4, "markeredgewidth": 0}
    for marks in [block.marks for block in blocks if block.marks][:1]:
        if marks.rows or marks.keys:
            yield Line2D([], [], **style, ls="--", lw=0.8, label=f"training length {marks.length}")
        if marks.wrong:
            yield Line2D([], [], **style, marker="<", ls="", label="wrong token")


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
    matrix = block.matrices[head]
    rows, keys = matrix.shape
    shown = np.ma.masked_invalid(pooled(matrix, block.height(width) * DOTS, width * DOTS))
    low, high = (float(shown.min()), float(shown.max())) if shown.count() else (0.0, 0.0)
    transparent = bool(block.transparent) and block.transparent[head]
    colours = value_colours()
    if low == high:  # one value only: open where it is a bias, nothing where it is a weight
        low, high = (low - 1.0, high) if block.additive else (low, high + 1.0)
        if transparent:
            colours = ListedColormap([OPEN]).with_extremes(bad=CLOSED)
    axes.imshow(
        shown, cmap=colours, norm=Normalize(low, high), aspect="auto", interpolation="nearest",
        extent=(-0.5, keys - 0.5, rows - 0.5, -0.5),
    )  # fmt: skip
    axes.set_title(block.title(head, width), fontsize=SMALL, pad=2)
    if transparent:
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
        middle: Any = {"ha": "center", "va": "center", "transform": axes.transAxes}
        axes.text(0.5, 0.5, "transparent", fontsize=SMALL, bbox=box, **middle)
    if marks := block.marks:
        for at in marks.rows:
            axes.axhline(at, color=MARKED, linewidth=0.8, linestyle="--")
        for at in marks.keys:
            axes.axvline(at, color=MARKED, linewidth=0.8, linestyle="--")
        if marks.wrong:
            axes.plot(
                [1.02] * len(marks.wrong), marks.wrong, "<", color=MARKED, markersize=3,
                markeredgewidth=0, clip_on=False, transform=axes.get_yaxis_transform(),
            )  # fmt: skip


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


def _label_axes(axes: Axes, block: Block, width: float) -> None:
    """Name rows and keys; names of keys are turned where they do not fit side by side."""
    room = width * 72 / (0.62 * SMALL * max(map(len, block.key_labels)) + 3)
    turned = room < len(block.key_labels)
    axes.tick_params(axis="x", labelrotation=90 if turned else 0)
    _label_axis(axes.xaxis, block.key_labels, width * 72 / (SMALL + 2) if turned else room)
    _label_axis(axes.yaxis, block.row_labels, block.height(width) * 72 / (SMALL + 2))


def _label_axis(axis: Axis, labels: Sequence[str], most: float) -> None:
    named: dict[float, str] = dict(enumerate(labels))
    axis.set_major_locator(MaxNLocator(max(1, min(int(most), len(labels))), integer=True))
    axis.set_major_formatter(lambda at, _: named.get(at, ""))
    axis.set_tick_params(labelsize=SMALL, length=1.5, width=0.4, pad=1.5)
