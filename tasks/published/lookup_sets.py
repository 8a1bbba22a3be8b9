"""Which compositions of lookup tables are for training, and which are held out.

All single tables, all compositions of two and three, and of those of four, fifty held out
altogether and two inputs of every other one; then longer compositions. For the published tables
these are the published sets, row for row (the generator of Dubois et al., i-machine-think's
machine-tasks, with its seed 123), but for one: which examples go from training to validation
depends there on a hash seed that was not fixed, and is our own draw.
"""

from __future__ import annotations

import math
import random
import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tasks.tokens import Pairs, Tokens, column

SEED = 123
INPUTS = 8
LONGEST = 4
"""Tables in the longest training composition."""
KNOWN = 6
"""Composing tables of the published data."""
VALIDATION = {2: 15, 3: 84, 4: 376}
"""Validation examples for each number of tables."""
HELD_OUT_COMPOSITIONS, HELD_OUT_INPUTS = 50, 2
BOUND = 5000
"""Most examples of a test set."""


Chains = Pairs
"""An input as the source, and as the target the tables that are applied to it, by index."""


def codes_to_tables(codes: np.ndarray, base: int, k: int) -> np.ndarray:
    """Numbers below ``base ** k`` as ``(n, k)`` tables, the first applied first.

    The generator names the last table first, so the digits of a number are read from the right.
    """
    return codes[:, None] // base ** np.arange(k) % base


