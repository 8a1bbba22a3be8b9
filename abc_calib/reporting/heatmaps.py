"""Heatmaps of attention and of the biases that calibration reads from it.

As in the paper's figures 3, 4, 7 and 8: one image a head, queries downwards, keys to the right,
each head on its own colour scale. Cells that are closed (-inf) are dark grey.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

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
NARROWEST = 0.78
"""Inches that a head takes at least."""
TALLEST, LOWEST, PAGE = 2.0, 0.3, 9.0
"""Inches of an image, and of a page: what is taller becomes several figures."""
AROUND = 0.6
"""Inches of a block besides its images."""
DOTS = 150
"""Cells an inch: of more, neighbours are one cell, which has the highest of their values."""
MOST_TOKENS = 24
"""Up to this number all keys are named, their names turned if need be."""


MARKED = PALETTE[1]


@dataclass(frozen=True)
class Marks:
    """On images of a source longer than those of training, and of an output that is wrong.

    ``rows`` and ``keys``: places between the tokens within ``length`` and those beyond;
    ``wrong``: the rows that write a wrong token.
    """

    length: int
    rows: Sequence[float] = ()
    keys: Sequence[float] = ()
    wrong: Sequence[int] = ()


@dataclass(frozen=True)
class Block:
    """Heads under one heading: ``matrices (h, i, j)`` and the names of rows and keys.

    ``notes (h,)``: over each head, such as its line; what follows a newline goes behind the range.
    ``transparent (h,)``: heads that the bias leaves alone. ``additive``: 0 is open, not nothing.
    ``numbers (h,)``: of the heads, where they are not all; None where images are of other things.
    """

    matrices: np.ndarray
    row_labels: Sequence[str]
    key_labels: Sequence[str]
    notes: Sequence[str] = ()
    transparent: Sequence[bool] = ()
    heading: str = ""
    additive: bool = True
    numbers: Sequence[int] | None = ()
    marks: Marks | None = None

    def title(self, head: int, width: float) -> str:
        """The lines over a head: its note, its number and its range."""
        note, _, mark = (self.notes[head] if self.notes else "").partition("\n")
        name = "" if self.numbers is None else f"head {[*self.numbers, *range(head + 1)][head]}"
        mark = "" if _is_blank(self.matrices[head]) else mark  # it is written into the image
        parts = [name, value_range(self.matrices[head]), mark]
        line = "  ".join(filter(None, parts))
        return "\n".join(wrapped(text, width) for text in (note, line) if text)

    def of(self, heads: slice) -> Block:
        """Some of its heads."""
        numbers = None if self.numbers is None else [*self.numbers] or range(len(self.matrices))
        some = {n: getattr(self, n)[heads] for n in ("matrices", "notes", "transparent")}
        return replace(self, **some, numbers=None if numbers is None else numbers[heads])

    def height(self, width: float) -> float:
        """Inches of an image: square cells, unless that is far too high or too low."""
        _, rows, keys = self.matrices.shape
        return min(max(width * rows / keys, LOWEST), TALLEST)


def on_pages(blocks: Sequence[Block], across: int, width: float) -> list[slice]:
    """The heads of each figure, such that none of more than one line is taller than a page."""
    columns, _, each = _sizes(blocks, across, width)
    lines = max(1, int((PAGE - 0.5 - AROUND * len(blocks)) / sum(each)))
    heads = len(blocks[0].matrices)
    return [slice(i, min(i + lines * columns, heads)) for i in range(0, heads, lines * columns)]


def _sizes(blocks: Sequence[Block], across: int, width: float) -> tuple[int, float, list[float]]:
    """Heads side by side, the inches that one is wide, and the height of its line in each block."""
    heads = len(blocks[0].matrices)
    columns = max(1, min(across, heads, int((width - 0.35) / NARROWEST)))
    columns = -(-heads // -(-heads // columns))  # of about the same number in each line
    cell, each = (width - 0.35) / columns - 0.08, []
    for block in blocks:
        over = 1 + max(block.title(head, cell).count("\n") for head in range(heads))
        each.append(block.height(cell) + 0.12 * over + 0.06)
    return columns, cell, each


@styled
def heatmaps(
    blocks: Sequence[Block], title: str = "", across: int = ACROSS, width: float = TEXT_WIDTH
) -> Figure:
    """One image for each head, ``across`` side by side; blocks of heads one below the other.

    Where there is no room for all names, the axes show delimiters and digits of round numbers.
    ``width``: of the figure, in inches.
    """
    heads = len(blocks[0].matrices)
    columns, cell, each = _sizes(blocks, across, width)
    lines = -(-heads // columns)
    heights = [lines * height + AROUND for height in each]
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
        grid = part.subplots(lines, columns, squeeze=False)
        for number, axes in enumerate(grid.flat):
            if number >= heads:
                axes.set_visible(False)
                continue
            _image(axes, block, number, cell)
            if number % columns:
                axes.set_yticklabels([""] * len(axes.get_yticks()))
            if number + columns < heads:
                axes.set_xticklabels([""] * len(axes.get_xticks()))
    figure.legend(
        handles=list(_legend(blocks)), loc="outside lower right", handlelength=0.8,
        ncols=5 if width > 4 else 3 if width > 2.4 else 1, handleheight=0.8, columnspacing=1.0,
    )  # fmt: skip
    return figure


def _legend(blocks: Sequence[Block]) -> Iterator[Artist]:
    """What the colours and marks mean."""
    colours = value_colours()
    heads = [matrix for block in blocks for matrix in block.matrices]
    if any(_is_blank(matrix) and not np.isfinite(matrix).all() for matrix in heads):
        yield Patch(facecolor=colours(1.0), label="open (0)")
    if not all(map(_is_blank, heads)):
        yield Patch(facecolor=colours(0.0), label="lowest")
        yield Patch(facecolor=colours(1.0), label="highest of the head")
    if any(not np.isfinite(block.matrices).all() for block in blocks):
        yield Patch(facecolor=CLOSED, label="closed (−∞)")
    style: Any = {"color": MARKED, "markersize": 4, "markeredgewidth": 0}
    for marks in {id(block.marks): block.marks for block in blocks if block.marks}.values():
        if marks.rows or marks.keys:
            yield Line2D([], [], **style, ls="--", lw=0.8, label=f"training length {marks.length}")
        if marks.wrong:
            yield Line2D([], [], **style, marker="<", ls="", label="wrong token")


def value_range(matrix: np.ndarray) -> str:
    """The least and the largest finite value of ``matrix (i, j)``, as ``[0.02, 0.97]``.

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
    if block.marks:
        for draw, places in ((axes.axhline, block.marks.rows), (axes.axvline, block.marks.keys)):
            for place in places:
                draw(place, color=MARKED, linewidth=0.8, linestyle="--")
        if wrong := block.marks.wrong:
            axes.plot(
                [1.02] * len(wrong), wrong, "<", color=MARKED, markersize=3, markeredgewidth=0,
                clip_on=False, transform=axes.get_yaxis_transform(),
            )  # fmt: skip
    axes.set_title(block.title(head, width), fontsize=SMALL, pad=2)
    note = block.notes[head].partition("\n")[2] if block.notes else ""
    said = "transparent" if transparent else note if _is_blank(block.matrices[head]) else ""
    axes.text(
        0.5, 0.5, said, transform=axes.transAxes, ha="center", va="center", fontsize=SMALL,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5} if said else None,
    )  # fmt: skip
    _name(axes.yaxis, block.row_labels, block.height(width) * 72 / (SMALL + 0.5))
    _name_keys(axes, block.key_labels, width * 72)


