"""Choosing between candidate biases without looking beyond the training lengths.

Each candidate is tried on a small extrapolation inside the training lengths: a fresh model is
trained briefly on operands of at most two thirds of the digits, and judged on the lengths that
are left. Lines that belong to the algorithm carry over; lines that only help at the lengths
they were found at do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from abc_calib.calibration.plan import retrained_shape
from abc_calib.data import Data
from abc_calib.evaluation import exact_matches
from abc_calib.geometry import LineBias
from abc_calib.nn.base import Model
from abc_calib.training.step import fit_briefly

STEPS = 300
JUDGED = 500
"""Held-out problems for each length and kind."""
ENOUGH = 0.995


@dataclass(frozen=True)
class Check:
    """How a candidate did: exact match on the lengths left out, 0 to 1."""

    threshold: float
    lines: int
    accuracy: float


def choose(
    candidates: Iterable[tuple[float, LineBias]],
    model: Model,
    data: Data,
    on_check: Callable[[Check], None] = lambda _: None,
) -> tuple[LineBias, list[Check]]:
    """The first candidate that carries over (99.5 %), or else the best; and how each did."""
    checks: list[Check] = []
    tried: list[LineBias] = []
    for threshold, bias in candidates:
        if bias in tried:
            continue
        tried.append(bias)
        kinds = {
            (site, layer, line)
            for site, layers in bias.sites.items()
            for layer, heads in enumerate(layers)
            for head in heads
            for line in head
        }
        checks.append(Check(threshold, len(kinds), carries_over(bias, model, data)))
        on_check(checks[-1])
        if checks[-1].accuracy >= ENOUGH:
            break
    best = max(range(len(checks)), key=lambda i: checks[i].accuracy)
    return tried[best], checks


def carries_over(bias: LineBias, vanilla: Model, data: Data) -> float:
    """Exact match on the longer training lengths after training on the shorter ones only."""
    short = data.shortened(max(1, data.length * 2 // 3))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(data.seed)
        model = type(vanilla)(retrained_shape(vanilla.options), vanilla.tokens)
        model.to(vanilla.device)
        model.set_lines(bias)
        fit_briefly(model, short, STEPS)
    right = [
        exact_matches(model, data.test(length, JUDGED, kind)).float().mean()
        for length in range(short.length + 1, data.length + 1)
        for kind in data.tests
    ]
    return float(torch.stack(right).mean()) if right else 1.0
