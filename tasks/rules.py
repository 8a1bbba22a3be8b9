"""Rules: what a task writes, as finite-state transducers that read one column after another.

An output has one or more *rows*. Each row is written by a ``Transducer``, one symbol a column. In
every column it reads one letter from each of its *tapes* (operands, or the row above), a letter
being a symbol or, behind the last one, ``end``. Its state and these letters give what it writes
there, a symbol, the row's close or nothing, and the next state. Everything else is an ordinary
state: a carry, a number that may not begin with a zero, a carry that is left over at the end.

From a rule follow the answers of a task (``Rule.rows``), its hard problems, and the windows that a
certificate lists (``abc_calib.proof``), so that a proof about every length needs nothing else.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tasks.ragged import Ragged, Rng

ROW, END = "|", "&"
"""What closes a row of the output, and its last row."""
ABOVE = -1
"""The tape that is the row above."""
NO = -1
"""In ``Transducer.next``: no source has such a column."""
LONG = 4096
"""Columns from which on few problems are run in blocks."""
MOST_ROWS = 100_000
"""Of an output that says itself where it ends."""


class NoSource(ValueError):
    """Problems that the rule does not take, or does not end: ``args[0]`` are their numbers."""


@dataclass(frozen=True)
class Transducer:
    """What writes a row. ``q`` states, ``k`` tapes, letters below ``base`` and ``end = base``.

    ``next`` and ``written``, ``(q, base + 1, ..., base + 1)`` with ``k`` axes of letters: the state
    after a column, or ``NO``; and what is written there: a symbol, ``base`` where the row closes,
    ``base + 1`` for nothing, behind it, ``base + 2`` where it closes and another row follows, and
    ``base + 3`` where it closes as the last one, however many the source asks for. ``tapes``: the
    operand of each axis, or ``ABOVE``. ``start``: the states before column 0; in each, ``symbols``
    has the symbol that belongs to the whole row, ``base`` being none, and ``openers`` what closed
    the row above. ``closers``: symbols that close a row before another one, in place of a
    delimiter. ``words``: every letter counts;
    else letters are digits of numbers, which may be written with more zeros. ``lag``: how many
    columns late a symbol is written, so that it may depend on letters ahead of its own column; in
    as many columns at first nothing is. ``lenient``: the same for numbers that are written with
    more zeros, if they may be; such a source is in no certificate.
    """

    base: int
    tapes: tuple[int, ...]
    start: tuple[int, ...]
    next: np.ndarray
    written: np.ndarray
    symbols: tuple[int, ...] = ()
    words: bool = False
    lag: int = 0
    openers: tuple[int, ...] = ()
    closers: tuple[int, ...] = ()
    lenient: Transducer | None = None

    @property
    def states(self) -> int:
        return len(self.next)

    @cached_property
    def steps(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Every column there is: state ``(m,)``, letters ``(k, m)``, written and next ``(m,)``."""
        index = np.indices(self.next.shape).reshape(self.next.ndim, -1)
        valid = self.next.ravel() >= 0
        index, after = index[:, valid], self.next.ravel()[valid]
        return index[0], index[1:], self.written.ravel()[valid], after

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain data."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        del fields["lenient"]
        for name in ("words", "lag", "openers", "closers"):  # as it was before there were any
            if not fields[name]:
                del fields[name]
        return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in fields.items()}

    @property
    def columns(self) -> np.ndarray:
        """Every column of letters, ``(k, m)``, in the order of the flattened tables."""
        k = self.next.ndim - 1
        return np.indices(self.next.shape[1:]).reshape(k, -1) if k else np.zeros((0, 1), int)

    @property
    def closing(self) -> tuple[int, ...]:
        """What is written where a row closes: the output's last one or not, never, and always.

        Then the symbols that close rows, never the last one.
        """
        return self.base, self.base + 2, self.base + 3, *self.closers

    @cached_property
    def goes_on(self) -> bool:
        """Does another row ever follow one that it writes?"""
        return bool(np.isin(self.steps[2], (self.base, self.base + 2, *self.closers)).any())

    def started(self, symbol: np.ndarray | None, opener: np.ndarray | None) -> np.ndarray:
        """The states before column 0 of rows with these symbols and openers, one beyond for none.

        Without a symbol that of the first start.
        """
        if symbol is None and opener is None:
            return np.array(self.start[0])
        pairs = itertools.zip_longest(self.start, self.symbols, self.openers, fillvalue=0)
        of = np.full((self.base + 1, self.base + 1), self.states)
        for state, *at in pairs:
            of[tuple(at)] = state
        zero = np.array(0)
        return of[
            symbol if self.symbols and symbol is not None else zero,
            opener if self.openers and opener is not None else zero,
        ]

    @cached_property
    def extra(self) -> int | None:
        """How many symbols a row has more than its tapes have letters; None if that varies.

        Of rows that another may follow: one that closes as the last before its last letter is
        above none.
        """
        if self.lag > 1 or not self.tapes:
            return None  # a row of fewer letters is written as late
        _, letters, out, after = self.steps
        inside, ended = (letters < self.base).all(0), (letters == self.base).all(0)
        if (
            not (inside | ended).all()
            or np.isin(out[inside], (*self.closers, self.base, self.base + 2)).any()
        ):
            return None
        extras, state = set[int](), np.unique(after[inside])
        ending, out = (x.reshape(self.states, -1)[:, -1] for x in (self.next, self.written))
        for extra in range(-self.lag, self.states + 1):
            state = state[ending[state] >= 0]
            closed = np.isin(out[state], self.closing)
            if closed.any():
                extras.add(extra)
            if not len(state) or ((out[state] >= self.base) | closed).all():
                return extras.pop() if len(extras) == 1 else None
            state = np.unique(ending[state])
        return None

    # Many problems at once

    def run(
        self,
        tapes: Sequence[Ragged],
        symbol: np.ndarray | None = None,
        opener: np.ndarray | None = None,
    ) -> tuple[Ragged, np.ndarray]:
        """The rows that are written for ``n`` problems, and what closes each: ``NO`` for no source.

        ``tapes``: letters in the order of columns. ``symbol (n,)``: of each row, where rows have
        one. ``opener (n,)``: what closed each row above. A symbol that closes a row is behind the
        others.
        """
        if self.lenient is not None:
            return self.lenient.run(tapes, symbol, opener)
        n = len(tapes[0]) if tapes else 0 if symbol is None else len(symbol)
        radix = self.base + 1
        state = np.broadcast_to(self.started(symbol, opener), n)
        wide = max([int(tape.lengths.max(initial=0)) for tape in tapes], default=0)
        columns = np.zeros((wide + 1, n), np.int32)
        place, strange = np.arange(wide)[:, None], np.zeros(n, bool)
        for tape in tapes:
            columns *= radix
            present = min(wide, tape.width)
            digits = np.ascontiguousarray(tape.values[:, :present].T)
            inside = place[:present] < tape.lengths
            strange |= ((digits >= self.base) & inside).any(0)  # no letter of the rule
            columns[:present] += np.where(inside, np.minimum(digits, self.base), self.base)
            columns[present:] += self.base
        out, state = self._through(columns[:wide], state)
        outputs = [out]
        for column in itertools.count(wide):
            out, state = self._through(columns[wide:], state)
            outputs.append(out)
            if column >= wide + self.lag and (out >= self.base).all():
                break
        out = np.concatenate(outputs)[self.lag :]
        width = np.isin(out, self.closing).argmax(0)
        values = np.where(out < self.base, out, 0).astype(np.uint8)[:-1].T
        no_source = strange | (state == self.states)
        return Ragged(values, width), np.where(no_source, NO, out[width, np.arange(n)])

    def _through(self, columns: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What is written in ``columns (w, n)`` from states ``(n,)``, and the states behind them.

        Of few problems in blocks at once: from every state first, then from the right one.
        """
        after, written, _ = self._tables
        radix = (self.base + 1) ** len(self.tapes)
        (w, n), count = columns.shape, len(after) // radix
        if w > LONG and n * count < w:
            blocks = math.isqrt(w)
            length = w // blocks
            whole = columns[: blocks * length].reshape(blocks, length, n)
            parts = np.ascontiguousarray(whole.swapaxes(0, 1)).reshape(length, -1)
            ends, first = np.empty((count, blocks, n), np.int64), [state]
            for origin in range(count):
                ends[origin] = self._last(parts, np.full(blocks * n, origin)).reshape(blocks, n)
            for block in range(blocks):
                first.append(ends[first[-1], block, np.arange(n)])
            several, _ = self._through(parts, np.concatenate(first[:-1]))
            outputs = several.reshape(length, blocks, n).swapaxes(0, 1).reshape(-1, n)
            rest, state = self._through(columns[blocks * length :], first[-1])
            return np.concatenate([outputs, rest]), state
        out = np.empty((w, n), written.dtype)
        for column, letters in enumerate(columns):
            at = state * radix + letters
            out[column], state = written.take(at), after.take(at)
        return out, state

    def _last(self, columns: np.ndarray, state: np.ndarray) -> np.ndarray:
        """The states ``(n,)`` behind columns ``(w, n)``."""
        after, radix = self._tables[0], (self.base + 1) ** len(self.tapes)
        for letters in columns:
            state = after.take(state * radix + letters)
        return state

    def ending(self, length: int) -> list[np.ndarray]:
        """Of one tape: from which states ``(q,)`` a row can end after 0 to ``length`` letters."""
        while len(self._ending) <= length:
            state, (letter,), _, after = self.steps
            inside, now = letter < self.base, np.zeros(self.states, bool)
            now[state[inside & self._ending[-1][after]]] = True
            self._ending.append(now)
        return self._ending[: length + 1]

    @cached_property
    def _ending(self) -> list[np.ndarray]:
        state, letters, out, after = self.steps
        done = np.zeros(self.states, bool)
        done[state[(out == self.base + 1) & (state == after)]] = True
        over = (letters == self.base).all(0)
        while (added := state[over & done[after]]).size and not done[added].all():
            done[added] = True
        return [done]

    def walks(
        self, rng: Rng, lengths: np.ndarray, liked: np.ndarray, symbol: np.ndarray | None = None
    ) -> np.ndarray:
        """Letters ``(n, w)`` of one tape, uniform among those with which a row can still end.

        Among ``liked (n, base)`` wherever one of these can stand. ``symbol (n,)``: of each row.
        """
        n, widest = len(lengths), int(lengths.max(initial=0))
        ending = np.stack(self.ending(widest))
        after = self.next[:, : self.base]
        state = np.broadcast_to(self.started(symbol, None), n)
        letters = np.zeros((n, widest), np.uint8)
        for column in range(widest):
            left = np.maximum(lengths - column - 1, 0)
            goes = (after[state] >= 0) & ending[left[:, None], after[state]]
            liked_too = goes & liked
            chosen = np.where(liked_too.any(1)[:, None], liked_too, goes)
            letters[:, column] = np.where(chosen, rng.random(chosen.shape), -1).argmax(1)
            inside = column < lengths
            state = np.where(inside, after[state, letters[:, column]], state)
        return letters

    @property
    def padded(self) -> Transducer:
        """What answers problems: ``lenient``, or the transducer itself."""
        return self.lenient or self

    @cached_property
    def _tables(self) -> tuple[np.ndarray, np.ndarray, int]:
        """Next state and what is written, with one state more for what is not a source."""
        dead = self.states
        after, out = (x.reshape(dead, -1) for x in (self.next, self.written))
        out = np.where(after < 0, self.base, out)
        after = np.where(after < 0, dead, after)
        sink = np.full((1, after.shape[1]), dead)
        closing = np.full_like(sink, self.base)
        return np.concatenate([after, sink]).ravel(), np.concatenate([out, closing]).ravel(), dead


@dataclass(frozen=True)
class Rule:
    """What writes an output: ``first`` its first row, ``later`` each of the others, if any.

    ``shift``: by how many columns the row above is read later. ``of_row``: the operand whose digit
    ``r`` is the symbol of row ``r``; with ``past`` there is one row more, without a symbol.
    ``listed``: row ``r`` reads operand ``r`` as its tape 0, and there are as many rows as operands;
    else rows are as many as ``of_row`` has digits, or go on until one closes as the last.
    ``forward``: the operands that are read from their first letter on; others from their last.
    ``stride``: how many letters of the source a column reads; then its words are by turns those of
    as many operands, and the last column may lack some.
    """

    first: Transducer
    later: Transducer | None = None
    shift: int = 0
    of_row: int | None = None
    listed: bool = False
    forward: tuple[int, ...] = ()
    past: bool = False
    stride: int = 1

    @property
    def closers(self) -> tuple[int, ...]:
        """Symbols that close rows before others."""
        return self.first.closers

    @property
    def ticks(self) -> bool:
        """Are rows counted by symbols that are all alike?"""
        return self.of_row is not None and self.first.words and len(self.first.symbols) == 1

    @property
    def base(self) -> int:
        return self.first.base

    @property
    def in_rows(self) -> bool:
        return self.later is not None

    @property
    def counted(self) -> bool:
        """Does the source say how many rows there are?"""
        return self.listed or self.of_row is not None or not self.in_rows

    @property
    def extra(self) -> int | None:
        """How many symbols every row has more than there are columns; None if that varies."""
        extras = {self.first.extra} | ({self.later.extra} if self.later is not None else set())
        if len(extras) > 1:
            return None
        extra = extras.pop()
        alone = self.later is not None and {*self.later.tapes} == {ABOVE}
        return None if alone and (extra != 0 or self.shift) else extra

    @property
    def shorter(self) -> int | None:
        """How many symbols a later row has less than the one above; None if that varies."""
        if self.later is None or {*self.later.tapes} != {ABOVE} or self.shift:
            return None
        extra = self.later.extra
        return None if extra is None or extra > 0 else -extra

    def of(self, row: int) -> Transducer:
        """What writes that row."""
        return self.first if row == 0 or self.later is None else self.later

    def lacks(self, tape: int, short: int) -> int:
        """Does an operand's last column have no letter where ``short`` letters are missing?"""
        return int(short > 0 and self.first.tapes.index(tape) >= self.stride - short)

    @property
    def padded(self) -> Rule:
        """The same for sources whose numbers may begin with zeros."""
        later = None if self.later is None else self.later.padded
        return replace(self, first=self.first.padded, later=later)

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain data: what a certificate is about."""
        later = None if self.later is None else self.later.as_dict()
        fields: dict[str, Any] = {
            "first": self.first.as_dict(),
            "later": later,
            "shift": self.shift,
            "of_row": self.of_row,
            "listed": self.listed,
        }
        optional = {"forward": list(self.forward), "past": self.past}
        optional |= {"stride": self.stride} if self.stride > 1 else {}
        return fields | {name: value for name, value in optional.items() if value}

    def rows(self, operands: Sequence[Ragged]) -> list[Ragged]:
        """Each row of the outputs; the length is -1 where a problem has no such row.

        ``operands``: of a length of 0 where a problem has no such operand. ``NoSource`` where a
        problem is none.
        """
        count = np.ones(len(operands[0]), np.int64)
        if self.listed:
            count = np.sum([operand.lengths > 0 for operand in operands], axis=0)
        elif self.of_row is not None:
            count = np.array(operands[self.of_row].lengths) + self.past
        rows: list[Ragged] = []
        for row in itertools.count():
            live = np.flatnonzero(row < count)
            if row and not len(live):
                break
            if row == MOST_ROWS:
                raise NoSource(live)
            by = self.of(row)
            tapes = []
            for tape in by.tapes:
                skip = self.shift if tape == ABOVE else 0
                source = rows[-1] if tape == ABOVE else operands[row if self.listed else tape]
                lengths = np.maximum(source.lengths[live] - skip, 0)
                tapes.append(Ragged(source.values[live, skip:], lengths))
            symbol = opener = None
            if self.of_row is not None:
                symbol = np.full(len(live), self.base)
                numbers = operands[self.of_row]
                has = numbers.lengths[live] > row
                symbol[has] = numbers.values[live[has], min(row, numbers.width - 1)]
            if self.closers and row:
                opener = rows[-1].values[live, rows[-1].lengths[live]]
            written, code = by.run(tapes, symbol, opener)
            if (code == NO).any():
                raise NoSource(live[code == NO])
            if not self.counted:
                count[live[(code == self.base + 2) | np.isin(code, self.closers)]] += 1
            count[live[code == self.base + 3]] = row + 1
            padded = np.zeros((len(count), written.width), np.uint8)
            padded[live] = written.values
            rows.append(Ragged(padded, np.full(len(count), -1)))
            rows[-1].lengths[live] = written.lengths
        return rows


def reduced(machine: Transducer) -> Transducer:
    """The same without states that cannot be reached or cannot end, and with equal ones united."""
    state, _, out, after = machine.steps
    reached = np.zeros(machine.states, bool)
    reached[list(machine.start)] = True
    ending = np.zeros(machine.states, bool)
    ending[state[(out == machine.base + 1) & (state == after)]] = True  # behind the close, for ever
    for marked, to, of in ((reached, after, state), (ending, state, after)):
        while (new := to[marked[of] & ~marked[to]]).size:
            marked[new] = True
    kept = reached & ending
    following = np.where((machine.next >= 0) & kept[machine.next], machine.next, NO)
    following[~kept] = NO
    written = np.where(following >= 0, machine.written, NO)
    number = np.zeros(machine.states, np.int64)
    while True:  # refine: states are equal if they write the same and lead to equal ones
        named = np.where(following >= 0, number[following], NO)
        table = np.concatenate([x.reshape(machine.states, -1) for x in (named, written)], 1)
        numbers: dict[tuple[int, bytes], int] = {}
        again = [
            numbers.setdefault((old, row.tobytes()), len(numbers))
            for old, row in zip(number.tolist(), table, strict=True)
        ]
        if len(numbers) == number.max() + 1:
            break
        number = np.array(again)
    _, first = np.unique(number, return_index=True)
    rows = [i for i in first.tolist() if kept[i]]
    place = np.full(machine.states, NO)
    for new, old in enumerate(rows):
        place[number == number[old]] = new
    after = np.where(following[rows] >= 0, place[following[rows]], NO)
    kept_starts = [k for k, s in enumerate(machine.start) if kept[s]]
    begun = tuple(int(place[machine.start[k]]) for k in kept_starts)
    symbols, openers = (
        tuple(x[k] for k in kept_starts if x) for x in (machine.symbols, machine.openers)
    )
    about: dict[str, Any] = {"start": begun, "symbols": symbols, "openers": openers}
    return replace(machine, next=after, written=written[rows], **about)
