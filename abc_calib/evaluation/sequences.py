"""How right an output is, and where it goes wrong: the metrics of both papers on attenders.

RC: Ray Chowdhury & Caragea (2023), table 9 and its public code. DU: Dubois et al. (2020),
section 4. An output is cut at its first end; without one within the steps allowed it is all of
them, and then wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rapidfuzz.distance import Levenshtein


@dataclass(frozen=True)
class Sequences:
    """Percentages of outputs, and means over them.

    ``exact``: equal to the gold tokens, end included (seqAcc). ``before_end``: right as far as it
    goes and not too long (seqAccBE): wrong ends are forgiven, an empty output is not. The rest
    of ``exact`` to 100 is ``too_early`` (a right beginning, then an end), ``too_late`` (right and
    then more) and ``content`` (a wrong token). ``edit_distance``: tokens to insert, delete or
    replace. ``attention_loss``: mean over steps, then outputs, of the squared distance of the
    mean place attended to from the gold one, in words; the end and steps that were not written
    are left out; None without gold attention.
    """

    exact: float
    before_end: float
    too_early: float
    too_late: float
    content: float
    edit_distance: float
    attention_loss: float | None


def compare(
    outputs: Sequence[Sequence[int]],
    golds: Sequence[Sequence[int]],
    ended: Sequence[bool],
    looked: np.ndarray | None = None,
    places: Sequence[Sequence[int]] | None = None,
) -> Sequences:
    """Measure ``outputs``, cut before their end if they ``ended``, against ``golds``.

    ``looked (n, t)`` and ``places``: where each step looked, and where it should have.
    """
    kinds = [
        _kind(list(output), list(gold), end)
        for output, gold, end in zip(outputs, golds, ended, strict=True)
    ]
    share = {kind: 100 * kinds.count(kind) / len(kinds) for kind in set(kinds)}
    before = [
        bool(output) and list(output) == list(gold[: len(output)])
        for output, gold in zip(outputs, golds, strict=True)
    ]
    distances = [
        0 if kind == "exact" else edit_distance(output, gold)
        for kind, output, gold in zip(kinds, outputs, golds, strict=True)
    ]
    loss = None
    if looked is not None and places is not None:
        loss = attention_loss(looked, places, [len(o) for o in outputs], [len(g) for g in golds])
    return Sequences(
        exact=share.get("exact", 0.0),
        before_end=100 * sum(before) / len(before),
        too_early=share.get("too_early", 0.0),
        too_late=share.get("too_late", 0.0),
        content=share.get("content", 0.0),
        edit_distance=sum(distances) / len(distances),
        attention_loss=loss,
    )


def _kind(output: list[int], gold: list[int], ended: bool) -> str:
    if output == gold:
        return "exact" if ended else "too_late"
    if output == gold[: len(output)]:
        return "too_early"
    return "too_late" if output[: len(gold)] == gold else "content"


def edit_distance(first: Sequence[int], second: Sequence[int]) -> int:
    """Insertions, deletions and replacements from one to the other (Levenshtein 1966)."""
    return Levenshtein.distance(first, second)


def attention_loss(
    looked: np.ndarray,
    places: Sequence[Sequence[int]],
    written: Sequence[int],
    golds: Sequence[int],
) -> float | None:
    """DU, section 4.2, as a mean squared error; None if no output has a step that counts."""
    losses = []
    for row, gold in enumerate(places):
        steps = min(written[row], golds[row], len(gold))
        if steps:
            away = looked[row, :steps] - np.asarray(gold[:steps])
            losses.append(float((away**2).mean()))
    return float(np.mean(losses)) if losses else None
