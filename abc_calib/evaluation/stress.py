"""Stress: every family of hard inputs, then a search for the worst ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from abc_calib.data.digits import Batch, Source
from abc_calib.errors import UsageError
from abc_calib.evaluation.exact import exact_matches
from abc_calib.evaluation.failures import Failure, failure, margins, written
from abc_calib.evaluation.memory import check_memory, check_samples
from tasks import Digits, Problems
from tasks.digits import stack
from tasks.hard import families, hard

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

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def stress(
    model: Any,
    source: Source,
    lengths: Sequence[int],
    samples: int = 100,
    search: int = 2000,
    seed: int = 0,
    on_row: Callable[[Stressed], None] = lambda _: None,
) -> list[Stressed]:
    """Zeros, then every family at every length, ``samples`` problems each, and ``search`` mutated.

    Raises ``UsageError`` for lengths, samples or a search that are not possible.
    """
    if not lengths or min(lengths) < 1:
        raise UsageError(f"length {min(lengths, default=0)} is not possible: give 1 or more")
    if samples < 1 or search < 0 or seed < 0:
        raise UsageError("give 1 or more samples, and a search and a seed of 0 or more")
    check_memory(model, 1, max(lengths) * max(1, source.segments), 16)
    check_samples(samples, max(lengths))
    rows: list[Stressed] = []

    def keep(row: Stressed) -> None:
        rows.append(row)
        on_row(row)

    keep(zeros(model, source))
    for length in lengths:
        rng = np.random.default_rng([seed, 5, length])
        for name, problems in families(source.task, rng, samples, length).items():
            batch = source.layout.lay_out(source.task, source.vocabulary, problems)
            wrong = (~exact_matches(model, batch)).nonzero()[:, 0].numpy()
            found = look_closely(model, source, problems.take(wrong[:SHOWN]))
            keep(Stressed(name, length, len(batch), len(wrong), None, found))
        if search:
            keep(searched(model, source, length, search, rng))
    return rows


def zeros(model: Any, source: Source) -> Stressed:
    """Nothing but zeros, and all zeros but the last operand, of one digit each."""
    task = source.task
    last = ["0"] if task.count == 1 else list(task.symbols[: task.base])
    problems = [(task.operator or "").join(["0"] * (task.count - 1) + [digit]) for digit in last]
    found = [one for one in (failure(model, source, p) for p in problems) if one is not None]
    return Stressed("all zeros", 1, len(problems), len(found), None, tuple(found[:SHOWN]))


def look_closely(model: Any, source: Source, problems: Problems) -> tuple[Failure, ...]:
    """What the model does with problems that it gets wrong, decoded greedily."""
    found = (failure(model, source, written(source, problems, i)) for i in range(len(problems)))
    return tuple(one for one in found if one is not None)


def smallest(rows: Sequence[Stressed]) -> Failure | None:
    """The shortest failing source of all; None if nothing failed."""
    found = [one for row in rows for one in row.failures]
    return min(found, key=lambda one: (one.digits, len(one.problem), one.problem), default=None)


def searched(
    model: Any, source: Source, length: int, budget: int, rng: np.random.Generator
) -> Stressed:
    """Mutate the sources of the smallest logit margins, again and again."""
    parents = hard(source.task, rng, min(budget, CHILDREN), length)
    least = smallest_margins(model, source, parents)
    tried = len(parents)
    wrong = int((least <= 0).sum())
    while tried < budget:
        best = np.argsort(least)[:PARENTS]
        parents, least = parents.take(best), least[best]
        children = mutated(source, parents, min(CHILDREN, budget - tried), length, rng)
        theirs = smallest_margins(model, source, children)
        tried += len(children)
        wrong += int((theirs <= 0).sum())
        operands = tuple(
            stack(*pair) for pair in zip(parents.operands, children.operands, strict=True)
        )
        parents = Problems(operands, stack(parents.answer, children.answer))
        least = np.concatenate([least, theirs])
    order = np.argsort(least)
    failing = order[least[order] <= 0][:SHOWN]
    found = look_closely(model, source, parents.take(failing))
    return Stressed("search", length, tried, wrong, round(float(least.min()), 4), found)


def smallest_margins(model: Any, source: Source, problems: Problems) -> np.ndarray:
    """``(n,)``: the smallest margin of each problem's answer."""
    batch = source.layout.lay_out(source.task, source.vocabulary, problems)
    rows = max(1, 2**16 // (batch.source.shape[1] + batch.target.shape[1]))
    parts = [
        margins(model, source, Batch(s, t, problems)).amin(1)
        for s, t in zip(batch.source.split(rows), batch.target.split(rows), strict=True)
    ]
    return torch.cat(parts).numpy()


def mutated(
    source: Source, parents: Problems, n: int, length: int, rng: np.random.Generator
) -> Problems:
    """``n`` changed copies: digits replaced, a run of one digit written, a part moved by one."""
    task = source.task
    rows = rng.integers(0, len(parents), n)
    operands = []
    for operand in parents.operands:
        values, lengths = operand.values[rows].copy(), operand.lengths[rows]
        first = operand.width - lengths
        for i in range(n):
            part = values[i, first[i] :]
            start = int(rng.integers(0, len(part)))
            stop = min(len(part), start + int(rng.geometric(0.3)))
            kind = rng.integers(0, 4)
            if kind == 0:
                part[start] = rng.integers(0, task.base)
            elif kind == 1:
                part[start:stop] = rng.choice(
                    np.array([0, task.base - 1, rng.integers(0, task.base)])
                )
            elif kind == 2:
                part[start:stop] = np.roll(part[start:stop], 1)
            part[0] = part[0] if part[0] or len(part) == 1 else 1
        operands.append(Digits(values, lengths))
    given = tuple(operands)
    return Problems(given, task.answer(*given))
