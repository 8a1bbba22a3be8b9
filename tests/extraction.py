"""A certified model as a finite-state transducer, read out of its windows: an oracle.

A model on lines is a table: of each window the token with the largest logit. What of a window is
needed for that, and stands before the column in question, is a state. Such a machine is built from
the first column on, and states that nothing tells apart are united.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from abc_calib.data import Data
from abc_calib.errors import AbcError
from abc_calib.nn.base import in_float64
from abc_calib.proof.occurrence import Occurrence
from abc_calib.proof.prove import Proof, check, prepare
from tasks.rules import NO, Transducer, reduced

MOST_COLUMNS = 4_000_000
"""Columns of letters from all states together; more would take minutes."""

Letters = tuple[int, ...]


class Ref(NamedTuple):
    """Where a token of a window stands: on a ``tape``, or ``WRITTEN``, or the row's ``SYMBOL``.

    So many columns behind the query (before it below 0); with ``fixed`` behind the first column.
    """

    tape: int
    column: int
    fixed: bool


WRITTEN, SYMBOL = -1, -2


@dataclass
class Table:
    """What a model writes where one node is the query, by the values of the atoms ``kept``."""

    kept: tuple[int, ...]
    tokens: dict[Letters, int]


class Known(NamedTuple):
    """A state while it is built: all of what was read and written that a later window may show.

    ``read`` columns, ``over`` of them behind the end, as far as that matters. Of letters and of
    what was written the ``first`` and ``began``, and the ``last`` and ``wrote``.
    """

    start: int
    read: int = 0
    over: int = 0
    first: tuple[Letters, ...] = ()
    last: tuple[Letters, ...] = ()
    began: Letters = ()
    wrote: Letters = ()


DONE = Known(-1)


def extracted(model: Any, data: Data) -> Transducer:
    """The transducer that a model is, from its windows alone; it is right in each of them."""
    proof = replace(prepare(model, data), model=in_float64(model))
    assert not sum(result.wrong for result in check(proof))
    return Reader(proof).machine()


class Reader:
    """Builds the transducer of a proof's model, one column after another."""

    def __init__(self, proof: Proof):
        self.proof, self.rule = proof, proof.rule.first
        self.base, self.end = self.rule.base, (self.rule.base,) * len(self.rule.tapes)
        #: by whether the query is behind the end, and gaps
        self.occurrences: dict[tuple[int, ...], tuple[Table, tuple[Ref, ...]]] = {}
        self.open: dict[tuple[int, ...], list[bool]] = {}
        for node, table in self._tables():
            for occurrence in proof.listing.occurrences[node]:
                at = occurrence.query.frame["column"][0] > 0, *occurrence.query.gaps.values
                self.occurrences[at] = table, self._refs(occurrence, table)
                self.open[at] = occurrence.query.gaps.open
        most = max(gap for _, *gaps in self.occurrences for gap in gaps)
        self.clip, self.past = 2 * most + 2, most + 2
        refs = {ref for _, place_refs in self.occurrences.values() for ref in place_refs}
        near = [r for r in refs if not r.fixed and r.tape != WRITTEN]
        self.ahead = max([self._horizon() - 1, 0, *(r.column for r in near)])
        self.back = self.ahead + max([0, *(-r.column for r in near)])
        self.own = max([0, *(-r.column for r in refs if not r.fixed and r.tape == WRITTEN)])
        self.fixed = max([0, *(1 + r.column for r in refs if r.fixed and r.tape != SYMBOL)])

    def _tables(self) -> Iterator[tuple[int, Table]]:
        """What the model predicts, of each node."""
        listing = self.proof.listing
        pairs = dict[int, list[tuple[np.ndarray, np.ndarray]]]()
        for node, codes in self.proof.all_parts():
            pairs.setdefault(node, []).append(listing.occurrences[node][0].split(codes))
        for node, parts in pairs.items():
            values, tokens = (np.concatenate(part) for part in zip(*parts, strict=True))
            occurrence = listing.occurrences[node][0]
            far = [
                abs((a.column - occurrence.query.column).value) if a.column is not None else 0
                for a in occurrence.atoms
            ]
            yield node, _table(values, tokens, sorted(range(len(far)), key=lambda k: -far[k]))

    def _refs(self, occurrence: Occurrence, table: Table) -> tuple[Ref, ...]:
        """Where the atoms stand that a table is asked by."""
        refs, gaps = [], [k for k, is_open in enumerate(occurrence.query.gaps.open) if is_open]
        for atom in (occurrence.atoms[k] for k in table.kept):
            if atom.kind == "symbol":
                refs.append(Ref(SYMBOL, 0, True))
                continue
            tape = WRITTEN if atom.kind == "written" else self.rule.tapes.index(atom.of)
            apart = atom.column - occurrence.query.column
            if not any(apart.slopes[k] for k in gaps):
                refs.append(Ref(tape, apart.value, False))
            elif not any(atom.column.slopes[k] for k in gaps):
                refs.append(Ref(tape, atom.column.value, True))
            else:
                raise AbcError("it reads the far end of a source, which no transducer does")
        return tuple(refs)

    def _at(self, column: int, rest: int) -> tuple[Table, tuple[Ref, ...]] | None:
        """What answers in a column with ``rest`` letters from it on; below 0: behind the end."""
        past = rest < 0
        gaps = (column + rest, -rest - 1) if past else (column, rest)
        for less in itertools.product(*(range(gap, -1, -1) for gap in gaps)):
            at = past, *less
            fits = zip(gaps, less, self.open.get(at, ()), strict=False)
            if at in self.occurrences and all(a == b or is_open for a, b, is_open in fits):
                return self.occurrences[at]
        return None

    def _horizon(self) -> int:
        """From how many letters on it does not matter how many there are."""
        columns = range(self.clip)
        for rest in reversed(range(1, self.clip)):
            if any(self._at(c, rest) != self._at(c, rest + 1) for c in columns):
                return rest + 1
        return 1

    # The machine

    def machine(self) -> Transducer:
        """The transducer, in which states that nothing tells apart are one."""
        starts = [Known(k) for k in range(max(1, len(self.rule.symbols)))]
        numbers = {start: k for k, start in enumerate(starts)}
        letters = [*np.ndindex(self.end), self.end] if self.end else [()]
        steps: list[tuple[int, Letters, int, int]] = []
        for memory in (queue := [*starts]):
            for read in letters:
                if (step := self._after(memory, read)) is None:
                    continue
                if step[0] not in numbers:
                    numbers[step[0]] = len(numbers)
                    queue.append(step[0])
                steps.append((numbers[memory], read, step[1], numbers[step[0]]))
            if len(numbers) * len(letters) > MOST_COLUMNS:
                raise AbcError(
                    f"more than {len(numbers):,} states of {len(letters):,} columns each: these "
                    "are too many to be written down"
                )
        shape = len(numbers), *(self.base + 1 for _ in self.end)
        following, written = np.full(shape, NO), np.full(shape, self.base + 1)
        for state, read, token, after in steps:
            following[state, *read], written[state, *read] = after, token
        by = replace(
            self.rule,
            start=tuple(range(len(starts))),
            next=following,
            written=written,
            lag=self.ahead,
        )
        return reduced(by)

    def _after(self, memory: Known, read: Letters) -> tuple[Known, int] | None:
        """The state after a column of letters, and what is written there; None for no source."""
        ended = read == self.end
        if memory == DONE:
            return (memory, self.base + 1) if ended else None
        if memory.over and not ended:
            return None
        over = min(memory.over + ended, self.ahead + self.past)
        first = (*memory.first, read)[: self.fixed]
        last = (*memory.last, read)[-1 - self.back :]
        column, count = memory.read - self.ahead, min(memory.read + 1, self.clip + self.ahead)
        kept = last[len(last) - self.back :] if self.back else ()
        after = Known(memory.start, count, over, first, kept, memory.began, memory.wrote)
        if column < 0:
            return after, self.base + 1
        token = self._token(after, last, column)
        if token is None or token >= self.base:
            return None if token is None else (DONE, self.base)
        began = (*memory.began, token)[: self.fixed]
        wrote = (*memory.wrote, token)[-self.own :] if self.own else ()
        return after._replace(began=began, wrote=wrote), token

    def _token(self, memory: Known, last: tuple[Letters, ...], column: int) -> int | None:
        """What the model writes in a column, all of whose window is known."""
        rest = self.ahead + 1 - memory.over
        if (entry := self._at(column, rest)) is None:
            return None
        values = []
        for tape, at, fixed in entry[1]:
            if tape == SYMBOL:
                values.append(self.rule.symbols[memory.start])
            elif tape == WRITTEN:
                values.append(memory.began[at] if fixed else memory.wrote[at])
            else:
                values.append((memory.first[at] if fixed else last[at - self.ahead - 1])[tape])
        return entry[0].tokens.get(tuple(values))


