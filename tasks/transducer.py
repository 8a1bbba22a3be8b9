"""Transducers: machines that read letters of tapes, one column after another, and write a row."""

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
LONG = 4096
"""Columns from which on few problems are run in blocks."""
NO = -1
"""In ``Transducer.next``: no source has such a column."""


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
        zeros, of = [0] * len(self.start), np.full((self.base + 1,) * 2, self.states)
        of[list(self.symbols or zeros), list(self.openers or zeros)] = self.start
        at_symbol = symbol if self.symbols and symbol is not None else np.array(0)
        return of[at_symbol, opener if self.openers and opener is not None else np.array(0)]

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
        extras, now = set[int](), np.unique(after[inside])
        ending, out = (x.reshape(self.states, -1)[:, -1] for x in (self.next, self.written))
        for extra in range(-self.lag, self.states + 1):
            now = now[ending[now] >= 0]
            closed = np.isin(out[now], self.closing)
            extras |= {extra} if closed.any() else set()
            now = np.unique(ending[now[~closed & (out[now] < self.base)]])
            if not len(now):
                return extras.pop() if len(extras) == 1 else None
        return None

    # Many problems at once

    def run(
        self,
        tapes: Sequence[Ragged],
        symbol: np.ndarray | None = None,
        opener: np.ndarray | None = None,
    ) -> tuple[Ragged, np.ndarray]:
        """Return the rows that are written for ``n`` problems, and what closes each.

        ``NO`` stands for no source. ``tapes``: letters in the order of columns. ``symbol (n,)``: of
        each row, where rows have one. ``opener (n,)``: what closed each row above. A symbol that
        closes a row is behind the others.
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
        after, written = self._tables
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
    def _tables(self) -> tuple[np.ndarray, np.ndarray]:
        """Next state and what is written, with one state more for what is not a source."""
        after, out, sink = self.next.ravel(), self.written.ravel(), self.next[0].size
        following = np.append(np.where(after < 0, self.states, after), [self.states] * sink)
        return following, np.append(np.where(after < 0, self.base, out), [self.base] * sink)


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
