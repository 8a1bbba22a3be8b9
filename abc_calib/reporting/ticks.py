"""Names on the axes of small images: as many tokens as there is room for, never overlapping."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import matplotlib
from matplotlib.axes import Axes
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from abc_calib.reporting.style import SMALL

MOST_TOKENS = 24
"""Up to this many keys are all named, their names turned if need be."""
ROOM = 3.5
"""Points between two names."""


def tick_rows(axes: Axes, labels: Sequence[str], height: float, named: bool) -> None:
    """Ticks for the rows of an image that is ``height`` inches high, with names if ``named``."""
    shown = spread(labels, height * 72 / len(labels), [SMALL + 0.2] * len(labels))
    axes.set_yticks(list(shown), list(shown.values()) if named else [""] * len(shown))
    axes.tick_params(axis="y", labelsize=SMALL, length=1.5, width=0.4, pad=1.5)


def tick_keys(axes: Axes, labels: Sequence[str], width: float, named: bool) -> None:
    """Ticks for the keys of an image that is ``width`` inches wide, with names if ``named``."""
    pitch = width * 72 / len(labels)
    turned = _turned(labels, pitch)
    sizes = [SMALL if turned else text_width(label) + ROOM for label in labels]
    shown = spread(labels, pitch, sizes)
    axes.set_xticks(list(shown), list(shown.values()) if named else [""] * len(shown))
    axes.tick_params(axis="x", labelsize=SMALL, length=1.5, width=0.4, pad=1.5)
    if turned:
        axes.tick_params(axis="x", labelrotation=90)


def names_height(labels: Sequence[str], width: float) -> float:
    """Inches that the names of the keys take under an image that is ``width`` inches wide."""
    turned = _turned(labels, width * 72 / len(labels))
    return (4.0 + (max(map(text_width, labels)) if turned else SMALL)) / 72


def text_width(text: str) -> float:
    """Width of a small text in points, in the font of now."""
    return _width(text, tuple(matplotlib.rcParams["font.family"]))


@cache
def _width(text: str, family: tuple[str, ...]) -> float:
    properties = FontProperties(family=list(family))
    return float(TextPath((0, 0), text, SMALL, properties).get_extents().width) if text else 0.0


def _turned(labels: Sequence[str], pitch: float) -> bool:
    """Do the names of the keys all fit if they are turned, and only then?"""
    few = len(labels) <= MOST_TOKENS
    return few and SMALL <= pitch < max(map(text_width, labels)) + ROOM


def spread(labels: Sequence[str], pitch: float, sizes: Sequence[float]) -> dict[int, str]:
    """Which positions are named: all, or the delimiters and then digits of round numbers.

    ``pitch`` points lie between two positions; ``sizes`` are the points that each name takes.
    """
    numbers = [int(found[0]) if (found := re.search(r"\d+", name)) else None for name in labels]
    delimiters = [i for i, number in enumerate(numbers) if number is None]
    others = [i for i, number in enumerate(numbers) if number is not None]
    largest = max((sizes[i] for i in others), default=0.0)
    steps = (step * 10**n for n in range(9) for step in (1, 2, 3, 5) if n == 0 or step != 3)
    step = next((step for step in steps if step * pitch >= largest), 1)
    round_ones = [i for i in others if (numbers[i] or 0) % step == 0]
    shown: list[int] = []
    for wanted in (delimiters[:1], delimiters[:0:-1], round_ones, others):
        if wanted is others and len(shown) > 1:
            break  # not round, but better than no name at all
        for i in wanted:
            if all(abs(i - k) * pitch >= (sizes[i] + sizes[k]) / 2 for k in shown):
                shown.append(i)
    return {i: labels[i] for i in sorted(shown)}
