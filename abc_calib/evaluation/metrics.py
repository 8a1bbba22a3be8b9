"""Numbers of outputs: how they differ from the right ones, and how sure a share is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from rapidfuzz.distance import Levenshtein

MISTAKES = ("too_early", "too_late", "content")


def compare(
    outputs: Sequence[list[int]],
    golds: Sequence[list[int]],
    ended: Sequence[bool],
    attended: np.ndarray | None = None,
    places: Sequence[Sequence[int]] | None = None,
) -> dict[str, Any]:
    """Measure ``outputs``, cut before their end if they ``ended``, against ``golds``.

    ``attended (n, t)`` and ``places``: where each step looked, and where it should have.

    Percentages: ``before_end``, right as far as it goes and not too long (seqAccBE: wrong ends are
    forgiven, an empty output is not); ``too_early`` (a right beginning, then an end), ``too_late``
    (right and then more) and ``content`` (a wrong token), which with exact match add up to 100.
    Means: ``edit_distance``, tokens to insert, delete or replace (Levenshtein 1966), and
    ``attention_loss``. By table 9 and the public code of Ray Chowdhury & Caragea (2023) and section
    4 of Dubois et al. (2020).
    """
    pairs = list(zip(outputs, golds, strict=True))
    kinds = [_kind(*pair, end) for pair, end in zip(pairs, ended, strict=True)]
    before = [bool(output) and output == gold[: len(output)] for output, gold in pairs]
    loss = None
    if attended is not None and places is not None:
        loss = attention_loss(attended, places, [len(o) for o in outputs], [len(g) for g in golds])
    return {
        "before_end": 100 * sum(before) / len(before),
        **{kind: 100 * kinds.count(kind) / len(kinds) for kind in MISTAKES},
        "edit_distance": sum(Levenshtein.distance(*pair) for pair in pairs) / len(pairs),
        "attention_loss": loss,
    }


def _kind(output: list[int], gold: list[int], ended: bool) -> str:
    if output == gold:
        return "exact" if ended else "too_late"
    if output == gold[: len(output)]:
        return "too_early"
    return "too_late" if output[: len(gold)] == gold else "content"


def attention_loss(
    attended: np.ndarray,
    places: Sequence[Sequence[int]],
    written: Sequence[int],
    golds: Sequence[int],
) -> float | None:
    """The mean squared error of Dubois et al. (2020), section 4.2, in words.

    Over steps, then outputs, without the end and steps that were not written. None if no output has
    a step that counts.
    """
    losses = []
    for row, gold in enumerate(places):
        steps = min(written[row], golds[row], len(gold))
        if steps:
            away = attended[row, :steps] - np.asarray(gold[:steps])
            losses.append(float((away**2).mean()))
    return float(np.mean(losses)) if losses else None


def wilson_interval(correct: int, n: int, z: float = 1.959964) -> tuple[float, float]:
    """The 95 % confidence interval of a proportion (Wilson 1927); (0, 1) where ``n`` is 0."""
    if n == 0:
        return 0.0, 1.0
    p = correct / n
    center = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, center - half), min(1.0, center + half)
