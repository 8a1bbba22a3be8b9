"""Choosing between candidate biases without looking beyond the training lengths.

Each candidate is tried on a small extrapolation inside the training lengths: a fresh model is
trained briefly on operands of at most two thirds of the digits, and judged on the lengths that
are left. Lines that belong to the algorithm carry over; lines that only help at the lengths
they were found at do not. Of those that carry over the one is taken in which a row sees least:
the less it sees, the sooner all that it may see has been learned, and can be checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import product

import torch

from abc_calib.calibration.fits.base import closed, sinks
from abc_calib.calibration.plan import retrained_shape
from abc_calib.config import RETRAIN
from abc_calib.data import Data
from abc_calib.evaluation import exact_matches
from abc_calib.geometry import Line, LineBias, Site
from abc_calib.nn.base import Model
from abc_calib.training.step import fit_steps

STEPS, LEARNING_RATE = 1000, 8e-3
"""Most steps, and twice the rate of the retraining: it shows sooner what can be learned."""
FIRST, EVERY = 150, 50
"""A trial is judged after so many steps, and again after every so many."""
GAIN = 0.01
"""A trial ends where three judgements in a row are no better by so much."""
JUDGED = 500
"""Held-out problems for each length and kind."""
ENOUGH = 0.995
FEW = 500_000
"""Windows that are checked as quickly as another set of lines is tried."""
MOST_TRIED = 8
"""Trials of sets with a line less."""

Size = Callable[[LineBias], float]
"""How many windows a row may see; see ``abc_calib.certification.size``."""
Place = tuple[Site, int, Line]
"""Lines are taken out by site and layer: all heads that follow them close."""


@dataclass(frozen=True)
class Check:
    """How a candidate did: exact match on the lengths left out, 0 to 1.

    ``lines``: different ones. ``windows``: how many a row inside a long number sees, about.
    ``optimizer``: what the trial trained with.
    """

    threshold: float
    lines: int
    windows: float
    accuracy: float
    optimizer: str = "adam"


def choose(
    candidates: Iterable[tuple[float, LineBias]],
    model: Model,
    data: Data,
    size: Size | None = None,
    weights: Callable[[LineBias], Mapping[Place, float]] = lambda _: {},
    on_check: Callable[[Check], None] = lambda _: None,
) -> tuple[LineBias, list[Check]]:
    """The smallest candidate that carries over (99.5 %), or else the best; and how each did.

    Where none does with Adam, all are tried with the model's next optimizer: Muon learns large
    tables (N×1 in base 16) in as many steps, and takes longer over small ones.

    ``size``: without one the number of lines. From what carries over lines are taken out again,
    those of least weight first, where it still does and there are many windows: all at once if
    that carries over, or else one by one.
    """
    size = size or lines_of
    sets: list[tuple[float, LineBias]] = []
    for one in candidates:
        if all(one[1] != bias for _, bias in sets):
            sets.append(one)
    sizes = [size(bias) for _, bias in sets]
    checks: list[Check] = []
    tried: list[tuple[str, LineBias]] = []

    def passes(threshold: float, bias: LineBias, windows: float, optimizer: str) -> bool:
        if (optimizer, bias) in tried:
            return checks[tried.index((optimizer, bias))].accuracy >= ENOUGH
        tried.append((optimizer, bias))
        accuracy = carries_over(bias, model, data, optimizer)
        checks.append(Check(threshold, lines_of(bias), windows, accuracy, optimizer))
        on_check(checks[-1])
        return accuracy >= ENOUGH

    by_size = sorted(range(len(sets)), key=lambda i: (sizes[i], lines_of(sets[i][1])))
    for optimizer, number in product(model.optimizers, by_size):
        threshold, best = sets[number]
        fewest = lighter(best, sizes[number], size, weights(best), data, lambda *_: True)
        if fewest[1] < sizes[number] and passes(threshold, *fewest, optimizer):
            return fewest[0], checks
        if passes(threshold, best, sizes[number], optimizer):
            break
    else:
        return tried[max(range(len(checks)), key=lambda i: checks[i].accuracy)][1], checks
    most = len(checks) + MOST_TRIED

    def may_go(less: LineBias, windows: float) -> bool:
        return len(checks) < most and passes(threshold, less, windows, optimizer)

    return lighter(best, sizes[number], size, weights(best), data, may_go)[0], checks


def lighter(
    bias: LineBias,
    windows: float,
    size: Size,
    strength: Mapping[Place, float],
    data: Data,
    may_go: Callable[[LineBias, float], bool],
) -> tuple[LineBias, float]:
    """Without the lines that may go, those of least weight first, until few windows are left."""
    for place in sorted(strength, key=strength.__getitem__):
        if windows <= FEW:
            break
        less = without(bias, place, data)
        now = size(less)
        if now < windows and may_go(less, now):
            bias, windows = less, now
    return bias, windows


def lines_of(bias: LineBias) -> int:
    """How many different lines there are, by site and layer."""
    return len(set(every_place(bias)))


def every_place(bias: LineBias) -> list[Place]:
    """The line or lines of every head, as a fit's table lists them."""
    return [
        (site, layer, line)
        for site, layers in bias.sites.items()
        for layer, heads in enumerate(layers)
        for head in heads
        for line in head
    ]


def without(bias: LineBias, place: Place, data: Data) -> LineBias:
    """The same with a line less; heads that follow no other become sinks."""
    site, layer, line = place
    sink = sinks(len(data.layout_at(1).parts))[site]
    layers = list(bias.sites[site])
    closing = () if bias.stream else (sink,)
    layers[layer] = tuple(
        tuple(x for x in head if x != line) or closing if line in head else head
        for head in layers[layer]
    )
    less = replace(bias, sites={**bias.sites, site: tuple(layers)})
    if not bias.stream:
        return less
    own = list(less.sites["self"])
    own[layer] = closed(less.sites["cross"][layer], own[layer])
    return replace(less, sites={**less.sites, "self": tuple(own)})


def carries_over(bias: LineBias, vanilla: Model, data: Data, optimizer: str = "adam") -> float:
    """Exact match on the longer training lengths after training on the shorter ones only."""
    short, lengths = data.left_out()
    tests = [data.test(length, JUDGED, kind) for length in lengths for kind in data.tests]
    if not tests:
        return 1.0
    how = {"steps": STEPS, "learning_rate": LEARNING_RATE, "optimizer": optimizer}
    options = RETRAIN.model_copy(update=how)
    found: list[float] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(data.seed)
        model = type(vanilla)(retrained_shape(vanilla.options), vanilla.tokens)
        model.to(vanilla.device)
        model.set_lines(bias)

        def settled(step: int) -> bool:
            if step != STEPS and (step < FIRST or step % EVERY):
                return False
            right = [exact_matches(model, test).float().mean() for test in tests]
            found.append(float(torch.stack(right).mean()))
            stuck = len(found) > 3 and max(found[-3:]) < max(found[:-3]) + GAIN
            return found[-1] >= ENOUGH or stuck

        fit_steps(model, options, lambda step: short.training(step, options.batch), settled)
    return found[-1]
