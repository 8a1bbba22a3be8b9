"""Small images in a grid, measured in inches: one a head, on a page that is filled downwards."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from abc_calib.reporting.style import (
    CLOSED,
    LABEL_SIZE,
    OPEN,
    SMALL,
    TEXT_WIDTH,
    TICK_SIZE,
    TITLE_SIZE,
    new_figure,
    value_colours,
)
from abc_calib.reporting.ticks import names_height, text_width, tick_keys, tick_rows

SCALE = TITLE_SIZE / SMALL / 72
"""Inches of a title for a point of small text."""
LEAST = 0.69
"""Inches: the narrowest panel whose note still fits over it."""
LEFT, RIGHT, GAP, BETWEEN, LINE, AXIS_NAME = 0.40, 0.06, 0.10, 0.06, 0.105, 0.22
"""Inches: margins, space beside and under panels, a line over one, the name under a block."""
TALLEST, LOWEST, NARROW = 2.2, 0.22, 1.2
"""Inches: limits of a panel's height, and the width under which its heading takes two lines."""


@dataclass(frozen=True)
class Panels:
    """A block of panels: the heads of ``matrices (h, i, j)`` and their names.

    ``notes (h,)``: a line over each panel; what follows a newline goes behind the range.
    ``transparent (h,)``: which heads are marked so. ``named``: say which head it is.
    ``heading``: over the block. ``additive``: 0 is open, not nothing. ``numbers``: of the heads,
    where they are not all there are.
    """

    matrices: np.ndarray
    row_labels: Sequence[str]
    key_labels: Sequence[str]
    notes: Sequence[str] = ()
    transparent: Sequence[bool] = ()
    named: bool = True
    heading: str = ""
    additive: bool = True
    numbers: Sequence[int] = ()


class Page:
    """Blocks of panels one under another, ``columns`` panels side by side, or as many as fit."""

    def __init__(
        self, title: str, columns: int, blocks: Sequence[Panels], width: float = TEXT_WIDTH
    ):
        fitting = max(1, int((width - LEFT - RIGHT + GAP) / (LEAST + GAP)))
        self.title, self.columns, self.blocks = title, min(columns, fitting), blocks
        self.width = width
        self.cell = (width - LEFT - RIGHT - (self.columns - 1) * GAP) / self.columns
        self.closed = any(not np.isfinite(block.matrices).all() for block in blocks)

    def draw(self) -> Figure:
        """The figure, as high as its blocks need."""
        title = _wrapped(self.title.split(), (self.width - 0.1) / SCALE)
        beside = len(title) < 2 and text_width(self.title) * SCALE < self.width - 2.9
        header = 0.29 if beside else 0.31 + 0.14 * len(title)
        self.height = header + sum(self._height(block) for block in self.blocks)
        self.figure = new_figure(self.width, self.height)
        text = "\n".join(title)
        self._write(0.05, self.height - 0.05, text, TITLE_SIZE, va="top", linespacing=1.1)
        _legend(self.figure, self.height - header + 0.16, self.closed and self.width > 2.9)
        top = self.height - header
        for block in self.blocks:
            self._block(block, top)
            top -= self._height(block)
        return self.figure

    # Geometry, in inches

    def _panel(self, block: Panels) -> tuple[float, float]:
        """Width and height of a panel: square cells, unless that is far too high or too low."""
        _, rows, keys = block.matrices.shape
        height = min(max(self.cell * rows / keys, LOWEST), TALLEST)
        return min(self.cell, max(height * keys / rows, 4 * LOWEST)), height

    def _over(self, block: Panels) -> float:
        """Height of the lines over a panel."""
        heads = range(len(block.matrices))
        return LINE * max(len(self._heading(block, head)) for head in heads) + 0.05

    def _lines(self, block: Panels) -> int:
        return -(-len(block.matrices) // self.columns)

    def _pitch(self, block: Panels) -> float:
        """From one line of panels to the next."""
        return self._over(block) + self._panel(block)[1] + BETWEEN

    def _height(self, block: Panels) -> float:
        names = names_height(block.key_labels, self._panel(block)[0])
        above = 0.17 if block.heading else 0.0
        return above + self._lines(block) * self._pitch(block) - BETWEEN + names + AXIS_NAME

    # Drawing

    def _write(self, x: float, y: float, text: str, size: float, **options: Any) -> None:
        self.figure.text(x / self.width, y / self.height, text, fontsize=size, **options)

    def _block(self, block: Panels, top: float) -> None:
        bottom = top - self._height(block)
        if block.heading:
            self._write(LEFT, top - 0.01, block.heading, LABEL_SIZE, va="top", style="italic")
            top -= 0.17
        heads = len(block.matrices)
        wide, high = self._panel(block)
        for head in range(heads):
            line, column = divmod(head, self.columns)
            left = LEFT + column * (self.cell + GAP)
            low = top - line * self._pitch(block) - self._over(block) - high
            axes = self.figure.add_axes(
                (left / self.width, low / self.height, wide / self.width, high / self.height)
            )
            _image(axes, block, head, wide)
            tick_rows(axes, block.row_labels, high, column == 0)
            tick_keys(axes, block.key_labels, wide, head + self.columns >= heads)
            for i, text in enumerate(reversed(self._heading(block, head))):
                self._write(left, low + high + 0.03 + i * LINE, text, SMALL, va="bottom")
            if column == 0:
                middle = low + high / 2
                self._write(0.04, middle, "query", TICK_SIZE, rotation=90, va="center")
        middle = LEFT + ((min(heads, self.columns) - 1) * (self.cell + GAP) + wide) / 2
        self._write(middle, bottom + AXIS_NAME, "key", TICK_SIZE, ha="center", va="top")

    def _heading(self, block: Panels, head: int) -> list[str]:
        """The lines over a panel: note, name and range."""
        note, _, mark = (block.notes[head] if block.notes else "").partition("\n")
        number = block.numbers[head] if block.numbers else head
        mark = "" if _is_blank(block.matrices[head]) else mark  # it is written into the panel
        span = f"{value_range(block.matrices[head])}  {mark}".strip()
        lines = [*filter(None, [f"head {number}" if block.named else "", span])]
        if self.cell >= NARROW and lines:
            lines = ["  ".join(lines)]
        words = re.findall(r"\S+ [+−\d]\S*|\S+", note)  # as in vert +1 | seg. 2 | beta +1
        return [*(_wrapped(words, 72 * self.cell) or [""]), *lines] if block.notes else lines


def _wrapped(words: Sequence[str], width: float) -> list[str]:
    """Words in lines of at most so many points of small text, where no word is longer."""
    lines: list[str] = []
    for word in words:
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer) < width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


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
    return (low if low == high else f"[{low}, {high}]").replace("-", "−")


