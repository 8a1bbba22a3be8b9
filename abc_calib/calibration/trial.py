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
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from abc_calib.calibration.fits.base import closed, sinks
from abc_calib.calibration.fits.rows import PROBLEMS
from abc_calib.calibration.plan import retrained_shape
from abc_calib.calibration.windows import undecided
from abc_calib.config import ADAM, RETRAIN, TrainOptions
from abc_calib.data import Batch, Data
from abc_calib.errors import AbcError
from abc_calib.evaluation import exact_matches
from abc_calib.geometry import ALONE, Line, LineBias, Site
from abc_calib.nn.base import Model
from abc_calib.proof.prove import windows_inside
from abc_calib.training.step import fit_steps
from abc_calib.training.trainer import UNREACHED_STEP

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

Place = tuple[Site, int, Line]
"""Lines are taken out by site and layer: all heads that follow them close."""


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
    def passed(self) -> bool:
        """Does the candidate carry over?"""
        return self.accuracy >= (LARGELY if is_large(self.windows) else ENOUGH)

    @property
    def text(self) -> str:
        """The same in a line."""
        sees = f"about {float(f'{self.windows:.2g}'):,.0f} windows"
        if math.isinf(self.windows):
            sees = "a token of the output sees the whole source, so longer ones may fail"
        return (
            f"a trial with lines that have {self.threshold:.0%} of a head's attention or more "
            f"({sees}): {100 * self.accuracy:.1f} % right on longer problems than it saw"
        )


@dataclass(frozen=True)
class Choice:
    """The lines chosen, how each candidate did, and the trial's weights, if the choice passed."""

    bias: LineBias
    checks: list[Check]
    weights: dict[str, Tensor] | None = None


@dataclass(frozen=True)
class Aim:
    """What is trained with the lines: a ``model`` of that shape, on ``data``, by ``optimizer``.

    ``force``: also with lines on which no model can be right.
    """

    model: Any
    data: Data
    optimizer: str = "adam"
    force: bool = False

    @cached_property
    def batch(self) -> Batch:
        """Training problems which lines have to decide."""
        return self.data.training(UNREACHED_STEP + 2, PROBLEMS)

    def undecided(self, bias: LineBias) -> tuple[int, int]:
        """How many tokens have to differ from others that see the same, and of how many."""
        return undecided(bias, self.model, self.batch)

    def windows(self, bias: LineBias) -> float:
        """How many windows a row sees; infinitely many where what it sees leaves a choice."""
        if self.undecided(bias)[0]:
            return math.inf
        return windows_inside(self.model, self.data, bias)


def choose(
    candidates: Iterable[tuple[float, LineBias]],
    data: Data,
    aim: Aim,
    strength: Callable[[LineBias], Mapping[Place, float]],
    on_check: Callable[[Check], None] = lambda _: None,
) -> Choice:
    """Choose of ``(threshold, bias)`` the one that carries over and lets a row see least.

    Those in which a row sees least are tried first, until one carries over. If none does with the
    optimiser of the retraining, all are tried with the next one: what needs thousands of windows
    one does not learn in time, the other does; but it fails with some small sets of lines (N×1 in
    base 16). If none ever does, the one that did best is taken.

    From what carries over lines are taken out again, those of least ``strength`` first, where it
    still does and there are many windows: all at once if that carries over, or else one by one.
    ``AbcError`` if no model can be right with any candidate.
    """
    trials = Trials(data, aim, on_check)
    sets = [(aim.windows(bias), lines_of(bias), k, bias) for k, bias in possible(candidates, aim)]
    sets.sort(key=lambda entry: entry[:2])
    for how in ways(aim):
        for windows, _, threshold, bias in sets:
            if how == COOLED and is_large(windows):
                continue
            weakest, passes = strength(bias), partial(trials.passes, threshold=threshold, how=how)
            less, fewer = lighter(bias, windows, weakest, aim, data)
            if fewer < windows and passes(less, fewer):
                return trials.choice(less)
            if passes(bias, windows):
                may_go = partial(passes, most=len(trials.log) + MOST_TRIED)
                return trials.choice(lighter(bias, windows, weakest, aim, data, may_go)[0])
    return trials.choice(max(trials.log, key=lambda entry: entry[1].accuracy)[0])


