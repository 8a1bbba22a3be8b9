"""Accuracy against length, the look of a curve, which follows its name."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from abc_calib.errors import UsageError
from abc_calib.reporting.style import (
    COLUMN_WIDTH,
    LABEL_SIZE,
    MARKERS,
    PALETTE,
    SMALL,
    new_figure,
    plain_axes,
    styled,
    wrapped,
)

Point = tuple[int, float, float, float]
"""A length, and its accuracy and the two ends of its 95 % interval in percent."""
DASHES = ("-", (0, (4, 1.6)), (0, (1.2, 1.2)))
"""Solid, dashed, dotted."""
FIRST = ("after calibration", "ABC", "after", "before calibration", "Vanilla", "before")
"""Stages, whose colours are the first ones; others are those of no stage in whichever figure."""
LINE = 0.125
"""Inches of a line of a curve's name."""
MANY = 20
"""Points. Of more, some have a marker: a tenth of the diagonal of the axes lies between two."""
NARROW = 5.0
"""Width in inches below which the names of curves are written above the axes, not at the right."""
SETS = ("random", "carry", "hard")
"""Test sets, in the order of dashes."""
OF_SETS = re.compile(f", ({'|'.join(SETS)})( and .*)?$")
"""What may follow the name of a model: its test sets."""


class Look(NamedTuple):
    """The look of one curve."""

    colour: str
    marker: str
    dash: Any

    def style(self, is_top: bool, thin: bool = False) -> dict[str, Any]:
        """Return it as matplotlib's keywords; ``is_top``: thick and filled."""
        thick = (1.3, 0.8) if thin else (1.9, 1.2)
        return {
            "color": self.colour, "linestyle": self.dash, "marker": self.marker, "clip_on": False,
            "linewidth": thick[not is_top], "markeredgewidth": 0.6 if thin else 0.8,
            "zorder": 3 + is_top,
            "markerfacecolor": self.colour if is_top else "white",
        }  # fmt: skip


def looks(names: Sequence[str]) -> dict[str, Look]:
    """Return a look for each name: a colour per model, dashes per test set, a marker of its own."""
    models = {name: OF_SETS.sub("", name) for name in names}
    others = itertools.count(2)
    numbers, chosen = dict[str, int](), {}
    for model in dict.fromkeys(models.values()):  # the first of a stage has the stage's colour
        parts = model.split(", ") if "calibration" in model else [model]
        stages = [FIRST.index(part) // 3 for part in parts if part in FIRST]
        is_first = bool(stages) and stages[0] not in numbers.values()
        numbers[model] = stages[0] if is_first or model in FIRST else next(others)
    for number, (name, model) in enumerate(models.items()):
        dash, colour = divmod(numbers[model], len(PALETTE))
        sets = OF_SETS.search(name)
        among = SETS.index(sets[1]) if sets else 0
        marker = MARKERS[number % len(MARKERS)]
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
    single: Mapping[str, Sequence[Sequence[tuple[int, float]]]] | None = None,
    top: Collection[str] = (),
    width: float = COLUMN_WIDTH,
) -> Figure:
    """Exact match, or another ``measure``, against length, one line a series.

    Lengths are on a logarithmic axis. Shaded: the 95 % intervals, none where all problems were
    tested; or, with ``single``, thin: the curve of each seed, by series. Dotted: ``train_length``,
    where interpolation ends. ``top``: the series that matter, drawn thicker. Of equal curves the
    earlier has larger markers; where points are many, their markers stand apart. ``width``: in
    inches.
    """
    empty = [name for name, points in series.items() if not points]
    if empty or not series:
        of = f" of {empty[0]}" if empty else ""
        raise UsageError(f"there are no accuracies{of} to draw: run abc eval first")
    lengths = sorted({point[0] for points in series.values() for point in points})
    figure, axes = _figure(width, list(series))
    narrow = width < NARROW
    most = MANY // 2 if narrow else MANY
    axes.axvline(train_length, color="0.35", linewidth=0.9, linestyle=":")
    look = looks(list(series))
    for number, (name, points) in enumerate(series.items()):
        for seed in (single or {}).get(name, ()):
            x, y = zip(*sorted(seed), strict=True)
            axes.plot(x, y, color=look[name].colour, linewidth=0.5, alpha=0.45, clip_on=False)
        x, y, low, high = zip(*sorted(points), strict=True)
        if single is None:
            axes.fill_between(x, low, high, color=look[name].colour, alpha=0.18, linewidth=0)
        style = look[name].style(name in top, narrow)
        style["markersize"] = (2.4 if narrow else 3.6) + 2.4 * (1 - number / len(series))
        if len(points) > most:
            style["markevery"] = (0.1 * number / len(series), 0.1)
        axes.plot(x, y, label=name, **style)
    axes.set_title(title)
    note = f"dotted: training length {train_length}"
    if single is None and any(low < high for points in series.values() for *_, low, high in points):
        note += "; shaded: 95 % intervals"
    if any(len(points) > most for points in series.values()):
        note += "; markers: not at each length"
    inches = (0.9 if narrow else 0.55) * width
    note = wrapped(note, inches, LABEL_SIZE)
    axes.set_xlabel(f"{unit}\n({note})", linespacing=1.4)
    axes.set_ylabel(measure)
    _scale(axes, _named(lengths, train_length, inches), "%" in measure)
    styles = {name: look[name].style(name in top, narrow) for name in series}
    _name(axes, styles, [max(points)[1] for points in series.values()])
    return figure


