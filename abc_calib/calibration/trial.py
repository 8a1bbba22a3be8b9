"""Choosing between candidate biases without looking beyond the training lengths.

Each candidate is tried on a small extrapolation inside the training lengths: a fresh model is
trained briefly on operands of at most two thirds of the digits, and judged on the lengths that
are left. Lines that belong to the algorithm carry over; lines that only help at the lengths
they were found at do not. Of those that carry over the one is taken in which a row sees least:
the less it sees, the sooner all that it may see has been learned, and can be checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import Tensor

from abc_calib.calibration.fits.base import closed, sinks
from abc_calib.calibration.plan import retrained_shape
from abc_calib.config import ADAM, RETRAIN, TrainOptions
from abc_calib.data import Data
from abc_calib.errors import AbcError
from abc_calib.evaluation import exact_matches
from abc_calib.geometry import ALONE, Line, LineBias, Site
from abc_calib.nn.base import Model
from abc_calib.training.step import fit_steps

ENOUGH, LARGELY = 0.995, 0.98
"""Exact match from which lines carry over; the latter of large tables, whose rarest windows a trial
does not see."""
STEPS = 1000
"""Most of a trial."""
LONG = ADAM.model_copy(update={"learning_rate": 8e-3})
COOLED = "muon, cooled"
TRIALS: dict[str, TrainOptions] = {
    COOLED: RETRAIN,
    "muon": LONG.model_copy(update={"optimizer": "muon"}),
    "adam": LONG,
}
"""How a trial trains. Twice the retraining's rate shows sooner what can be learned. A cooldown
is the quickest way for tables of some hundred entries, and too short for those of thousands: large
tables are never tried with one."""
FIRST, EVERY = 150, 50
"""A trial is judged after this number of steps, and again after each further such number."""
LARGE = 6
"""A trial of a large table has this many times the steps, and is judged as often as others."""
GAIN = 0.01
"""A trial ends where three judgements in a row are no better by so much."""
JUDGED = 500
"""Held-out problems for each length and kind."""
FEW = 500_000
"""Windows that are checked as quickly as another set of lines is tried. More are a large table."""
MOST_TRIED = 8
"""Trials of sets with a line less."""

Size = Callable[[LineBias], float]
"""How many windows a row may see; see ``abc_calib.proof.prove.windows_inside``."""
Undecided = Callable[[LineBias], tuple[int, int]]
"""See ``choose``."""
Place = tuple[Site, int, Line]
"""Lines are taken out by site and layer: all heads that follow them close."""


@dataclass(frozen=True)
class Trial:
    """Exact match on the lengths left out, 0 to 1, and the weights that the trial ended with."""

    accuracy: float
    weights: dict[str, Tensor] | None = None
    large: bool = False

    @property
    def passed(self) -> bool:
        return self.accuracy >= (LARGELY if self.large else ENOUGH)


@dataclass(frozen=True)
class Check:
    """How a candidate did: exact match on the lengths left out, 0 to 1.

    ``lines``: different ones. ``windows``: how many a row inside a long number sees, about.
    ``optimizer``: how the trial trained, by its name in ``TRIALS``.
    """

    threshold: float
    lines: int
    windows: float
    accuracy: float
    optimizer: str = "adam"

    @property
    def text(self) -> str:
        """The same in a line."""
        sees = f"about {float(f'{self.windows:.2g}'):,.0f} windows"
        if math.isinf(self.windows):
            sees = "a token of the output sees the whole source, so longer ones may fail"
        return (
            f"lines above {self.threshold:.0%} of a head's attention ({self.lines}, {sees}): "
            f"{100 * self.accuracy:.1f} % on lengths left out"
        )


@dataclass(frozen=True)
class Choice:
    """The lines chosen, how each candidate did, and the trial's weights, if the choice passed."""

    bias: LineBias
    checks: list[Check]
    weights: dict[str, Tensor] | None = None


def choose(
    candidates: Iterable[tuple[float, LineBias]],
    model: Model,
    data: Data,
    size: Size | None = None,
    strength: Callable[[LineBias], Mapping[Place, float]] = lambda _: {},
    on_check: Callable[[Check], None] = lambda _: None,
    optimizer: str = "adam",
    undecided: Undecided = lambda _: (0, 0),
) -> Choice:
    """The smallest candidate that carries over (99.5 %; large tables 98 %), or else the best one.

    Trials train first with ``optimizer``, as the retraining will. Where none carries over, all are
    tried in another way: Muon without a cooldown learns large tables (N×1 in base 16).

    ``size``: without one the number of lines. From what carries over lines are taken out again,
    those of least ``strength`` first, where it still does and there are many windows: all at once
    if that carries over, or else one by one.

    ``undecided``: with given lines, how many tokens of the output have to differ from others that
    see the same, and of how many. No model is right on such lines: they are not tried. ``AbcError``
    if all candidates are such.
    """
    size = size or lines_of
    sets = _possible(candidates, undecided)
    sizes = [size(bias) for _, bias in sets]
    checks: list[Check] = []
    tried: list[tuple[str, LineBias, Trial]] = []

    def tries(threshold: float, bias: LineBias, windows: float, how: str) -> Trial:
        for way, before, trial in tried:
            if (way, before) == (how, bias):
                return trial
        trial = carries_over(bias, model, data, how, is_large(windows))
        tried.append((how, bias, trial if trial.passed else Trial(trial.accuracy)))
        checks.append(Check(threshold, lines_of(bias), windows, trial.accuracy, how))
        on_check(checks[-1])
        return trial

    def chosen(bias: LineBias) -> Choice:
        return Choice(bias, checks, next(t.weights for _, b, t in reversed(tried) if b == bias))

    by_size = sorted(range(len(sets)), key=lambda i: (sizes[i], lines_of(sets[i][1])))
    for how, number in product(ways(model, optimizer), by_size):
        threshold, best = sets[number]
        if how == COOLED and is_large(sizes[number]):
            continue
        fewest = lighter(best, sizes[number], size, strength(best), data, lambda *_: True)
        if fewest[1] < sizes[number] and tries(threshold, *fewest, how).passed:
            return chosen(fewest[0])
        if tries(threshold, best, sizes[number], how).passed:
            break
    else:
        return chosen(max(tried, key=lambda attempt: attempt[2].accuracy)[1])
    most = len(checks) + MOST_TRIED

    def may_go(less: LineBias, windows: float) -> bool:
        return len(checks) < most and tries(threshold, less, windows, how).passed

    return chosen(lighter(best, sizes[number], size, strength(best), data, may_go)[0])


