"""Accuracy against length."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from abc_calib.errors import UsageError
from abc_calib.reporting.looks import Look, lanes, looks
from abc_calib.reporting.style import (
    COLUMN_WIDTH,
    LABEL_SIZE,
    SMALL,
    TICK_SIZE,
    TITLE_SIZE,
    new_figure,
    styled,
)
from abc_calib.reporting.ticks import text_width

MANY = 20
"""With more lengths than this, the axis names only round ones."""

Point = tuple[int, float, float, float]
"""A length, and its accuracy and the two ends of its 95 % interval in percent."""


@styled
def accuracy_curve(
    series: Mapping[str, Sequence[Point]],
    *,
    title: str,
    train_length: int,
    unit: str = "digits of an operand",
    measure: str = "exact match (%)",
    percent: bool = True,
    single: Mapping[str, Sequence[Sequence[tuple[int, float]]]] | None = None,
    top: Collection[str] = (),
) -> Figure:
    """Exact match, or another ``measure``, against length, one line a series, a column wide.

    Lengths are on a logarithmic axis. Shaded: the 95 % intervals; or, with ``single``, thin: the
    curve of each seed, by series. Dashed: ``train_length``, where interpolation ends. ``top``: the
    series that matter, drawn last and thicker. Curves that run along each other are drawn beside
    each other, a little towards the middle.
    """
    empty = [name for name, points in series.items() if not points]
    if empty or not series:
        of = f" of {empty[0]}" if empty else ""
        raise UsageError(f"there are no accuracies{of} to draw: run abc eval first")
    lengths = sorted({point[0] for points in series.values() for point in points})
    names = [*series, f"training length {train_length}"]
    largest = max(point[3] for points in series.values() for point in points)
    look, lane = looks(list(series)), _lanes(series, top, 100.0 if percent else largest)
    names += [SET_APART] if any(lane.values()) else []
    columns = 2 if max(map(text_width, names)) < 85 else 1
    margins = ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.02)
    figure = new_figure(COLUMN_WIDTH, 2.1 + 0.14 * -(-len(names) // columns), layout=margins)
    axes = figure.add_subplot()
    mark = axes.axvline(train_length, color="0.35", linewidth=0.8, linestyle="--")
    lines = []
    for name, points in series.items():
        way = partial(_beside, lane=lane[name], middle=50.0 if percent else largest / 2)
        drawn = Curve(name, look[name], way, name in top)
        drawn.seeds(axes, (single or {}).get(name, ()))
        lines.append(drawn.line(axes, points, lengths, band=single is None))
    axes.set_xlabel(unit, fontsize=LABEL_SIZE)
    axes.set_ylabel(measure, fontsize=LABEL_SIZE)
    _axes(axes, title, lengths, train_length)
    if percent:
        axes.set_ylim(-4, 104)
        axes.set_yticks([0, 25, 50, 75, 100])
    else:
        axes.set_ylim(bottom=0)
    handles: list[Artist] = [
        *lines,
        mark,
        *([Line2D([], [], linewidth=0)] * (len(names) - len(lines) - 1)),
    ]
    figure.legend(
        handles, names, loc="outside lower center", ncols=columns, fontsize=TICK_SIZE,
        frameon=False, handlelength=2.6, columnspacing=1.2, labelspacing=0.25, borderpad=0.1,
    )  # fmt: skip
    return figure


SET_APART = "(equal curves set apart)"
NEAR = 0.015
"""How near curves are that run along each other, of the largest value."""
APART = 0.04
"""How far, of the way to the middle, one lane is from the next."""


def _lanes(
    series: Mapping[str, Sequence[Point]], top: Collection[str], largest: float
) -> dict[str, int]:
    """The lane of each series: 0 is where its numbers are, which ``top`` has first."""
    first = sorted(series, key=lambda name: name not in top)
    near = NEAR * largest
    found = lanes([[(p[0], p[1]) for p in series[name]] for name in first], near)
    return dict(zip(first, found, strict=True))


def _beside(value: float, lane: int, middle: float) -> float:
    """A value in its lane: drawn towards the middle, so that the order of values stays."""
    return middle + (value - middle) * (1 - APART * lane)


@dataclass(frozen=True)
class Curve:
    """How one series is drawn: ``way`` puts a value into its lane."""

    name: str
    look: Look
    way: Callable[[float], float]
    is_top: bool

    def seeds(self, axes: Axes, single: Sequence[Sequence[tuple[int, float]]]) -> None:
        """The curves of single seeds, thin; one alone is the median."""
        if len(single) < 2:
            return
        for points in single:
            lengths, values = zip(*sorted(points), strict=True)
            axes.plot(
                lengths, [self.way(v) for v in values], color=self.look.colour, linewidth=0.5,
                alpha=0.45, zorder=2.5, clip_on=False,
            )  # fmt: skip

    def line(
        self, axes: Axes, points: Sequence[Point], within: Sequence[int], band: bool
    ) -> Line2D:
        """The curve itself, with its intervals if they are to be shown."""
        lengths, *values = zip(*sorted(points), strict=True)
        middle, low, high = ([self.way(v) for v in part] for part in values)
        colour = self.look.colour
        if band:
            axes.fill_between(lengths, low, high, color=colour, alpha=0.18, linewidth=0)
            axes.vlines(lengths, low, high, color=colour, alpha=0.5, linewidth=0.6)
        (drawn,) = axes.plot(
            lengths, middle, label=self.name, color=colour, linestyle=self.look.dash,
            linewidth=1.9 if self.is_top else 1.1, marker=self.look.marker,
            markersize=4.2 if self.is_top else 3.4, markeredgewidth=0.8,
            markerfacecolor=colour if self.is_top else "white",
            clip_on=False, zorder=4 if self.is_top else 3, markevery=_marked(lengths, within),
        )  # fmt: skip
        return drawn


def _axes(axes: Axes, title: str, lengths: Sequence[int], train_length: int) -> None:
    axes.set_title(title, fontsize=TITLE_SIZE, loc="left")
    axes.set_xscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    shown = _spread(lengths, [train_length])
    axes.set_xticks(shown, [f"{length:,}" for length in shown])
    axes.tick_params(labelsize=TICK_SIZE)
    axes.grid(axis="y", color="0.9", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _spread(lengths: Sequence[int], first: Sequence[int] = ()) -> list[int]:
    """The lengths to name on the axis: the ends, then ``first``, then round ones, then others."""

    def rank(length: int) -> int:
        if length in (lengths[0], lengths[-1]):
            return 0
        digits = str(length).rstrip("0")
        return 1 if length in first else 2 if digits == "1" else 3 if digits in "25" else 4

    def is_round(length: int) -> bool:
        return rank(length) < 4 or len(str(length).rstrip("0")) < len(str(length)) < 3

    places = _places(lengths)
    sizes = {x: text_width(f"{x:,}") * TICK_SIZE / SMALL + 4 for x in lengths}
    shown: list[int] = []
    for x in sorted(filter(is_round, lengths) if len(lengths) > MANY else lengths, key=rank):
        if all(abs(places[x] - places[y]) >= (sizes[x] + sizes[y]) / 2 for y in shown):
            shown.append(x)
    return sorted(shown)


def _marked(lengths: Sequence[int], within: Sequence[int]) -> list[int]:
    """Which of ``lengths`` get a marker, by index, so that markers do not merge."""
    places = _places(within)
    marked = [0]
    for i, length in enumerate(lengths):
        if places[length] - places[lengths[marked[-1]]] >= 3.5:
            marked.append(i)
    return [*marked[: max(1, len(marked) - 1)], len(lengths) - 1] if len(lengths) > 1 else marked


def _places(lengths: Sequence[int]) -> dict[int, float]:
    """Where each length lies on the logarithmic axis, in points, nearly."""
    span = math.log(lengths[-1] / lengths[0]) or 1.0
    return {length: 180 * math.log(length / lengths[0]) / span for length in lengths}