class Trials:
    """The sets of lines that were tried so far, with the weights of the last one that passed."""

    def __init__(self, data: Data, aim: Aim, on_check: Callable[[Check], None]):
        self.data, self.aim, self.on_check = data, aim, on_check
        self.log: list[tuple[LineBias, Check]] = []
        self.weights: dict[str, Tensor] | None = None

    def passes(
        self, bias: LineBias, windows: float, threshold: float, how: str, most: float = math.inf
    ) -> bool:
        """Does a set carry over? It is tried once in each way, and not after ``most`` trials."""
        if len(self.log) >= most:
            return False
        for earlier, check in self.log:
            if (earlier, check.optimizer) == (bias, how):
                return check.passed
        large = is_large(windows)
        accuracy, weights = carries_over(bias, self.aim.model, self.data, how, large)
        check = Check(threshold, lines_of(bias), windows, accuracy, how)
        self.log.append((bias, check))
        self.on_check(check)
        self.weights = weights if check.passed else self.weights
        return check.passed

    def choice(self, bias: LineBias) -> Choice:
        """These lines, and all trials."""
        return Choice(bias, [check for _, check in self.log], self.weights)


def possible(
    candidates: Iterable[tuple[float, LineBias]], aim: Aim
) -> list[tuple[float, LineBias]]:
    """Each different candidate once, without those on which no model is right."""
    sets: list[tuple[float, LineBias]] = []
    for candidate in candidates:
        if all(candidate[1] != bias for _, bias in sets):
            sets.append(candidate)
    if aim.force:
        return sets
    ruled_out = [aim.undecided(bias) for _, bias in sets]
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


def ways(aim: Aim) -> list[str]:
    """How sets of lines are tried for a retraining with its optimiser, in this order."""
    order = (COOLED, "muon", "adam") if aim.optimizer == "muon" else ("adam", "muon")
    return [how for how in order if TRIALS[how].optimizer in aim.model.optimizers]


def lighter(
    bias: LineBias,
    windows: float,
    strength: Mapping[Place, float],
    aim: Aim,
    data: Data,
    may_go: Callable[[LineBias, float], bool] = lambda *_: True,
) -> tuple[LineBias, float]:
    """Without the lines that may go, those of least weight first, until few windows are left."""
    for place in sorted(strength, key=strength.__getitem__):
        if windows <= FEW:
            break
        less = without(bias, place, data)
        fewer = aim.windows(less)
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
    closing: tuple[Line, ...] = (sinks(len(data.layout_at(1).parts))[site],)
    if bias.stream:
        closing = (ALONE,) if site == "encoder" else ()
    layers = {site: list(bias.sites[site]) for site in bias.sites}
    layers[site][layer] = tuple(
        tuple(x for x in head if x != line) or closing if line in head else head
        for head in layers[site][layer]
    )
    if bias.stream:
        layers["self"][layer] = closed(layers["cross"][layer], layers["self"][layer])
    return replace(bias, sites={site: tuple(heads) for site, heads in layers.items()})


def carries_over(
    bias: LineBias, vanilla: Model, data: Data, how: str = "adam", large: bool = False
) -> tuple[float, dict[str, Tensor] | None]:
    """How a model trained on the shorter training lengths alone does on the longer ones.

    Exact match, 0 to 1, and the weights that the trial ended with.
    """
    short, lengths = data.left_out()
    tests = [data.test(length, JUDGED, kind) for length in lengths for kind in data.tests]
    if not tests:
        return 1.0, None
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
    return accuracies[-1], weights
