"""Every distinct window that a correct prefix can produce.

The task's automaton is run over the columns from the last one on, keeping of each column only
what the model's field holds. Where the distance between two columns does not matter, the set of
states is closed under any number of columns between. So the windows are those that occur in some
source of some length, and no others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from abc_calib.certification.places import Atom, Case, Constant, Digit, Other, Phase, Place, Written
from abc_calib.certification.walk import Slot, slots
from abc_calib.errors import AbcError
from tasks.columns import NEVER, NOTHING, ColumnRule


class TooMany(AbcError):
    """More windows than may be enumerated; ``estimate`` is an upper bound."""

    def __init__(self, estimate: float):
        super().__init__(f"up to {estimate:.2g} windows")
        self.estimate = estimate


@dataclass(frozen=True)
class Windows:
    """``values (n, atoms)`` uint8, one row a distinct window; ``expected (n,)`` the right token.

    ``radix``: how many values each atom may have.
    """

    case: Case
    atoms: tuple[Atom, ...]
    radix: list[int]
    values: np.ndarray
    expected: np.ndarray

    def __len__(self) -> int:
        return len(self.values)

    def take(self, kept: np.ndarray) -> Windows:
        """These windows alone: ``kept (n,)`` bool, or their numbers."""
        return replace(self, values=self.values[kept], expected=self.expected[kept])


def distinct(numbers: np.ndarray) -> np.ndarray:
    """Each of them once, in order; by sorting, which is faster here than ``np.unique``."""
    found = np.sort(numbers)
    return found[np.append(True, found[1:] != found[:-1])] if len(found) else found


def late(atom: Atom) -> tuple[int, int]:
    """Orders atoms: first those that come last into the walk, and multiply its end."""
    if not isinstance(atom, Digit):
        return 0, 0
    order = {"free": 0, "top": 1, "near": 2, "low": 3}
    return order[atom.column.kind], -atom.column.at


MOST_WRITTEN = 2**22
"""Windows that may be left where all digits are known but those written."""
MAY_FIT = 20
"""Where so many times more could be there than are allowed, it is not tried."""


class Enumeration:
    """The windows of one case; of those, where atoms are ``fixed``, that have these values."""

    def __init__(
        self,
        rule: ColumnRule,
        eos: int,
        case: Case,
        atoms: frozenset[Atom],
        period: int,
        fixed: Mapping[Atom, int] | None = None,
        end: int | None = None,
        beyond: Mapping[int, int] | None = None,
    ):
        self.rule, self.eos, self.case, self.period = rule, eos, case, period
        #: the token that stands beyond the digits of an operand, where numbers end by themselves
        self.beyond = dict(beyond or {})
        self.end = eos if end is None else end
        self.atoms = tuple(sorted(atoms, key=repr))
        self.fixed = dict(fixed or {})
        self.radix = [self._radix(atom) for atom in self.atoms]
        self.weight: list[int] = []
        total = 1
        for radix in self.radix:
            self.weight.append(total)
            total *= radix
        self.expected_weight = total
        if total * (eos + 1) * rule.states >= 2**62:
            raise TooMany(float(total))

    def parts(self, limit: int) -> Iterator[Windows]:
        """All windows, at most ``limit`` at a time; no window is in two parts."""
        try:
            yield self.windows(limit)
        except TooMany:
            for part in self._split():
                yield from part.parts(limit)

    def drawn(self, most: int, rng: np.random.Generator) -> Windows:
        """Windows of a part that is drawn at random, ``most`` and more where it has them."""
        try:
            return self.windows(MAY_FIT * most)
        except TooMany:
            if not any(map(self.open, self.atoms)):
                return self.windows(MOST_WRITTEN)
            parts = self._split()
            return parts[rng.integers(len(parts))].drawn(most, rng)

    def estimate(self, limit: int) -> float:
        """About how many windows there are: as many as in one part, times the parts."""
        free = (radix for a, radix in zip(self.atoms, self.radix, strict=True) if self.open(a))
        if math.prod(free) <= MAY_FIT * limit:
            try:
                return float(len(self.windows(limit)))
            except TooMany:
                pass
        parts = self._split()
        return len(parts) * parts[len(parts) // 2].estimate(limit)

    def open(self, atom: Atom) -> bool:
        """May the atom still be fixed?"""
        return not isinstance(atom, Written) and atom not in self.fixed

    def _split(self) -> list[Enumeration]:
        """The same with one atom more fixed, to each of its values in turn."""
        free = [atom for atom in self.atoms if self.open(atom)]
        if not free:
            raise TooMany(math.prod(self.radix))
        atom = min(free, key=late)
        return [self.where({atom: v}) for v in range(self.radix[self.atoms.index(atom)])]

    def where(self, fixed: Mapping[Atom, int]) -> Enumeration:
        """The same with these atoms fixed too."""
        same = (self.rule, self.eos, self.case, frozenset(self.atoms), self.period)
        return Enumeration(*same, {**self.fixed, **fixed}, self.end, self.beyond)

    def _radix(self, atom: Atom) -> int:
        if isinstance(atom, Digit) and atom.operand in self.beyond:
            return self.beyond[atom.operand] + 1
        return self.period if isinstance(atom, Phase) else self.rule.base

    def windows(self, limit: int) -> Windows:
        """All windows; ``TooMany`` where there would be more than ``limit`` at any time."""
        state = np.array(self.rule.start, np.int64)
        code = np.zeros(len(state), np.int64)
        for i, atom in enumerate(self.atoms):
            if isinstance(atom, Constant):
                assert self.rule.constants is not None
                keep = self._kept(atom, self.rule.constants[state])
                code, state = code[keep], state[keep]
                code += self.weight[i] * self.rule.constants[state]
        walk = slots(self.case, self.atoms)
        for number, slot in enumerate(walk):
            if slot.end:
                code, state = self._ended(code, state)
            elif slot.column is None:
                code, state = self._gap(code, state, limit)
            else:
                code, state = self._column(code, state, slot, limit, walk[number + 1 :])
        for i, atom in enumerate(self.atoms):
            if isinstance(atom, Phase | Other) or (
                isinstance(atom, Digit) and atom.column.kind == "free"
            ):
                choices = np.arange(self.radix[i])
                choices = choices[self._kept(atom, choices)]
                self._check(len(code) * len(choices), limit, [])
                more = self.weight[i] * choices
                code = (code[:, None] + more).ravel()
        code = distinct(code)
        values = np.empty((len(code), len(self.atoms)), np.uint8)
        for i, (weight, radix) in enumerate(zip(self.weight, self.radix, strict=True)):
            values[:, i] = code // weight % radix
        return Windows(self.case, self.atoms, self.radix, values, code // self.expected_weight)

    def _kept(self, atom: Atom, values: np.ndarray) -> np.ndarray:
        """Which of an atom's values are allowed."""
        wanted = self.fixed.get(atom)
        return np.ones(len(values), bool) if wanted is None else values == wanted

    def _check(self, now: int, limit: int, rest: list[Slot]) -> None:
        if now > limit:
            more = 1.0
            for slot in rest:
                for atom, radix in zip(self.atoms, self.radix, strict=True):
                    if isinstance(atom, Digit) and atom.column == slot.column:
                        more *= radix
            raise TooMany(now * more)

    def _effects(self, slot: Slot) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Each different (state, what is kept of the column, next state)."""
        rule = self.rule
        axes = rule.next.ndim - 1
        index = np.indices(rule.next.shape).reshape(1 + axes, -1)
        state, digits = index[0], index[1:]
        kept = np.zeros(index.shape[1], np.int64)
        written = np.where(rule.written == rule.base, self.end, rule.written).ravel()
        allowed = rule.next.ravel() >= 0
        for i, atom in enumerate(self.atoms):
            if isinstance(atom, Digit) and atom.column == slot.column:
                digit = digits[rule.operands.index(atom.operand)]
                if (token := self.beyond.get(atom.operand)) is not None:
                    digit = np.where(digit == rule.base, token, digit)
                kept += self.weight[i] * digit
                allowed &= self._kept(atom, digit)
            elif isinstance(atom, Written) and atom.column == slot.column:
                kept += self.weight[i] * written
        if slot.column == self.case.place:
            kept += self.expected_weight * written
            allowed &= rule.written.ravel() <= rule.base  # a row does not go on behind its end
        rows = np.stack([state, kept, rule.next.ravel()], 1)
        rows = rows[allowed & digits.any(0)] if slot.top else rows[allowed]
        rows = np.unique(rows, axis=0)
        return rows[:, 0], rows[:, 1], rows[:, 2]

    def _column(
        self, code: np.ndarray, state: np.ndarray, slot: Slot, limit: int, rest: list[Slot]
    ) -> tuple[np.ndarray, np.ndarray]:
        before, kept, after = self._effects(slot)
        first = np.searchsorted(before, np.arange(self.rule.states))
        count = np.searchsorted(before, np.arange(self.rule.states), side="right") - first
        each = count[state]
        total = int(each.sum())
        self._check(total, limit, rest)
        source = np.repeat(np.arange(len(code)), each)
        within = np.arange(total) - np.repeat(np.cumsum(each) - each, each)
        effect = first[state[source]] + within
        return self._distinct(code[source] + kept[effect], after[effect])

    def _distinct(self, code: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.divmod(distinct(code * self.rule.states + state), self.rule.states)

    def _gap(
        self, code: np.ndarray, state: np.ndarray, limit: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Any number of columns of which nothing is kept."""
        while True:
            more = self._column(code, state, Slot(None), limit, [])
            united = self._distinct(np.append(code, more[0]), np.append(state, more[1]))
            if len(united[0]) == len(code):
                return united
            code, state = united

    def _ended(self, code: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """After the first column: the final carry, if there is one, and EOS."""
        keep = self.rule.last[state] != NEVER
        code, state = code[keep], state[keep]
        last = self.rule.last[state]
        beyond = self.case.left == -1  # the row after a final carry
        if beyond:
            keep = last != NOTHING
            code, state, last = code[keep], state[keep], last[keep]
            place = Place("low", self.case.width) if self.case.width is not None else None
            place = place or Place("near", -1)
            for i, atom in enumerate(self.atoms):
                if isinstance(atom, Written) and atom.column == place:
                    code = code + self.weight[i] * last
            return code + self.expected_weight * self.end, state
        if self.case.left == 0:
            final = np.where(last == NOTHING, self.end, last)
            return code + self.expected_weight * final, state
        return code, state
