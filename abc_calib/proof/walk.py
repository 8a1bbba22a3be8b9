"""A run of the rule over the columns of a place: which windows there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from abc_calib.errors import AbcError
from abc_calib.proof.occurrence import Occurrence

LARGEST = 2**62
"""Windows are numbers below this."""


class TooMany(AbcError):
    """More windows than may be held at once; ``estimate``: about how many there are."""

    def __init__(self, estimate: float):
        super().__init__(f"about {estimate:,.0f} windows")
        self.estimate = estimate


def distinct(numbers: np.ndarray) -> np.ndarray:
    """Each of them once, in order; by sorting, which is faster here than ``np.unique``."""
    ordered = np.sort(numbers)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


class Walk:
    """A run over the columns of a place.

    Gives all windows as numbers, each once: ``sum base^k value_k + base^atoms right``. ``pins``:
    the value that some atoms must have. ``TooMany`` if there would be more than ``limit`` of them
    at any time.
    """

    def __init__(
        self, occurrence: Occurrence, vocabulary: int, pins: Mapping[int, int], limit: int
    ):
        self.occurrence, self.pins, self.limit = occurrence, pins, limit
        self.steps, self.base = occurrence.steps, occurrence.base
        self.q = self.steps.by.states
        self.weight = [self.base**k for k in range(len(occurrence.atoms))]
        self.right = self.base ** len(occurrence.atoms)
        if self.right * vocabulary * self.q >= LARGEST:
            raise TooMany(float(self.right))

    def run(self) -> np.ndarray:
        occurrence, by = self.occurrence, self.steps.by
        state = np.array(by.start, np.int64)
        code, kept = np.zeros(len(state), np.int64), np.ones(len(state), bool)
        if occurrence.query.setup.rule.past:
            kept &= (np.array(by.symbols) == self.base) == occurrence.query.last
        for number, atom in enumerate(occurrence.atoms):
            if atom.kind == "symbol" or (atom.kind == "closer" and atom.of == 0):
                value = np.array(by.symbols if atom.kind == "symbol" else by.openers, np.int64)
                code += self.weight[number] * value
                if number in self.pins:
                    kept &= value == self.pins[number]
        state, code = state[kept], code[kept]
        good = self._goods(occurrence.plan)
        for (kind, what), ends in zip(occurrence.plan, good, strict=True):
            if kind == "gap":
                before, after = np.nonzero(what)
                kept = np.zeros(len(before), np.int64)
            else:
                before, kept, after = self._kept(*what)
            ending = ends[after]
            code, state = self._joined(code, state, before[ending], kept[ending], after[ending])
        code = distinct(code)
        for number, atom in enumerate(occurrence.atoms):
            if occurrence.free(atom):
                values = np.array([self.pins.get(number, -1)])
                closers = np.array(by.closers if atom.kind == "closer" else range(self.base))
                values = values if number in self.pins else closers
                self._check(len(code) * len(values))
                code = (code[:, None] + self.weight[number] * values).ravel()
        return np.sort(code)

    def _goods(self, plan: list[tuple[str, Any]]) -> list[np.ndarray]:
        """After each part of the plan: from which states can the row still be ended?"""
        by = self.steps.by
        after, out = (x.reshape(self.q, -1)[:, -1] for x in (by.next, by.written))
        good = (after == np.arange(self.q)) & (out == self.base + 1)
        goods = []
        for kind, what in reversed(plan):
            goods.append(good)
            if kind == "gap":
                good = (what & good).any(1)
            else:
                before, _, after = self._kept(*what)
                earlier = np.zeros(self.q, bool)
                earlier[before[good[after]]] = True
                good = earlier
        return goods[::-1]

    def _kept(
        self, ended: tuple[bool, ...], atoms: tuple[tuple[int, int], ...], at_query: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Each different (state, what is kept of the column, next state), in order of states."""
        steps = self.steps
        allowed = steps.allowed(ended)
        kept = np.zeros(len(steps.state), np.int64)
        for axis, number in atoms:
            value = steps.out if axis < 0 else steps.letters[axis]
            allowed &= value < self.base
            if number in self.pins:
                allowed &= value == self.pins[number]
            kept += self.weight[number] * value
        if at_query:
            right = np.where(steps.out < self.base, steps.out, -1)
            for code, token in self.occurrence.closes.items():
                right[steps.out == code] = token
            allowed &= right >= 0
            kept += self.right * right
        rows = np.stack([steps.state, kept, steps.after], 1)[allowed]
        rows = np.unique(rows, axis=0)
        return rows[:, 0], rows[:, 1], rows[:, 2]

    def _check(self, count: int) -> None:
        if count > self.limit:
            raise TooMany(float(count))

    def _joined(
        self,
        code: np.ndarray,
        state: np.ndarray,
        before: np.ndarray,
        kept: np.ndarray,
        after: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """What there is after such steps: each different pair of a number and a state."""
        first = np.searchsorted(before, np.arange(self.q))
        count = np.searchsorted(before, np.arange(self.q), side="right") - first
        each = count[state]
        total = int(each.sum())
        self._check(total)
        source = np.repeat(np.arange(len(code)), each)
        within = np.arange(total) - np.repeat(np.cumsum(each) - each, each)
        effect = first[state[source]] + within
        pairs = distinct((code[source] + kept[effect]) * self.q + after[effect])
        return np.divmod(pairs, self.q)
