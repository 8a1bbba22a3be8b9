"""The cache that a model of ``transformers`` is given and gives back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CACHES = ("cache", "past_key_values")
"""What releases of ``transformers`` call it, from 5.24 on and before. Newer ones take either."""


def cache_in(held: Any) -> dict[str, Any]:
    """The cache among a call's arguments or in its output, by its name; empty where none is."""
    known = dict(held) if isinstance(held, Mapping) else {}
    return {name: known[name] for name in CACHES if known.get(name) is not None}


def cache_of(held: Any) -> Any:
    """That cache, or None."""
    return next(iter(cache_in(held).values()), None)