def _table(values: np.ndarray, tokens: np.ndarray, order: list[int]) -> Table:
    """A table without those columns of ``values (n, k)``, tried in order, that decide nothing."""
    kept, rows = [*range(values.shape[1])], np.unique(np.column_stack([values, tokens]), axis=0)
    for number in order:
        fewer = np.unique(np.delete(rows, kept.index(number), axis=1), axis=0)
        if len(np.unique(fewer[:, :-1], axis=0)) == len(fewer):
            kept.remove(number)
            rows = fewer
    return Table(tuple(kept), {tuple(row[:-1]): row[-1] for row in rows.tolist()})


def same(rule: Transducer, other: Transducer) -> bool:
    """Does ``other`` write what ``rule`` writes for each of its sources, of every length?

    Both read all sources at once; of pairs of states each is looked at once, with what one of
    them has written before the other.
    """
    columns = [*np.ndindex(rule.next.shape[1:])]
    by_symbol = dict(zip(other.symbols, other.start, strict=False))
    of = rule.symbols or (0,)
    starts = [
        (s, by_symbol.get(k, other.start[0]), ()) for k, s in zip(of, rule.start, strict=True)
    ]
    visited: dict[tuple[int, int, Letters], None] = dict.fromkeys(starts)
    for state, other_state, ahead in (queue := [*visited]):
        for read in columns:
            after = int(rule.next[state, *read]), int(other.next[other_state, *read])
            if after[0] == NO:
                continue
            if after[1] == NO:
                return False
            out = _signed(rule, rule.written[state, *read], 1)
            out += _signed(other, other.written[other_state, *read], -1)
            left = [*ahead]
            for token in out:  # what one wrote cancels what the other wrote
                if left and left[0] * token < 0:
                    if left.pop(0) != -token:
                        return False
                else:
                    left.append(token)
            if len(left) > 2 * (rule.lag + other.lag):
                return False
            pair = (*after, tuple(left))
            if pair not in visited:
                visited[pair] = None
                queue.append(pair)
    return True


def _signed(by: Transducer, token: int, sign: int) -> list[int]:
    """What is written in a column, as a number that says by whom; closing tokens are one."""
    if token == by.base + 1:
        return []
    return [sign * (1 + min(int(token), by.base))]
