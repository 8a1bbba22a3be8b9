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

from tasks.base import Problems
from tasks.ragged import Ragged, column

SEED = 123
INPUTS = 8
LONGEST = 4
"""Tables in the longest training composition."""
COMPOSING = 6
"""Tables that compose in training; they are the first ones."""
VALIDATION = {2: 15, 3: 84, 4: 376}
"""Validation examples for each number of tables."""
HELD_OUT_COMPOSITIONS, HELD_OUT_INPUTS = 50, 2
BOUND = 5000
"""Most examples of a test set."""


Chains = Problems
"""An input as the source, and as the answer the tables that are applied to it, by index."""


def compositions(count: int, k: int) -> np.ndarray:
    """All ``k`` of ``count`` tables, ``(count ** k, k)``, the first applied first.

    The generator names the last table first, so the digits of a number are read from the right.
    """
    return np.arange(count**k)[:, None] // count ** np.arange(k) % count


@dataclass(frozen=True, eq=False)
class LookupSets:
    """The sets for the published tables, ``outputs (8, 8)`` by table and input."""

    outputs: np.ndarray

    def named(self, name: str) -> Chains | None:
        """The set of that name, or None if there is none."""
        longer = re.fullmatch(r"longer_(seen|incremental|new)_([1-9]\d*)", name)
        if longer is not None:
            return self._test_set(self.longer(longer[1], int(longer[2])))
        if name == "train":
            return self._singles(len(self.outputs)).joined(self._parts["train"])
        if name == "train_before_new_tables":
            return self._singles(COMPOSING).joined(self._parts["train"])
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
        return Problems.of(
            column(self._order(tables).ravel()), Ragged(rows, np.full(n * INPUTS, k))
        )

    def _test_set(self, tables: np.ndarray) -> Chains:
        chains = self._with_inputs(tables)
        return chains.take(shuffled(len(chains))[:BOUND])

    @cached_property
    def _parts(self) -> dict[str, Chains]:
        """Training, validation and the sets of its longest compositions that are held out."""
        tables = compositions(COMPOSING, LONGEST)
        order = list(range(len(tables)))
        random.Random(SEED).shuffle(order)
        tables = tables[order]
        training = tables[:-HELD_OUT_COMPOSITIONS]
        held_out = self._with_inputs(tables[-HELD_OUT_COMPOSITIONS:])
        rng = np.random.RandomState(SEED)
        rng.permutation(math.factorial(INPUTS))  # of which the first were the tables themselves
        drawn = np.array([rng.permutation(INPUTS) for _ in training]).reshape(-1, INPUTS)
        held_inputs = drawn[:, :HELD_OUT_INPUTS] + INPUTS * np.arange(len(training))[:, None]
        longest = self._with_inputs(training)
        inputs = longest.take(held_inputs.reshape(-1))
        rest = longest.take(np.setdiff1d(np.arange(len(longest)), held_inputs))
        shorter = [self._with_inputs(compositions(COMPOSING, k)) for k in range(2, LONGEST)]
        return {
            "heldout_compositions": held_out.take(shuffled(len(held_out))),
            "heldout_inputs": inputs.take(shuffled(len(inputs))[:BOUND]),
            **validated([*shorter, rest]),
        }

    def longer(self, kind: str, beyond: int) -> np.ndarray:
        """Compositions ``(n, k)`` of ``LONGEST + beyond`` tables, as many as a test set holds.

        ``seen``: of tables that compose in training; ``new``: of the others; ``incremental``:
        of those that compose and one that does not. Each puts a table behind compositions of
        the sets before.
        """
        words = random.Random(SEED)
        words.shuffle(list(range(COMPOSING**LONGEST)))  # as for the held-out compositions
        count = len(self.outputs)
        tables = compositions(count, LONGEST)
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
        late = (tables >= COMPOSING).sum(1)
        return {
            "seen": tables[late == 0],
            "incremental": tables[late == 1],
            "new": tables[late == tables.shape[1]],
        }


def shuffled(n: int) -> np.ndarray:
    """The generator's order of ``n`` rows."""
    return np.random.RandomState(SEED).permutation(n)


def validated(parts: list[Chains]) -> dict[str, Chains]:
    """Training and validation from compositions of 2, 3 and 4 tables."""
    rng = np.random.default_rng([SEED, 2])
    training, validation = [], []
    for k, chains in enumerate(parts, 2):
        order = rng.permutation(len(chains))
        validation.append(chains.take(order[: VALIDATION[k]]))
        training.append(chains.take(np.sort(order[VALIDATION[k] :])))
    joined = (first.joined(*others) for first, *others in (training, validation))
    return dict(zip(("train", "validation"), joined, strict=True))
