"""What a rule may do in a column, or in any number of columns of which nothing is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from abc_calib.errors import AbcError
from tasks.rules import Transducer

Moves = tuple[np.ndarray, np.ndarray, np.ndarray]
"""States before, what is kept of the columns, and states behind; in order of those before."""


class TooMany(AbcError):
    """More windows than may be held at once."""

    def __init__(self, estimate: float):
        super().__init__(f"about {estimate:,.0f} windows")


def distinct(numbers: np.ndarray) -> np.ndarray:
    """Each of them once, in order; by sorting, which is faster here than ``np.unique``."""
    ordered = np.sort(numbers)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


class Steps:
    """What a transducer may do in a column, with tables made once."""

    def __init__(self, by: Transducer):
        self.by, self.states, self.base = by, by.states, by.base
        self.state, self.letters, self.out, self.after = by.steps
        self._gaps: dict[tuple[tuple[bool, ...], int, bool], Moves] = {}
        self._each: dict[bytes, Moves] = {}

    def _allowed(self, ended: tuple[bool, ...]) -> np.ndarray:
        """Which steps have letters where tapes go on, and ``end`` where they have ``ended``."""
        return ((self.letters == self.base) == np.array(ended)[:, None]).all(0)

    def gap(self, ended: tuple[bool, ...], count: int, open_ended: bool) -> Moves:
        """What ``count`` columns do, or more if ``open_ended``: equal ones are the same object."""
        name = ended, count, open_ended
        if name not in self._gaps:
            step = np.zeros((self.states, self.states), np.float32)
            allowed = self._allowed(ended)
            step[self.state[allowed], self.after[allowed]] = 1
            relation = np.eye(self.states, dtype=np.float32)
            for _ in range(count):
                relation = np.minimum(relation @ step, 1)
            while open_ended:
                wider = np.minimum(relation + relation @ step, 1)
                if (wider == relation).all():
                    break
                relation = wider
            before, after = np.nonzero(relation)
            moves = before, np.zeros(len(before), np.int64), after
            leads = np.packbits(relation > 0).tobytes()
            self._gaps[name] = self._each.setdefault(leads, moves)
        return self._gaps[name]

    def column(
        self,
        ended: tuple[bool, ...],
        atoms: Sequence[tuple[int, int]],
        closes: Mapping[int, int] | None,
        right: int,
        pins: Mapping[int, int],
    ) -> Moves:
        """Each different (state, what is kept of a column, next state).

        ``atoms``: as (axis, number), of which ``base ** number`` times the value is kept. In the
        query's column ``right`` times the right token is, too; ``closes``: the token that closes
        the row, by what is written there. ``pins``: the value that some atoms must have.
        """
        allowed = self._allowed(ended)
        kept = np.zeros(len(self.state), np.int64)
        for axis, number in atoms:
            value = self.out if axis < 0 else self.letters[axis]
            allowed &= value < self.base
            if number in pins:
                allowed &= value == pins[number]
            kept += self.base**number * value
        if closes is not None:
            token = np.where(self.out < self.base, self.out, -1)
            for code, closer in closes.items():
                token[self.out == code] = closer
            allowed &= token >= 0
            kept += right * token
        rows = np.unique(np.stack([self.state, kept, self.after], 1)[allowed], axis=0)
        return rows[:, 0], rows[:, 1], rows[:, 2]

    def joined(
        self, code: np.ndarray, state: np.ndarray, moves: Moves, limit: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """What there is after such moves: each different pair of a number and a state."""
        before, kept, after = moves
        first = np.searchsorted(before, np.arange(self.states))
        count = np.searchsorted(before, np.arange(self.states), side="right") - first
        each = count[state]
        if (total := int(each.sum())) > limit:
            raise TooMany(float(total))
        source = np.repeat(np.arange(len(code)), each)
        within = np.arange(total) - np.repeat(np.cumsum(each) - each, each)
        effect = first[state[source]] + within
        pairs = distinct((code[source] + kept[effect]) * self.states + after[effect])
        return np.divmod(pairs, self.states)

    def ending(self, moves: list[Moves]) -> list[np.ndarray]:
        """Behind each of some moves: from which states can the row still be ended?"""
        after, out = (x.reshape(self.states, -1)[:, -1] for x in (self.by.next, self.by.written))
        good = (after == np.arange(self.states)) & (out == self.base + 1)
        goods = []
        for before, _, behind in reversed(moves):
            goods.append(good)
            good = np.zeros(self.states, bool)
            good[before[goods[-1][behind]]] = True
        return goods[::-1]
