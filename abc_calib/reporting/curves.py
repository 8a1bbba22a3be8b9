"""Accuracy against length, the look of a curve, which follows its name."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from abc_calib.errors import UsageError
from abc_calib.reporting.style import (
    COLUMN_WIDTH,
    MARKERS,
    PALETTE,
    SMALL,
    new_figure,
    plain_axes,
    styled,
)

Point = tuple[int, float, float, float]
"""A length, and its accuracy and the two ends of its 95 % interval in percent."""
DASHES = ("-", (0, (4, 1.6)), (0, (1.2, 1.2)))
"""Solid, dashed, dotted."""
FIRST = ("calibrated", "ABC", "vanilla", "Vanilla")
"""Names whose colours are the first ones, those of no other in whichever figure."""
SETS = (", random", ", carry", ", hard")
"""What may follow the name of a model: test sets, in the order of dashes."""


class Look(NamedTuple):
    """The look of one curve."""

    colour: str
    marker: str
    dash: Any


def looks(names: Sequence[str]) -> dict[str, Look]:
    """Return a look for each name: a colour per model, dashes and markers per test set."""
    models = {name: name.rsplit(", ", 1)[0] if name.endswith(SETS) else name for name in names}
    others = itertools.count(2)
    numbers = {
        model: FIRST.index(model) // 2 if model in FIRST else next(others)
        for model in dict.fromkeys(models.values())
    }
    chosen = {}
    for name, model in models.items():
        dash, colour = divmod(numbers[model], len(PALETTE))
        among = SETS.index(name.removeprefix(model)) if name != model else 0
        marker = MARKERS[(colour + 2 * among) % len(MARKERS)]
        chosen[name] = Look(PALETTE[colour], marker, DASHES[(dash + among) % len(DASHES)])
    return chosen


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
    width: float = COLUMN_WIDTH,
) -> Figure:
    """Exact match, or another ``measure``, against length, one line a series.

    Lengths are on a logarithmic axis. Shaded: the 95 % intervals; or, with ``single``, thin: the
    curve of each seed, by series. Dashed: ``train_length``, where interpolation ends. ``top``: the
    series that matter, drawn thicker. Markers of earlier ones are larger: equal ones are seen.
    ``width``: in inches.
    """
    empty = [name for name, points in series.items() if not points]
    if empty or not series:
        of = f" of {empty[0]}" if empty else ""
        raise UsageError(f"there are no accuracies{of} to draw: run abc eval first")
    lengths = sorted({point[0] for points in series.values() for point in points})
    columns = 2 if max(map(len, series)) < 24 else 1
    figure = new_figure(width, 2.1 + 0.14 * -(-(len(series) + 1) // columns))
    axes = figure.add_subplot()
    mark = axes.axvline(train_length, color="0.35", linewidth=0.8, linestyle="--")
    look = looks(list(series))
    for number, (name, points) in enumerate(series.items()):
        for seed in (single or {}).get(name, ()):
            x, y = zip(*sorted(seed), strict=True)
            axes.plot(x, y, color=look[name].colour, linewidth=0.5, alpha=0.45, clip_on=False)
        if single is None:
            x, _, low, high = zip(*sorted(points), strict=True)
            axes.fill_between(x, low, high, color=look[name].colour, alpha=0.18, linewidth=0)
        x, y = zip(*((x, y) for x, y, *_ in sorted(points)), strict=True)
        size = 3.6 + 2.4 * (1 - number / len(series))
        axes.plot(
            x, y, label=name, color=look[name].colour, linestyle=look[name].dash,
            linewidth=1.9 if name in top else 1.2, marker=look[name].marker, markeredgewidth=0.8,
            markersize=size, markerfacecolor=look[name].colour if name in top else "white",
            clip_on=False, zorder=4 if name in top else 3,
        )  # fmt: skip
    axes.set_title(title)
    axes.set_xlabel(unit)
    axes.set_ylabel(measure)
    _scale(axes, _named(lengths, train_length, width), percent)
    figure.legend(
        [*axes.get_legend_handles_labels()[0], mark], [*look, f"training length {train_length}"],
        loc="outside lower center", ncols=columns, handlelength=2.6, columnspacing=1.2,
        labelspacing=0.25, borderpad=0.1,
    )  # fmt: skip
    return figure


def _scale(axes: Axes, named: Sequence[int], percent: bool) -> None:
    """Lengths on a logarithmic axis, of which some are ``named``."""
    axes.set_xscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(named, [f"{length:,}" for length in named])
    if percent:
        axes.set(ylim=(-4, 104), yticks=[0, 25, 50, 75, 100])
    else:
        axes.set_ylim(bottom=0)
    plain_axes(axes)


def _named(lengths: Sequence[int], first: int, inches: float) -> list[int]:
    """The lengths to name on an axis: the ends, ``first``, and round ones with room around them."""

    def rank(length: int) -> tuple[bool, bool, int, int]:
        leading = str(length).rstrip("0")
        inner = length not in (lengths[0], lengths[-1])
        return inner, length != first, len(leading), int(leading) not in (1, 2, 5)

    points = 54 * inches / (math.log(lengths[-1] / lengths[0]) or 1.0)
    named: list[int] = []
    for x in sorted(lengths, key=rank):
        if all(
            points * abs(math.log(x / y)) >= SMALL * (len(f"{x:,}{y:,}") + 2) / 3 for y in named
        ):
            named.append(x)
    return sorted(named)


@styled
def history_curve(history: Sequence[Mapping[str, float]], title: str = "") -> Figure:
    """Held-out accuracy in percent against the step of a training."""
    figure = new_figure(COLUMN_WIDTH, 2.1)
    axes = figure.add_subplot()
    steps = [entry["step"] for entry in history]
    accuracy = [entry["validation_accuracy"] for entry in history]
    axes.plot(steps, accuracy, color=PALETTE[0], marker="o", markersize=3, linewidth=1.2)
    axes.set_title(title)
    axes.set_xlabel("step")
    axes.set_ylabel("held-out accuracy (%)")
    axes.set_ylim(-4, 104)
    plain_axes(axes)
    return figure
