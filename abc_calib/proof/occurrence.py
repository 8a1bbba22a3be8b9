"""One place where a node is a query's prediction: a run of the rule over the columns that count.

Of a column some letters are kept; of a stretch of columns nothing but the states around it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import groupby
from typing import Any

import numpy as np

from abc_calib.errors import AbcError
from abc_calib.proof.graph import Query
from abc_calib.proof.operands import Atom
from tasks.rules import ABOVE, Transducer

LARGEST = 2**62
"""Windows are numbers below this."""


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
        self.gap = cache(self._gap)

    def _allowed(self, ended: tuple[bool, ...]) -> np.ndarray:
        """Which steps have letters where tapes go on, and ``end`` where they have ``ended``."""
        return ((self.letters == self.base) == np.array(ended)[:, None]).all(0)

    def _gap(self, ended: tuple[bool, ...], count: int, open_ended: bool) -> Moves:
        """What ``count`` columns do, or more if ``open_ended``."""
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
        return before, np.zeros(len(before), np.int64), after

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


@dataclass(frozen=True)
class Occurrence:
    """One place where a node is a query's prediction: in the sizes of ``query`` and larger ones.

    ``atoms``: in the node's order. ``steps``: of the row's transducer.
    """

    query: Query
    atoms: tuple[Atom, ...]
    steps: Steps

    def __post_init__(self) -> None:
        """Make all comparisons that this place rests on: ``plan`` reads which gaps they closed."""
        _ = self.columns, self.closes

    @property
    def base(self) -> int:
        return self.steps.base

    @property
    def closes(self) -> dict[int, int]:
        """The token that closes the row, by what the transducer writes there."""
        setup, (options, never, always, *_) = self.query.setup, self.steps.by.closing
        closer = setup.eos if setup.row is None else setup.row
        last = setup.eos if self.query.last else closer
        return {options: last, never: closer, always: setup.eos}

    @property
    def query_column(self) -> Any:
        """The column of the row's tapes at which the query's token is written."""
        return self.query.column + self.steps.by.lag

    def split(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Windows as ``values (n, atoms)`` uint8 and the right tokens ``(n,)``."""
        powers = self.base ** np.arange(len(self.atoms) + 1)
        values = codes[:, None] // powers[:-1] % self.base
        return values.astype(np.uint8), codes // powers[-1]

    @cached_property
    def tapes(self) -> tuple[Any, ...]:
        """How many letters each tape has."""
        query, shift = self.query, self.query.setup.rule.shift
        tapes = self.steps.by.tapes
        return tuple(query.above - shift if k == ABOVE else query.letters(k) for k in tapes)

    def axis(self, atom: Atom) -> int | None:
        """The tape that an atom is on, -1 for the row itself; None if it may be any digit."""
        by, shift = self.steps.by, self.query.setup.rule.shift
        if atom.kind == "written":
            if atom.of == 0:
                return -1
            if atom.of == 1 and ABOVE in by.tapes and atom.column >= shift:
                return by.tapes.index(ABOVE)
        if atom.kind == "digit" and atom.of in by.tapes:
            return by.tapes.index(atom.of)
        return None

    def _started(self, atom: Atom) -> tuple[int, ...]:
        """What an atom is in each first state of the row, if that tells it."""
        by = self.steps.by
        opener = by.openers if atom.kind == "closer" and atom.of == 0 else ()
        return by.symbols if atom.kind == "symbol" else opener

    def on_tape(self, atom: Atom) -> Any:
        """The column of the row's tapes at which an atom is read, or written."""
        if atom.kind != "written":
            return atom.column
        late = self.steps.by.lag if atom.of == 0 else -self.query.setup.rule.shift
        return atom.column + late

    @cached_property
    def columns(self) -> list[tuple[Any, list[tuple[int, int]]]]:
        """The columns that count, in order: each with its atoms, as (axis of a tape, number).

        The axis -1 is what is written there; ends of tapes are columns that count, too.
        """
        used: list[Any] = [(column, None) for column in (self.query_column, *self.tapes)]
        for number, atom in enumerate(self.atoms):
            if (axis := self.axis(atom)) is not None:
                used.append((self.on_tape(atom), (axis, number)))
        used.sort(key=lambda entry: entry[0].value)
        columns = groupby(used, key=lambda entry: entry[0])
        return [(form, [atom for _, atom in entries if atom]) for form, entries in columns]

    @cached_property
    def plan(self) -> list[tuple[tuple[bool, ...], Any, bool]]:
        """The columns in order: which tapes have ended, and what is kept.

        Of a stretch how many columns it has, and whether there may be more; of any other column its
        atoms, and whether it is the query's.
        """
        plan, below = list[tuple[tuple[bool, ...], Any, bool]](), self.query.nothing
        for form, atoms in self.columns:
            gap = form - below
            several = zip(gap.slopes, self.query.gaps.open, strict=True)
            open_ended = any(slope and is_open for slope, is_open in several)
            if gap.value or open_ended:
                plan.append(
                    (tuple(k.value < form.value for k in self.tapes), gap.value, open_ended)
                )
            at_query, below = form.value == self.query_column.value, form
            if atoms or at_query:
                ended = tuple(k.value <= form.value for k in self.tapes)
                plan.append((ended, tuple(atoms), at_query))
                below = form + 1
        return [*plan, ((True,) * len(self.tapes), 0, True)]

    @property
    def key(self) -> tuple[Any, ...]:
        """All that its windows depend on: the same for places with the same ones."""
        atoms = tuple((x.kind, x.of == 0, self.axis(x) is None) for x in self.atoms)
        closes = tuple(self.closes.items())
        return id(self.steps), *self.plan, atoms, self.query.last, closes

    def windows(self, pins: Mapping[int, int], limit: int) -> np.ndarray:
        """All windows as numbers, each once: ``sum base^k value_k + base^atoms right``.

        ``pins``: the value that some atoms must have. ``TooMany`` if there would be more than
        ``limit`` of them at any time.
        """
        steps, by, right = self.steps, self.steps.by, self.base ** len(self.atoms)
        if right * (1 + max(self.query.setup.ids.values())) * steps.states >= LARGEST:
            raise TooMany(float(right))
        state = np.array(by.start, np.int64)
        code, kept = np.zeros(len(state), np.int64), np.ones(len(state), bool)
        if self.query.setup.rule.past:
            kept &= (np.array(by.symbols) == self.base) == self.query.last
        free: list[tuple[int, Any]] = []
        for number, atom in enumerate(self.atoms):
            if values := self._started(atom):
                code += self.base**number * np.array(values, np.int64)
                if number in pins:
                    kept &= np.array(values) == pins[number]
            elif self.axis(atom) is None:  # whatever the others are
                any_value = by.closers if atom.kind == "closer" else range(self.base)
                free.append((number, [pins[number]] if number in pins else any_value))
        state, code = state[kept], code[kept]
        moves = [
            steps.gap(ended, what, flag)
            if isinstance(what, int)
            else steps.column(ended, what, self.closes if flag else None, right, pins)
            for ended, what, flag in self.plan
        ]
        for (before, each, after), ends in zip(moves, steps.ending(moves), strict=True):
            good = ends[after]
            code, state = steps.joined(code, state, (before[good], each[good], after[good]), limit)
        code = distinct(code)
        for number, values in free:
            if len(code) * len(values) > limit:
                raise TooMany(float(len(code) * len(values)))
            code = (code[:, None] + self.base**number * np.array(values)).ravel()
        return np.sort(code)