def _wrapped(names: Iterable[str], width: float) -> list[str]:
    """Break names of curves into the room that a figure has for them."""
    return [wrapped(name, (0.85 if width < NARROW else 0.3) * width) for name in names]


def _figure(width: float, names: Sequence[str], height: float = 2.3) -> tuple[Figure, Axes]:
    """Make a figure with room for the names of its curves."""
    inches = LINE * sum(name.count("\n") + 1 for name in _wrapped(names, width))
    figure = new_figure(width, height + inches if width < NARROW else max(height, 0.7 + inches))
    return figure, figure.add_subplot()


def _name(axes: Axes, styles: Mapping[str, dict[str, Any]], ends: Sequence[float]) -> None:
    """Write the name of each curve with a piece of it: above, or at the right, near its end."""
    figure: Figure = axes.get_figure()  # type: ignore[assignment]
    names = _wrapped(styles, figure.get_figwidth())
    if figure.get_figwidth() < NARROW:
        pieces = [Line2D([], [], **{**style, "markersize": 4}) for style in styles.values()]
        figure.legend(
            pieces, names, loc="outside upper left", labelcolor="markeredgecolor", labelspacing=0.2,
            borderpad=0, borderaxespad=0.2, handlelength=2.4,
        )  # fmt: skip
        return
    low, high = axes.get_ylim()
    inches = figure.get_figheight() - 0.7
    heights = [LINE * (name.count("\n") + 1) / inches for name in names]
    order = sorted(range(len(names)), key=lambda k: -ends[k])
    at, room = [(end - low) / (high - low) for end in ends], 1.0
    for k in order:
        at[k] = min(at[k], room - heights[k] / 2)
        room = at[k] - heights[k] / 2
    room = 0.0
    for k in reversed(order):  # those that were pushed out below
        at[k] = max(at[k], room + heights[k] / 2)
        room = at[k] + heights[k] / 2
    for y, name, style in zip(at, names, styles.values(), strict=True):
        axes.plot(
            [1.03, 1.12], [y, y], transform=axes.transAxes, markersize=4, markevery=[1], **style
        )
        axes.text(
            1.16, y, name, color=style["color"], fontsize=SMALL, va="center",
            linespacing=1.0, transform=axes.transAxes,
        )  # fmt: skip


def _scale(axes: Axes, named: Sequence[int], percent: bool) -> None:
    """Scale the axes: lengths, of which some are ``named``, by their logarithm."""
    axes.set_xscale("log")
    axes.set_xticks([], minor=True)
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
            points * abs(math.log(x / y)) >= 0.3 * SMALL * (len(f"{x:,}{y:,}") + 1) for y in named
        ):
            named.append(x)
    return sorted(named)


@styled
def history_curve(histories: Mapping[str, Sequence[Mapping[str, float]]]) -> Figure:
    """Held-out accuracy in percent against the step of each training, by name."""
    figure, axes = _figure(COLUMN_WIDTH, list(histories), height=2.0)
    look = looks(list(histories))
    for name, history in histories.items():
        steps = [entry["step"] for entry in history]
        accuracy = [entry["validation_accuracy"] for entry in history]
        axes.plot(steps, accuracy, markersize=4, **look[name].style(False))
    axes.set_xlabel("step")
    axes.set_ylabel("held-out accuracy (%)")
    axes.set_ylim(-4, 104)
    plain_axes(axes)
    ends = [history[-1]["validation_accuracy"] for history in histories.values()]
    _name(axes, {name: look[name].style(False) for name in histories}, ends)
    return figure
