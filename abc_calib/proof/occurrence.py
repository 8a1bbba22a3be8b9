"""One place where a node is a query's prediction: the columns that count there, in order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from abc_calib.proof.graph import Query
from abc_calib.proof.operands import Atom
from tasks.rules import ABOVE, Transducer


class Steps:
    """What a transducer may do in a column, with tables made once."""

    def __init__(self, by: Transducer):
        self.by = by
        self.state, self.letters, self.out, self.after = by.steps
        self._relations: dict[tuple[Any, ...], np.ndarray] = {}
        self._each: dict[bytes, np.ndarray] = {}

    def allowed(self, ended: tuple[bool, ...]) -> np.ndarray:
        """Which steps have letters where tapes go on, and ``end`` where they have ``ended``."""
        over = self.letters == self.by.base
        return (over == np.array(ended)[:, None]).all(0)

    def relation(self, ended: tuple[bool, ...], count: int, open_ended: bool) -> np.ndarray:
        """Which states lead to which by ``count`` columns, or more if ``open_ended``: ``(q, q)``.

        Equal ones are the same array.
        """
        name = ended, count, open_ended
        if name not in self._relations:
            q = self.by.states
            step = np.zeros((q, q), np.float32)
            allowed = self.allowed(ended)
            step[self.state[allowed], self.after[allowed]] = 1
            relation = np.eye(q, dtype=np.float32)
            for _ in range(count):
                relation = np.minimum(relation @ step, 1)
            while open_ended:
                wider = np.minimum(relation + relation @ step, 1)
                if (wider == relation).all():
                    break
                relation = wider
            leads = relation > 0
            self._relations[name] = self._each.setdefault(np.packbits(leads).tobytes(), leads)
        return self._relations[name]


@dataclass(frozen=True)
class Occurrence:
    """One place where a node is a query's prediction: in the sizes of ``query`` and larger ones.

    ``atoms``: in the node's order. ``steps``: of the row's transducer.
    """

    query: Query
    atoms: tuple[Atom, ...]
    steps: Steps

    @property
    def base(self) -> int:
        return self.steps.by.base

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
        lengths = []
        for tape in self.steps.by.tapes:
            query = self.query
            above = query.above if tape == ABOVE else None
            lengths.append(query.letters(tape) if above is None else above - query.setup.rule.shift)
        return tuple(lengths)

    @cached_property
    def walk(self) -> tuple[tuple[Any, list[tuple[int, int]]], ...]:
        """The columns that count, in order: each with its atoms, as (axis of a tape, number).

        The axis -1 is what is written there; ends of tapes are columns that count, too.
        """
        used: list[tuple[Any, list[tuple[int, int]]]] = [(self.query_column, [])]
        used += [(end, []) for end in self.tapes]
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
        return tuple(merged)

    def settle(self) -> None:
        """Make all comparisons that this place rests on, so that gaps are closed by them."""
        _ = self.walk, self.closes

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

    def free(self, atom: Atom) -> bool:
        """May it be any, whatever the others are?"""
        fixed = atom.kind == "symbol" or (atom.kind == "closer" and atom.of == 0)
        return not fixed and self.axis(atom) is None

    def on_tape(self, atom: Atom) -> Any:
        """The column of the row's tapes at which an atom is read, or written."""
        if atom.kind != "written":
            return atom.column
        late = self.steps.by.lag if atom.of == 0 else -self.query.setup.rule.shift
        return atom.column + late

    @cached_property
    def plan(self) -> list[tuple[str, Any]]:
        """The columns in order: gaps, as relations, and those of which something is kept."""
        plan: list[tuple[str, Any]] = []
        at, below, tapes = 0, None, self.tapes
        open_ = [k for k, is_open in enumerate(self.query.gaps.open) if is_open]
        for form, atoms in self.walk:
            count = form.value - at
            slopes = (
                form.slopes
                if below is None
                else [a - b for a, b in zip(form.slopes, below.slopes, strict=True)]
            )
            open_ended = any(slopes[k] for k in open_)
            if count or open_ended:
                ended = tuple(t.value < form.value for t in tapes)
                plan.append(("gap", self.steps.relation(ended, count, open_ended)))
            at, below = form.value, form
            at_query = form.value == self.query_column.value
            if atoms or at_query:
                ended = tuple(t.value <= at for t in tapes)
                plan.append(("column", (ended, tuple(atoms), at_query)))
                at, below = at + 1, form + 1
        plan.append(("gap", self.steps.relation((True,) * len(tapes), 0, True)))
        return plan

    @property
    def key(self) -> tuple[Any, ...]:
        """All that its windows depend on: the same for places with the same ones."""
        run = tuple((kind, id(what) if kind == "gap" else what) for kind, what in self.plan)
        atoms = tuple((atom.kind, atom.of == 0, self.free(atom)) for atom in self.atoms)
        return id(self.steps), run, atoms, self.query.last, tuple(self.closes.items())