def _image(axes: Axes, block: Panels, head: int, width: float) -> None:
    """Draw one head on its own colour scale; cells that are not finite are closed."""
    shown = np.ma.masked_invalid(block.matrices[head])
    low, high = (float(shown.min()), float(shown.max())) if shown.count() else (0.0, 0.0)
    transparent = bool(block.transparent) and block.transparent[head]
    colours = value_colours()
    if low == high:  # one value only: open where it is a bias, nothing where it is a weight
        low, high = (low - 1.0, high) if block.additive else (low, high + 1.0)
        if transparent:
            colours = ListedColormap([OPEN]).with_extremes(bad=CLOSED)
    note = block.notes[head].partition("\n")[2] if block.notes else ""
    said = "transparent" if transparent else note if _is_blank(block.matrices[head]) else ""
    norm = Normalize(low, high)
    axes.imshow(shown, cmap=colours, norm=norm, aspect="auto", interpolation="nearest")
    for spine in axes.spines.values():
        spine.set_linewidth(0.4)
    if said:
        axes.text(
            0.5,
            0.5,
            said,
            transform=axes.transAxes,
            ha="center",
            va="center",
            fontsize=LABEL_SIZE if width >= NARROW else SMALL,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
        )


def _is_blank(matrix: np.ndarray) -> bool:
    """Is nothing there but zeros?"""
    return not matrix[np.isfinite(matrix)].any()


def _legend(figure: Figure, y: float, closed: bool) -> None:
    """What the colours mean, at the right, with its base ``y`` inches above the bottom."""
    width, height = figure.get_size_inches()
    side = 0.09
    right = width - RIGHT

    def write(text: str) -> None:
        nonlocal right
        at = (y + side / 2) / height
        figure.text(right / width, at, text, fontsize=SMALL, ha="right", va="center_baseline")
        right -= text_width(text) / 72 + 0.05

    if closed:
        write("closed (−∞)")
        right -= side
        corner = (right / width, y / height)
        square = Rectangle(
            corner, side / width, side / height, color=CLOSED, linewidth=0,
            transform=figure.transFigure,
        )  # fmt: skip
        figure.add_artist(square)
        right -= 0.2
    write("highest of the head")
    right -= 0.5
    axes = figure.add_axes((right / width, y / height, 0.5 / width, side / height))
    axes.imshow(np.linspace(0, 1, 128)[None], cmap=value_colours(), aspect="auto")
    axes.set_axis_off()
    axes.set_xticks([])
    axes.set_yticks([])
    right -= 0.05
    write("lowest")
