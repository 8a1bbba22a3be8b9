"""Which compositions of lookup tables are for training, and which are held out.

The sizes and the structure of the published sets: all single tables, all compositions of two
and three, and of those of four, fifty held out altogether and two inputs of every other one.
Which ones is our own draw (the published one of training and validation depends on a hash seed
that was not fixed).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from tasks.tokens import Tokens, from_flat

SEED = 123
INPUTS = 8
LONGEST = 4
"""Tables in the longest training composition."""
KNOWN = 6
"""Composing tables of the published data."""
VALIDATION = {2: 15, 3: 84, 4: 376}
"""Validation examples for each number of tables."""
HELD_OUT_COMPOSITIONS, HELD_OUT_INPUTS = 50, 2
LONG_COMPOSITIONS = 625
"""Compositions of one longer set: 5,000 examples with all inputs."""


@dataclass(frozen=True)
class Chains:
    """Inputs ``start (n,)`` and the tables applied to them, by index."""

    start: np.ndarray
    tables: Tokens

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: np.ndarray) -> Chains:
        return Chains(self.start[rows], self.tables.take(rows))


def stacked(*parts: Chains) -> Chains:
    """The rows of all, one below the other."""
    flat = np.concatenate([part.tables.flat for part in parts])
    lengths = np.concatenate([part.tables.lengths for part in parts])
    return Chains(np.concatenate([part.start for part in parts]), from_flat(flat, lengths))


def with_inputs(tables: np.ndarray) -> Chains:
    """Every composition of ``tables (n, k)`` on all inputs, input by input."""
    n, k = tables.shape
    rows = np.repeat(tables, INPUTS, axis=0)
    lengths = np.full(n * INPUTS, k)
    return Chains(np.tile(np.arange(INPUTS), n), Tokens(rows.astype(np.int16), lengths))


def codes_to_tables(codes: np.ndarray, base: int, k: int) -> np.ndarray:
    """Numbers below ``base ** k`` as ``(n, k)`` digits."""
    return (codes[:, None] // base ** np.arange(k - 1, -1, -1)) % base


@dataclass(frozen=True)
class LookupSets:
    """The sets for ``composing`` tables and, behind them, ``alone`` that never compose."""

    composing: int
    alone: int

    def named(self, name: str) -> Chains | None:
        """The set of that name, or None if there is none."""
        longer = re.fullmatch(r"longer_(seen|incremental|new)_([1-9]\d*)", name)
        if longer is not None:
            return self.longer(longer[1], int(longer[2]))
        if name == "train":
            return stacked(self._singles(self.composing + self.alone), self._parts["train"])
        if name == "train_before_new_tables":
            return stacked(self._singles(self.composing), self._parts["train"])
        if name == "heldout_tables":
            return self.longer("incremental", 0)
        if name == "new_compositions":
            return self.longer("new", 0)
        return self._parts.get(name)

    def _singles(self, count: int) -> Chains:
        return with_inputs(np.arange(count)[:, None])

    def _compositions(self, k: int) -> np.ndarray:
        """All compositions of k tables, ``(n, k)``; of more than the published six tables a
        random part, as many more as there are more tables."""
        count = self.composing**k
        if self.composing <= KNOWN:
            return codes_to_tables(np.arange(count), self.composing, k)
        wanted = min(count, KNOWN**k * self.composing // KNOWN)
        rng = np.random.default_rng([SEED, 1, k])
        codes = np.unique(rng.integers(0, count, 2 * wanted))
        return codes_to_tables(rng.permutation(codes)[:wanted], self.composing, k)

    @cached_property
    def _parts(self) -> dict[str, Chains]:
        rng = np.random.default_rng([SEED, 2])
        known, validation = [], []
        parts: dict[str, Chains] = {}
        for k in range(2, LONGEST + 1):
            tables = rng.permutation(self._compositions(k))
            if k == LONGEST:
                share = max(1, round(len(tables) * HELD_OUT_COMPOSITIONS / KNOWN**LONGEST))
                parts["heldout_compositions"] = with_inputs(tables[:share])
                tables = tables[share:]
            chains = with_inputs(tables)
            if k == LONGEST:
                order = rng.random((len(tables), INPUTS)).argsort(1)
                held = (order < HELD_OUT_INPUTS).reshape(-1)
                parts["heldout_inputs"] = chains.take(np.flatnonzero(held))
                chains = chains.take(np.flatnonzero(~held))
            published = {2: 288, 3: 1728, 4: 7476}[k]
            size = round(len(chains) * VALIDATION[k] / published)
            order = rng.permutation(len(chains))
            validation.append(chains.take(order[:size]))
            known.append(chains.take(np.sort(order[size:])))
        return {"train": stacked(*known), "validation": stacked(*validation), **parts}

    def longer(self, kind: str, beyond: int) -> Chains:
        """Compositions of ``LONGEST + beyond`` tables on all inputs.

        ``seen``: of tables that compose in training; ``new``: of the others; ``incremental``:
        of both. Each but ``new`` puts a table before every composition of the set before it.
        """
        return with_inputs(_longer(self.composing, self.alone, kind, beyond))


@lru_cache(maxsize=64)
def _longer(composing: int, alone: int, kind: str, beyond: int) -> np.ndarray:
    rng = np.random.default_rng([SEED, 3, beyond, *kind.encode()])
    both = composing + alone
    k = LONGEST + beyond
    if kind == "new":
        return _distinct(rng, min(LONG_COMPOSITIONS, alone**k), k, composing, both)
    if kind == "seen" and beyond <= 1:
        return _distinct(rng, LONG_COMPOSITIONS, k, 0, composing)
    if beyond == 0:
        drawn = _distinct(rng, 4 * LONG_COMPOSITIONS, k, 0, both)
        mixed = (drawn < composing).any(1) & (drawn >= composing).any(1)
        return drawn[mixed][:LONG_COMPOSITIONS]
    earlier = _longer(composing, alone, kind, beyond - 1)
    first = rng.integers(0, composing if kind == "seen" else both, len(earlier))
    return np.concatenate([first[:, None], earlier], axis=1)


def _distinct(rng: np.random.Generator, n: int, k: int, low: int, high: int) -> np.ndarray:
    """At most ``n`` different rows of ``k`` tables from ``low`` to ``high - 1``."""
    drawn = rng.integers(low, high, (40 * n + 200, k))
    _, first = np.unique(drawn, axis=0, return_index=True)
    return drawn[np.sort(first)][:n]
