"""The look of a curve: it follows its name, so that a model is drawn alike in every figure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from abc_calib.reporting.style import MARKERS, PALETTE

DASHES = ("-", (0, (4, 1.6)), (0, (1.2, 1.2)))
"""Solid, dashed, dotted."""

KNOWN: tuple[tuple[str, ...], ...] = (
    ("calibrated", "ABC", "Transformer + ABC", "scoring"),
    ("vanilla", "Vanilla", "Transformer", "decoding"),
    ("Content", "ALiBi"),
    ("Relative", "RoPE"),
    ("Bi-Relative", "RPE"),
    ("OneStepAttn",),
    ("MonoAttn",),
    ("LocAttn", "Location"),
    ("− Step 2", "Scaled dot"),
    ("− Step 3", "Multiplicative"),
    ("− Sigmoid", "Additive"),
    ("RMonoAttn", "TransformerXL"),
    ("Mix",),
)
"""Names in the order of colours, then of colours with dashes; those of one line never meet."""
SETS = ("random", "carry", "hard")
"""What may follow a name and a comma: test sets, in the order of dashes."""


class Look(NamedTuple):
    """Of one curve."""

    colour: str
    marker: str
    dash: str | tuple[int, tuple[float, ...]]


def looks(names: Sequence[str]) -> dict[str, Look]:
    """One look for each name, all different."""
    numbers = {name: i for i, alike in enumerate(KNOWN) for name in alike}
    taken = {numbers[_model(name)] for name in names if _model(name) in numbers}
    free = (i for i in range(len(names) + len(KNOWN)) if i not in taken)
    for name in dict.fromkeys(map(_model, names)):
        if name not in numbers:
            numbers[name] = next(free)
    return {name: _look(numbers[_model(name)], name) for name in names}


def _model(name: str) -> str:
    """``vanilla`` of ``vanilla, carry``."""
    model, _, kind = name.rpartition(", ")
    return model if kind in SETS else name


def _look(number: int, name: str) -> Look:
    kind = name.rpartition(", ")[2]
    among = SETS.index(kind) if kind in SETS and ", " in name else 0
    colour, dash = number % len(PALETTE), number // len(PALETTE) + among
    marker = MARKERS[(colour + 2 * among) % len(MARKERS)]
    return Look(PALETTE[colour], marker, DASHES[dash % len(DASHES)])


def lanes(curves: Sequence[Iterable[tuple[float, float]]], near: float) -> list[int]:
    """A lane for each curve, such that those of one lane never run along each other.

    Curves are points (x, y) on a logarithmic axis; they run along each other where they are no
    further than ``near`` at two neighbouring x of either, or at the only one that one of them has.
    """
    points = [dict(curve) for curve in curves]
    found: list[int] = []
    for i, mine in enumerate(points):
        beside = {found[k] for k in range(i) if _together(mine, points[k], near)}
        found.append(next(lane for lane in range(len(points)) if lane not in beside))
    return found


def _together(one: dict[float, float], other: dict[float, float], near: float) -> bool:
    first, last = max(min(one), min(other)), min(max(one), max(other))
    shared = [x for x in sorted(one.keys() | other.keys()) if first <= x <= last]
    meets = [abs(_at(one, x) - _at(other, x)) <= near for x in shared]
    if len(one) == 1 or len(other) == 1:
        return any(meets)
    return any(a and b for a, b in pairwise(meets))


def _at(curve: dict[float, float], x: float) -> float:
    """The height of a curve at x, on the straight line between its neighbours."""
    xs = sorted(curve)
    return float(np.interp(np.log(x), np.log(xs), [curve[at] for at in xs]))
