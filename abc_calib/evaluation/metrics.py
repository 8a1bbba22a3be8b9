"""Figures computed from outcomes."""

from __future__ import annotations

import math


def wilson_interval(correct: int, n: int, z: float = 1.959964) -> tuple[float, float]:
    """The 95 % confidence interval of a proportion (Wilson 1927); (0, 1) where ``n`` is 0."""
    if n == 0:
        return 0.0, 1.0
    p = correct / n
    center = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, center - half), min(1.0, center + half)