def _possible(
    candidates: Iterable[tuple[float, LineBias]], undecided: Undecided
) -> list[tuple[float, LineBias]]:
    """Each different candidate once, without those on which no model is right."""
    sets: list[tuple[float, LineBias]] = []
    for candidate in candidates:
        if all(candidate[1] != bias for _, bias in sets):
            sets.append(candidate)
    ruled_out = [undecided(bias) for _, bias in sets]
    if all(count for count, _ in ruled_out):
        count, total = min(ruled_out)
        raise AbcError(
            "on none of the sets of lines that were found can any model be right: on the best of "
            f"them {count:,} of {total:,} tokens have to differ from others that see the same. The "
            "task may depend on more than a few places (abc check-task); or train longer, or use "
            "--force"
        )
    return [candidate for candidate, (count, _) in zip(sets, ruled_out, strict=True) if not count]


def is_large(windows: float) -> bool:
    """Whether a trial sees only a part of the windows; False where their number has no bound."""
    return FEW < windows < math.inf


def ways(model: Model, optimizer: str) -> list[str]:
    """How sets of lines are tried for a retraining with an optimiser, in this order."""
    order = (COOLED, "muon", "adam") if optimizer == "muon" else ("adam", "muon")
    return [how for how in order if TRIALS[how].optimizer in model.optimizers]


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
        fewer = size(less)
        if fewer < windows and may_go(less, fewer):
            bias, windows = less, fewer
    return bias, windows


def lines_of(bias: LineBias) -> int:
    """How many different lines there are, by site and layer."""
    return len(set(every_place(bias)))


def every_place(bias: LineBias) -> list[Place]:
    """The line or lines of every head, as a fit's table lists them."""
    return [(site, layer, line) for site, layer, _, lines in bias.each() for line in lines]


def without(bias: LineBias, place: Place, data: Data) -> LineBias:
    """The same with a line less; heads that follow no other become sinks."""
    site, layer, line = place
    sink = sinks(len(data.layout_at(1).parts))[site]
    layers = list(bias.sites[site])
    closing: tuple[Line, ...] = (sink,)
    if bias.stream:
        closing = (ALONE,) if site == "encoder" else ()
    layers[layer] = tuple(
        tuple(x for x in head if x != line) or closing if line in head else head
        for head in layers[layer]
    )
    less = replace(bias, sites={**bias.sites, site: tuple(layers)})
    if not bias.stream:
        return less
    self_layers = list(less.sites["self"])
    self_layers[layer] = closed(less.sites["cross"][layer], self_layers[layer])
    return replace(less, sites={**less.sites, "self": tuple(self_layers)})


def carries_over(
    bias: LineBias, vanilla: Model, data: Data, how: str = "adam", large: bool = False
) -> Trial:
    """How a model trained on the shorter training lengths alone does on the longer ones."""
    short, lengths = data.left_out()
    tests = [data.test(length, JUDGED, kind) for length in lengths for kind in data.tests]
    if not tests:
        return Trial(1.0)
    pace = LARGE if large else 1
    options = TRIALS[how].model_copy(update={"steps": pace * STEPS})
    accuracies: list[float] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(data.seed)
        model = type(vanilla)(retrained_shape(vanilla.options), vanilla.tokens)
        model.to(vanilla.device)
        model.set_lines(bias)

        def judge(step: int) -> tuple[float, bool]:
            if step != options.steps and (step < pace * FIRST or step % (pace * EVERY)):
                return 0.0, False
            right = [exact_matches(model, test).float().mean() for test in tests]
            accuracies.append(float(torch.stack(right).mean()))
            stuck = len(accuracies) > 3 and max(accuracies[-3:]) < max(accuracies[:-3]) + GAIN
            return accuracies[-1], accuracies[-1] >= ENOUGH or stuck

        fit_steps(model, options, lambda step: short.training(step, options.batch), judge)
    weights = {name: value.detach().contiguous() for name, value in model.named_parameters()}
    return Trial(accuracies[-1], weights, large)
