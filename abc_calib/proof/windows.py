"""Every distinct window that a right prefix can produce, by running the rule over the columns.

By hand: ``19+3`` is read as the columns (9, 3), (1, 0) and the end. The rule begins without a
carry, reads (9, 3), writes 2 and carries; reads (1, 0), writes 2; reads the end and closes. A
model whose lines name this column and the one before sees in column 1 the *window* ``y[t-1] = 2``,
``a[t-1] = 9``, ``b[t-1] = 3``, ``a[t] = 1``, ``b[t] = 0``, and 2 is right. All windows of such a
*node*: any number of columns, of which only the state behind them counts (no carry, or a carry);
the column before, of which digits and output are kept; the query's column, of which digits are
kept, and whose output is the right token; then anything from which the number can still end. That
is 2 x 100 x 100, since ``y[t-1]`` shows the carry. Column 0 has 100 (nothing before it); the
column behind the numbers 199 (a carry out of (0, 0) is missing, since one of the two numbers
begins there); and the column behind a last carry 1: ``y[t-1] = 1``. In all 20,300 windows, for
sums of every length.

**Lemma.** Every problem of a size that ``forms`` does not list is like a listed one with more
columns in open gaps. A window holds nothing of columns in a gap, so what a gap of ``n`` columns
does is the relation between the states before and behind it: the n-th power of what one column
does; of an open gap the union of all powers from n on, which is reached after finitely many. So
the windows here are those that occur in some problem of some size, and no others, but for two
things that are taken too widely: digits of other rows' numbers, and of rows further up than the
one above, may be any; and lengths of gaps are taken for independent of each other. More windows
than occur, never fewer.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from abc_calib.errors import AbcError
from abc_calib.proof.forms import MOST_SIZES, sizes
from abc_calib.proof.graph import Atom, Graph, Query, Setup
from tasks.rules import ABOVE, Transducer

FEW_SIZES = 400
"""Sizes that are looked at before it is assumed that lines run against the columns."""
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

    def windows(self, vocabulary: int, pins: Mapping[int, int], limit: int) -> np.ndarray:
        """All windows as numbers, each once: ``sum base^k value_k + base^atoms right``.

        ``pins``: the value that some atoms must have. ``TooMany`` if there would be more than
        ``limit`` of them at any time.
        """
        walk = _Walk(self, vocabulary, pins, limit)
        return walk.run()


class _Walk:
    """One run over the columns of a place."""

    def __init__(
        self, occurrence: Occurrence, vocabulary: int, pins: Mapping[int, int], limit: int
    ):
        self.occurrence, self.pins, self.limit = occurrence, pins, limit
        self.steps, self.q, self.base = (
            occurrence.steps,
            occurrence.steps.by.states,
            occurrence.base,
        )
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


class AllWindows:
    """All that queries see: every node that is a prediction, with the places where it is one."""

    def __init__(self, setup: Setup, vocabulary: int):
        self.setup, self.vocabulary, self.graph = setup, vocabulary, Graph()
        self.occurrences: dict[int, list[Occurrence]] = {}
        self.sizes = 0
        by = {id(row): Steps(row) for row in (setup.rule.first, setup.rule.later) if row}
        try:
            self._list(by, mirrored=False)
        except AbcError:
            if setup.rule.in_rows:
                raise
            self.occurrences.clear()
            self.sizes = 0
            self._list(by, mirrored=True)

    def _list(self, by: Mapping[int, Steps], mirrored: bool) -> None:
        rule = self.setup.rule
        for frame, short in itertools.product(self.setup.frames(mirrored), range(rule.stride)):
            pairs: list[tuple[int, Occurrence]] = []

            def look(gaps: Any, frame: Any = frame, short: int = short, pairs: Any = pairs) -> None:
                query = Query(self.setup, self.graph, frame, gaps, short)
                if not query.there:
                    return
                state = query.state()
                machine = rule.first if query.first else rule.later
                occurrence = Occurrence(query, state.atoms, by[id(machine)])
                occurrence.settle()
                pairs.append((state.node, occurrence))

            count = len(next(iter(frame.values()))) - 1
            most = MOST_SIZES if mirrored or rule.in_rows else FEW_SIZES
            self.sizes += sum(1 for _ in sizes(count, look, self.setup.period, most))
            for node, occurrence in pairs:
                self.occurrences.setdefault(node, []).append(occurrence)

    def radix(self, node: int) -> int:
        """The number from which on the right token counts in a node's windows."""
        return self.setup.rule.base ** self.graph.nodes[node].atoms

    def windows(self, node: int, pins: Mapping[int, int], limit: int) -> np.ndarray:
        """The windows of a node, of all its places, as numbers: see ``Occurrence.windows``."""
        different = {occurrence.key: occurrence for occurrence in self.occurrences[node]}.values()
        windows = [occurrence.windows(self.vocabulary, pins, limit) for occurrence in different]
        return distinct(np.concatenate(windows)) if len(windows) > 1 else windows[0]

    def estimate(self, node: int, limit: int) -> float:
        """About how many windows a node has."""
        try:
            return float(len(self.windows(node, {}, limit)))
        except TooMany:
            return float(math.prod([self.setup.rule.base] * self.graph.nodes[node].atoms))