@dataclass(frozen=True, eq=False)
class LookupSets:
    """The sets for tables with ``outputs (n, 8)``, of which the last ``alone`` never compose."""

    outputs: np.ndarray
    alone: int

    @property
    def composing(self) -> int:
        """Tables that compose in training; they are the first ones."""
        return len(self.outputs) - self.alone

    def named(self, name: str) -> Chains | None:
        """The set of that name, or None if there is none."""
        longer = re.fullmatch(r"longer_(seen|incremental|new)_([1-9]\d*)", name)
        if longer is not None:
            return self._test_set(self.longer(longer[1], int(longer[2])))
        if name == "train":
            return self._singles(len(self.outputs)).joined(self._parts["train"])
        if name == "train_before_new_tables":
            return self._singles(self.composing).joined(self._parts["train"])
        if name == "heldout_tables":
            return self._test_set(self.longer("incremental", 0))
        if name == "new_compositions":
            return self._test_set(self.longer("new", 0))
        return self._parts.get(name)

    def _singles(self, count: int) -> Chains:
        return self._with_inputs(np.arange(count)[:, None])

    def _order(self, tables: np.ndarray) -> np.ndarray:
        """The inputs ``(n, 8)`` of each composition in the generator's order, which is that of
        what the last table is applied to."""
        values = np.tile(np.arange(INPUTS), (len(tables), 1))
        for step in range(tables.shape[1] - 1):
            values = self.outputs[tables[:, step, None], values]
        return values.argsort(1)

    def _with_inputs(self, tables: np.ndarray) -> Chains:
        """Every composition of ``tables (n, k)`` on all inputs, one composition after another."""
        n, k = tables.shape
        rows = np.repeat(tables, INPUTS, axis=0).astype(np.int16)
        return Chains(column(self._order(tables).ravel()), Tokens(rows, np.full(n * INPUTS, k)))

    def _test_set(self, tables: np.ndarray) -> Chains:
        chains = self._with_inputs(tables)
        return chains.take(shuffled(len(chains))[:BOUND])

    def _compositions(self, k: int) -> np.ndarray:
        """All compositions of k tables, ``(n, k)``; of more than the published six tables a
        random part, as many more as there are more tables."""
        count = self.composing**k
        if self.composing <= KNOWN:
            return codes_to_tables(np.arange(count), self.composing, k)
        size = min(count, KNOWN**k * self.composing // KNOWN)
        rng = np.random.default_rng([SEED, 1, k])
        codes = np.unique(rng.integers(0, count, 2 * size))
        return codes_to_tables(rng.permutation(codes)[:size], self.composing, k)

    @cached_property
    def _parts(self) -> dict[str, Chains]:
        """Training, validation and the sets of its longest compositions that are held out."""
        tables = self._compositions(LONGEST)
        order = list(range(len(tables)))
        random.Random(SEED).shuffle(order)
        tables = tables[order]
        share = max(1, round(len(tables) * HELD_OUT_COMPOSITIONS / KNOWN**LONGEST))
        training, held_out = tables[:-share], self._with_inputs(tables[-share:])
        rng = np.random.RandomState(SEED)
        rng.permutation(math.factorial(INPUTS))  # of which the first were the tables themselves
        drawn = np.array([rng.permutation(INPUTS) for _ in training]).reshape(-1, INPUTS)
        held_inputs = drawn[:, :HELD_OUT_INPUTS] + INPUTS * np.arange(len(training))[:, None]
        longest = self._with_inputs(training)
        inputs = longest.take(held_inputs.reshape(-1))
        rest = longest.take(np.setdiff1d(np.arange(len(longest)), held_inputs))
        shorter = [self._with_inputs(self._compositions(k)) for k in range(2, LONGEST)]
        return {
            "heldout_compositions": held_out.take(shuffled(len(held_out))),
            "heldout_inputs": inputs.take(shuffled(len(inputs))[:BOUND]),
            **validated([*shorter, rest]),
        }

    def longer(self, kind: str, beyond: int) -> np.ndarray:
        """Compositions ``(n, k)`` of ``LONGEST + beyond`` tables, as many as a test set holds.

        ``seen``: of tables that compose in training; ``new``: of the others; ``incremental``:
        of those that compose and one that does not. Each puts a table behind compositions of
        the sets before; of more than the published six tables they are drawn afresh.
        """
        if self.composing > KNOWN:
            return self._fresh(kind, LONGEST + beyond)
        words = random.Random(SEED)
        words.shuffle(list(range(self.composing**LONGEST)))  # as for the held-out compositions
        count = len(self.outputs)
        tables = codes_to_tables(np.arange(count**LONGEST), count, LONGEST)
        kinds = self._kinds(tables)
        for _ in range(beyond):
            last = np.repeat(np.arange(count), len(tables))[:, None]
            kinds = self._kinds(np.concatenate([np.tile(tables, (count, 1)), last], axis=1))
            for name, members in kinds.items():
                if len(members) * INPUTS > BOUND:
                    kinds[name] = members[words.sample(range(len(members)), BOUND // INPUTS)]
            tables = np.concatenate(list(kinds.values()))
        return kinds[kind]

    def _kinds(self, tables: np.ndarray) -> dict[str, np.ndarray]:
        """The compositions of each kind, in their order."""
        late = (tables >= self.composing).sum(1)
        return {
            "seen": tables[late == 0],
            "incremental": tables[late == 1],
            "new": tables[late == tables.shape[1]],
        }

    def _fresh(self, kind: str, k: int) -> np.ndarray:
        """At most a set's different compositions, drawn at random."""
        rng = np.random.default_rng([SEED, 3, k, *kind.encode()])
        shape = (40 * BOUND // INPUTS, k)
        late = self.composing + rng.integers(0, self.alone, shape)
        where = {"seen": np.zeros(shape, bool), "new": np.ones(shape, bool)}.get(
            kind, np.arange(k) == rng.integers(0, k, len(late))[:, None]
        )
        drawn = np.where(where, late, rng.integers(0, self.composing, shape))
        _, first = np.unique(drawn, axis=0, return_index=True)
        return drawn[np.sort(first)][: BOUND // INPUTS]


def shuffled(n: int) -> np.ndarray:
    """The generator's order of ``n`` rows."""
    return np.random.RandomState(SEED).permutation(n)


def validated(parts: list[Chains]) -> dict[str, Chains]:
    """Training and validation from compositions of 2, 3 and 4 tables."""
    rng = np.random.default_rng([SEED, 2])
    training, validation = [], []
    for k, chains in enumerate(parts, 2):
        published = {2: 288, 3: 1728, 4: 7476}[k]
        size = round(len(chains) * VALIDATION[k] / published)
        order = rng.permutation(len(chains))
        validation.append(chains.take(order[:size]))
        training.append(chains.take(np.sort(order[size:])))
    joined = (first.joined(*others) for first, *others in (training, validation))
    return dict(zip(("train", "validation"), joined, strict=True))