def pooled(matrix: np.ndarray, rows: float, keys: float) -> np.ndarray:
    """``matrix (i, j)`` with about these rows and keys at most: of neighbours the highest value.

    So a line of single cells is seen however small the image is.
    """
    for axis, most in enumerate((rows, keys)):
        together = math.ceil(matrix.shape[axis] / max(most, 1))
        if together > 1:
            starts = np.arange(0, matrix.shape[axis], together)
            matrix = np.maximum.reduceat(matrix, starts, axis=axis)
    return matrix


def _is_blank(matrix: np.ndarray) -> bool:
    """Is nothing there but zeros?"""
    return not matrix[np.isfinite(matrix)].any()


# Names on axes


def _name_keys(axes: Axes, labels: Sequence[str], points: float) -> None:
    """Names of the keys of an image of this width in points, turned where all then fit."""
    room = points / (0.62 * SMALL * max(map(len, labels)) + 3)
    turned = room < len(labels) <= min(MOST_TOKENS, points / (SMALL + 0.2))
    _name(axes.xaxis, labels, len(labels) if turned else room)
    axes.tick_params(axis="x", labelrotation=90 if turned else 0)


def _name(axis: Axis, labels: Sequence[str], most: float) -> None:
    """Name about this number of places at most: delimiters, then digits of round numbers."""
    gap = max(1.0, len(labels) / max(most, 1.0))
    numbers = {i: int(n[0]) for i, name in enumerate(labels) if (n := re.search(r"\d+", name))}
    if len({*labels}) < len(labels):  # tokens, not their places
        numbers = {i: i for i in numbers}
    step = next(s * 10**n for n in range(9) for s in (1, 2, 5) if s * 10**n >= math.ceil(gap))
    delimiters = [i for i in range(len(labels)) if i not in numbers]
    shown: list[int] = []
    for i in (
        *delimiters[:1],
        *delimiters[:0:-1],
        *(i for i, n in numbers.items() if n % step == 0),
    ):
        if all(abs(i - k) >= gap for k in shown):
            shown.append(i)
    shown.sort()
    axis.set_ticks(shown, [labels[i] for i in shown])
    axis.set_tick_params(labelsize=SMALL, length=1.5, width=0.4, pad=1.5)
