"""One place where a node is a query's prediction: a run of the rule over the columns that count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from abc_calib.proof.graph import Query
from abc_calib.proof.operands import Atom
from abc_calib.proof.walk import Moves, Steps, TooMany, distinct
from tasks.rules import ABOVE

LARGEST = 2**62
"""Windows are numbers below this."""


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
        values = np.empty((len(codes), len(self.atoms)), np.uint8)
        for k in range(len(self.atoms)):
            codes, values[:, k] = np.divmod(codes, self.base)
        return values, codes

    @cached_property
    def tapes(self) -> tuple[Any, ...]:
        """How many letters each tape has."""
        lengths, query = [], self.query
        for tape in self.steps.by.tapes:
            above = query.above if tape == ABOVE else None
            lengths.append(query.letters(tape) if above is None else above - query.setup.rule.shift)
        return tuple(lengths)

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
        used: list[Any] = [(column, []) for column in (self.query_column, *self.tapes)]
        for number, atom in enumerate(self.atoms):
            if (axis := self.axis(atom)) is not None:
                used.append((self.on_tape(atom), [(axis, number)]))
        used.sort(key=lambda entry: entry[0].value)
        merged = used[:1]
        for form, atoms in used[1:]:
            if form == merged[-1][0]:
                merged[-1] = form, merged[-1][1] + atoms
            else:
                merged.append((form, atoms))
        return merged

    @cached_property
    def plan(self) -> list[tuple[Any, Moves | None]]:
        """The columns in order: of a gap its moves, and what is kept of each other column.

        As which tapes have ended, its atoms, and whether it is the query's. Each with a name.
        """
        plan, below, steps = list[tuple[Any, Moves | None]](), self.query.nothing, self.steps
        for form, atoms in self.columns:
            gap = form - below
            several = zip(gap.slopes, self.query.gaps.open, strict=True)
            open_ended = any(slope and is_open for slope, is_open in several)
            if gap.value or open_ended:
                ended = tuple(tape.value < form.value for tape in self.tapes)
                moves = steps.gap(ended, gap.value, open_ended)
                plan.append((id(moves), moves))
            at_query, below = form.value == self.query_column.value, form
            if atoms or at_query:
                ended = tuple(tape.value <= form.value for tape in self.tapes)
                plan.append(((ended, tuple(atoms), at_query), None))
                below = form + 1
        moves = steps.gap((True,) * len(self.tapes), 0, True)
        return [*plan, (id(moves), moves)]

    @property
    def key(self) -> tuple[Any, ...]:
        """All that its windows depend on: the same for places with the same ones."""
        run = tuple(name for name, _ in self.plan)
        atoms = tuple((x.kind, x.of == 0, self.axis(x) is None) for x in self.atoms)
        return id(self.steps), run, atoms, self.query.last, tuple(self.closes.items())

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
            gap or steps.column(what[0], what[1], self.closes if what[2] else None, right, pins)
            for what, gap in self.plan
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
