"""Stress: every family of hard inputs, then a search for the worst ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from abc_calib.data import Data
from abc_calib.evaluation.exact import matches
from abc_calib.evaluation.failures import Failure, failure, smallest_margins
from abc_calib.evaluation.memory import check_memory, check_samples
from abc_calib.nn.base import Model
from abc_calib.nn.evaluator import Evaluator
from tasks import Rows

PARENTS, CHILDREN = 16, 128
"""Sources that survive a round of the search, and that are made from them."""
SHOWN = 3
"""Failing sources that are looked at closely, of each family and length."""


@dataclass(frozen=True)
class Stressed:
    """One family of hard inputs at one length: how many, how many wrong, and the first of them.

    ``margin``: the smallest logit margin seen; measured by the search only.
    """

    family: str
    length: int
    n: int
    wrong: int
    margin: float | None = None
    failures: tuple[Failure, ...] = ()


def stress(
    model: Model | Evaluator,
    data: Data,
    lengths: Sequence[int],
    samples: int = 100,
    search: int = 2000,
    seed: int = 0,
    on_row: Callable[[Stressed], None] = lambda _: None,
) -> list[Stressed]:
    """Zeros, every family at every length, ``samples`` problems each, and ``search`` mutated."""
    rows: list[Stressed] = []

    def keep(row: Stressed) -> None:
        rows.append(row)
        on_row(row)

    zeros = data.task.smallest()
    check_memory(model, 1, data.layout_at(max(lengths)).keys, 16, "lengths")
    check_samples(samples, max(lengths))
    check_samples(min(search, CHILDREN), max(lengths), "lengths")
    failures = looked_at(model, data, zeros)
    keep(Stressed("all zeros", 1, len(zeros), len(failures), None, failures[:SHOWN]))
    for length in lengths:
        rng = np.random.default_rng([seed, 5, length])
        for name, problems in data.task.families(rng, samples, length).items():
            batch = data.lay_out(problems)
            wrong = (~matches(model, data, batch)).nonzero()[:, 0].numpy()
            failures = look_closely(model, data, problems.take(wrong[:SHOWN]))
            keep(Stressed(name, length, len(batch), len(wrong), None, failures))
        if search:
            keep(searched(model, data, length, search, rng))
    return rows


def look_closely(model: Model | Evaluator, data: Data, problems: Rows) -> tuple[Failure, ...]:
    """What the model does with problems that it gets wrong, decoded greedily."""
    return looked_at(model, data, [data.task.plain(problems, i) for i in range(len(problems))])


def looked_at(model: Model | Evaluator, data: Data, sources: Sequence[str]) -> tuple[Failure, ...]:
    """The failures among sources as a person writes them."""
    results = (failure(model, data, source) for source in sources)
    return tuple(result for result in results if result is not None)


def smallest(rows: Sequence[Stressed]) -> Failure | None:
    """The shortest failing source of all; None if nothing failed."""
    failures = [x for row in rows for x in row.failures]
    return min(failures, key=lambda x: (x.digits, len(x.problem), x.problem), default=None)


def searched(
    model: Model | Evaluator, data: Data, length: int, budget: int, rng: np.random.Generator
) -> Stressed:
    """Mutate the sources of the smallest logit margins, again and again."""
    parents = data.task.hard(rng, min(budget, CHILDREN), length)
    if not len(parents):
        return Stressed("search", length, 0, 0)
    least = smallest_margins(model, data.lay_out(parents)).numpy()
    tried = len(parents)
    wrong = int((least <= 0).sum())
    while tried < budget:
        best = np.argsort(least)[:PARENTS]
        parents, least = parents.take(best), least[best]
        children = data.task.mutated(rng, parents, min(CHILDREN, budget - tried))
        margins = smallest_margins(model, data.lay_out(children)).numpy()
        tried += len(children)
        wrong += int((margins <= 0).sum())
        parents = parents.joined(children)
        least = np.concatenate([least, margins])
    order = np.argsort(least)
    failing = order[least[order] <= 0][:SHOWN]
    failures = look_closely(model, data, parents.take(failing))
    return Stressed("search", length, tried, wrong, round(float(least.min()), 4), failures)
