"""A search for problems that a model gets wrong: hard ones, then mutations of the worst."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from abc_calib.data import Data
from abc_calib.evaluation.failures import Failure, failure, smallest_margins
from abc_calib.nn.base import Model
from abc_calib.nn.evaluator import Evaluator

PARENTS, CHILDREN = 16, 128
"""Sources that survive a round of the search, and that are made from them."""
SHOWN = 3
"""Failing sources of a length that are looked at closely."""


@dataclass(frozen=True)
class Stressed:
    """The search at one length: ``n`` problems, how many ``wrong``, and the worst of them.

    ``margin``: the smallest logit margin; ``failures``: what the model writes for the worst ones.
    """

    length: int
    n: int
    wrong: int
    margin: float | None
    failures: tuple[Failure, ...] = ()


def smallest(rows: Sequence[Stressed]) -> Failure | None:
    """The shortest failing source of all; None if nothing failed."""
    failures = [x for row in rows for x in row.failures]
    return min(failures, key=lambda x: (x.digits, len(x.problem), x.problem), default=None)


def searched(
    model: Model | Evaluator,
    data: Data,
    length: int,
    samples: int = 100,
    search: int = 2000,
    seed: int = 0,
) -> Stressed:
    """Try ``samples`` hard problems of all families, then ``search`` mutations of the worst.

    Those of the smallest logit margins are mutated, again and again.
    """
    rng = np.random.default_rng([seed, 5, length])
    parents = data.task.hard(rng, samples, length)
    if not len(parents):
        return Stressed(length, 0, 0, None, ())
    least = smallest_margins(model, data.lay_out(parents)).numpy()
    tried, wrong = len(parents), int((least <= 0).sum())
    while (left := samples + search - tried) > 0:
        best = np.argsort(least)[:PARENTS]
        parents, least = parents.take(best), least[best]
        children = data.task.mutated(rng, parents, min(CHILDREN, left))
        margins = smallest_margins(model, data.lay_out(children)).numpy()
        tried += len(children)
        wrong += int((margins <= 0).sum())
        parents = parents.joined(children)
        least = np.concatenate([least, margins])
    order = np.argsort(least)
    failing = parents.take(order[least[order] <= 0][:SHOWN])
    sources = (data.task.plain(failing, row) for row in range(len(failing)))
    failures = tuple(x for x in (failure(model, data, source) for source in sources) if x)
    return Stressed(length, tried, wrong, round(float(least.min()), 4), failures)
