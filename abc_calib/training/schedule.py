"""The learning rate: a cosine with a cooldown, or halved where nothing improves any more."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from abc_calib.config import TrainOptions

NEARLY = 0.8
"""Exact match from which the learning rate cools down."""
PLATEAU = 4
"""Validations without an improvement after which the rate is halved, in both papers' code."""
THRESHOLD = 1e-4
"""What counts as an improvement there, relative to the best (as in PyTorch's scheduler)."""
TIE = 1e-3
"""Accuracies this close are alike, and the later of them counts (Ray Chowdhury & Caragea)."""


def learning_rate(options: TrainOptions, step: int, cooling_from: int | None = None) -> float:
    """Linear warm-up, a cosine to zero at the last step, and the cooldown.

    A model that has just found the algorithm is right four times in five, and at the full rate
    stays there for a long time; so from then on (``cooling_from``) the rate falls linearly to a
    twentieth within ``cooldown`` steps. With the schedule ``plateau`` only the warm-up is left.
    """
    warm = min(1.0, (step + 1) / max(options.warmup, 1))
    if options.schedule == "plateau":
        return options.learning_rate * warm
    cosine = 0.5 * (1 + math.cos(math.pi * step / options.steps))
    cool = 1.0
    if cooling_from is not None and options.cooldown:
        cool = max(0.05, 1 - (step - cooling_from) / options.cooldown)
    return options.learning_rate * warm * cosine * cool


@dataclass(frozen=True)
class PlateauState:
    """Where a training stands after its validations.

    ``factor`` of the learning rate; ``impatience``: validations since the best; ``best``: is the
    last one (with what is as good) the best?
    """

    factor: float = 1.0
    impatience: int = 0
    best: bool = True


def plateau_state(scores: Iterable[float], tie: float = 0.0) -> PlateauState:
    """What follows from the ``scores`` of all validations so far, the higher the better.

    The same for the same scores, so that an interrupted training needs no memory of it. ``tie``:
    scores that are this much lower than the best are as good.
    """
    factor, waited, impatience = 1.0, 0, 0
    highest, top, best = -math.inf, -math.inf, True
    for score in scores:
        if highest == -math.inf or score > highest + THRESHOLD * abs(highest):
            highest, waited = score, 0
        else:
            waited += 1
        if waited > PLATEAU:
            factor, waited = factor / 2, 0
        best = score > top - tie if tie else score > top
        impatience = 0 if best else impatience + 1
        top = max(top, score)
    return PlateauState(factor, impatience, best)
