"""A transducer from a function of a state and letters, and whether its state can be seen.

>>> double = machine("ab", lambda state, word: (state, word), start=0)
>>> double.states
2
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from abc_calib.errors import shortened
from tasks.base import TaskError
from tasks.calls import (
    digit_fault,
    end_fault,
    guarded,
    last_fault,
    move_fault,
    state_fault,
    word_fault,
    wrong,
)
from tasks.rules import END, NO, ROW, Transducer, reduced

Step = Callable[..., tuple[Hashable, str | None] | None]
"""From a state and a word of each tape, None behind its last one: the next state, and what is
written; None closes the row. None in place of both: no source has such a column."""
End = Callable[[Any], Sequence[str] | None]
"""The words that follow the last column in a state, behind them ``ROW`` if another row follows, or
``END`` if none does, whatever the source asks for; None: no source ends there."""
MOST_STATES, MOST_ENTRIES = 10_000, 5_000_000
"""Of a transducer: states, and states times columns of letters."""
MOST_AHEAD = 8
"""Columns that a word is written late."""
MOST_SYMBOLS = 250
"""Letters are bytes; a few are the model's own."""


def machine(
    symbols: Sequence[str],
    step: Step,
    start: Hashable,
    end: End = lambda state: (),
    tapes: Sequence[int] = (0,),
    lag: int = 0,
    starts: Sequence[tuple[Hashable, str | None, str | None]] = (),
    closers: Sequence[str] = (),
    turns: Sequence[int] = (),
) -> Transducer:
    """The transducer that ``step`` describes, with the states that are reached from ``start``.

    ``lag``: how many columns before what ``step`` writes is for; in the first ones it is left out.
    ``starts``: in place of ``start``, each with the row's symbol (None for a row without one) and
    what closed the row above. ``closers``: the symbols that close a row before another one.
    ``turns``: axes of tapes whose letters are by turns those of one text.
    ``TaskError`` for a word that is written and no symbol, and for states without end.
    """
    _check(symbols, lag, len(tapes))
    base, k = len(symbols), len(tapes)
    number = {word: i for i, word in enumerate(symbols)}
    codes: dict[Any, int] = {None: base, NOTHING: base + 1, ROW: base + 2, END: base + 3, **number}
    columns = [*product((*symbols, None), repeat=k)]
    step = guarded(step, "step", move_fault)
    row = _Row(step, guarded(end, "end", end_fault(number)), number, lag, {*closers}, turns)
    before = _hashable([x for x, _, _ in starts] or [start])
    states = {("on", (False,) * k, 0, state): i for i, state in enumerate(dict.fromkeys(before))}
    tables = list[np.ndarray]()
    for state in (queue := [*states]):
        table = np.full((2, len(columns)), NO)
        for at, column in enumerate(columns):
            if (move := row.move(state, column)) is None:
                continue
            following, word = move
            if following not in states:
                states[following] = len(states)
                queue.append(following)
            table[:, at] = states[following], codes[word]
        tables.append(table)
        _check_count(queue[-1][3], len(queue), len(columns))
    after, written = np.swapaxes(tables, 0, 1).reshape(2, -1, *(base + 1,) * k)
    what: dict[str, Any] = {"closers": tuple(number[word] for word in closers)}
    for name, words in ("symbols", [x for _, x, _ in starts]), ("openers", [x for *_, x in starts]):
        what[name] = tuple(number.get(x or "", base) for x in words) if any(words) else ()
    first = tuple(states["on", (False,) * k, 0, state] for state in before)
    whole = Transducer(base, tuple(tapes), first, after, written, words=True, lag=lag, **what)
    if not (transducer := reduced(whole)).states:
        raise TaskError(NO_END)
    return transducer


NO_END = "no source ends: step or end gives None wherever one could"


def _hashable(starts: Sequence[Any]) -> Sequence[Any]:
    for state in starts:
        if why := state_fault(state):
            raise TaskError(f"the start is {shortened(repr(state))}: {why}")
    return starts


def _check_count(last: Any, count: int, columns: int) -> None:
    if count > (most := min(MOST_STATES, MOST_ENTRIES // columns)):
        each = f" with {columns:,} different columns each" if most < MOST_STATES else ""
        raise TaskError(
            f"more than {most:,} states{each}, such as {shortened(repr(last))}: a rule has a "
            "bounded number of them; does its state count, or hold all that was read?"
        )


def _check_columns(tapes: int, each: str, letters: int) -> None:
    if letters**tapes > MOST_ENTRIES:
        raise TaskError(
            f"a column reads {tapes} {each}: more than {MOST_ENTRIES:,} different columns; read "
            "fewer at once, or give fewer symbols"
        )


NOTHING = ("nothing",)
"""In place of a word: nothing stands behind the row, or in its first columns."""
Column = tuple[str | None, ...]


@dataclass(frozen=True)
class _Row:
    """How a row is written, by what ``machine`` is given.

    A state is a tuple: ``on`` while letters are read, ``end`` while the words of ``end`` follow,
    ``done`` behind the row's close, or ``over`` behind an output's, where anything may be read;
    which tapes have ended; up to the lag how many columns there were; and the state of ``step``, or
    the words that still follow.
    """

    step: Step
    end: End
    symbols: Collection[str]
    lag: int
    closers: set[str]
    turns: Sequence[int]

    def move(self, state: Any, column: Column) -> Any:
        """The state after a column, and the word that is written there; None where there is none.

        A word that is None closes the row.
        """
        kind, over, count, of = state
        ended = tuple(letter is None for letter in column)
        if not self.closers.isdisjoint(column) or not self._in_turn(over, ended):
            return None
        if kind == "over":
            return state, NOTHING
        if any(before and not now for before, now in zip(over, ended, strict=True)):
            return None  # nothing follows the end of a tape
        late, on = count < self.lag, ("on", ended, min(count + 1, max(self.lag, 1)))
        if not all(ended):
            if kind != "on" or (move := self.step(of, *column)) is None:
                return None
            following, word = move
            if late:
                return (*on, following), NOTHING
            if why := word_fault(word, self.symbols):
                raise wrong(self.step.__name__, (of, *column), move, f": {why}")
            if word == END:  # whatever else is read
                return ("over", ended, 0, 0), END
            return self._written((*on, following), word, ended)
        if kind == "done":
            return ("done", ended, 0, 0), NOTHING
        if kind == "on" and not count and column:
            return None  # nothing was read
        if kind == "on" and late:
            return (*on, of), NOTHING
        if kind == "on" and (of := self.end(of)) is None:
            return None
        return self._written(("end", ended, 0, tuple(of[1:])), of[0] if of else None, ended)

    def _in_turn(self, over: Sequence[bool], ended: Sequence[bool]) -> bool:
        """Can letters of tapes stand in a column that are by turns those of one text?"""
        ends = [ended[axis] for axis in self.turns]
        return ends == sorted(ends) and (all(ends) or not any(over[axis] for axis in self.turns))

    def _written(self, following: Any, word: str | None, ended: tuple[bool, ...]) -> Any:
        """A state with what is written before it; after a word that closes the row, no other."""
        if self.closers and word == ROW:
            raise TaskError(f"a row closes with {ROW}: it has closers, so give one of them")
        closes = word is None or word in (ROW, END) or word in self.closers
        return ("done", ended, 0, 0) if closes else following, word


def column_machine(
    base: int,
    step: Callable[..., tuple[Any, int]],
    end: Callable[[Any], Sequence[int] | None],
    starts: Sequence[Any],
    tapes: Sequence[int],
    symbols: Sequence[int] = (),
    above: bool = False,
) -> Transducer:
    """The transducer that ``step`` describes on the digits of numbers of one width.

    ``step(state, *digits)``: the next state and the digit that is written. ``end(state)``: the
    digits behind the last column, at most one; None where no source ends. ``starts``: the states
    before the first column, one for each of ``symbols`` if there are any. Not all numbers may begin
    with a zero, unless they have one column alone; with ``above`` all but the first one.
    ``TaskError`` for what is no digit, and for states without end.
    """
    _check_columns(len(tapes), f"digits of base {base}", base + 1)
    step, end = guarded(step, "step", digit_fault(base)), guarded(end, "end", last_fault(base))
    letters = [*product(range(base), repeat=len(tapes))]
    moves = dict[Any, list[tuple[Any, int]]]()
    reached = dict.fromkeys(_hashable(starts))
    for state in (queue := [*reached]):
        moves[state] = [step(state, *column) for column in letters]
        new = dict.fromkeys(after for after, _ in moves[state] if after not in reached)
        reached |= new
        queue += new
        _check_count(queue[-1], len(queue), len(letters))
    try:
        number = {state: i for i, state in enumerate(sorted(moves))}
    except TypeError:  # without an order, as they were reached
        number = {state: i for i, state in enumerate(moves)}
    if (last := [end(state) for state in number]) == [None] * len(number):
        raise TaskError(NO_END)
    shape = (-1, *(base,) * len(tapes))
    following, written = (
        np.reshape([[value(move) for move in moves[state]] for state in number], shape)
        for value in (lambda move: number[move[0]], lambda move: move[1])
    )
    leading = np.indices(shape[1:])[above:].any(0)

    def build(zeros: bool) -> Transducer:
        to, out = _columns(following, written, last, np.logical_or(leading, zeros))
        begun = tuple(number[state] for state in starts)
        return reduced(Transducer(base, tuple(tapes), begun, to, out, tuple(symbols)))

    return replace(build(False), lenient=build(True))


def _columns(
    following: np.ndarray, written: np.ndarray, last: Sequence[Any], begins: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The tables of a transducer from those of columns of digits, ``(q, base, ..., base)``.

    ``last``: what is written behind the last column in each state. ``begins``: columns with which
    numbers may begin.
    """
    (q, base, *_), k = following.shape, following.ndim - 1
    first, ok, zero = (mark * q + np.arange(q) for mark in range(3))
    carry, done = 3 * q, 3 * q + 1
    inside: Any = (slice(base),) * k
    over = (base,) * k
    after = np.full((3 * q + 2, *(base + 1,) * k), NO)
    out = np.full_like(after, base + 1)
    for before in (first, ok, zero):
        mark = np.where(begins | (before is first), q, 2 * q)
        after[(before, *inside)] = mark + following
        out[(before, *inside)] = written
    for state, digits in zip(ok, last, strict=True):
        if digits is not None:
            after[(state, *over)] = carry if digits else done
            out[(state, *over)] = digits[0] if digits else base
    after[(carry, *over)], out[(carry, *over)] = done, base
    after[(done, *over)] = done
    return after, out


def _check(symbols: Sequence[str], lag: int, tapes: int) -> None:
    if not 1 <= len(symbols) <= MOST_SYMBOLS:
        raise TaskError(f"{len(symbols)} symbols: a rule has 1 to {MOST_SYMBOLS}")
    for word in symbols:
        if not isinstance(word, str) or word.split() != [word] or word in (ROW, END):
            raise TaskError(
                f"the symbol {word!r}: give words without spaces, and none of $ & @ {ROW}"
            )
    if not isinstance(lag, int) or not 0 <= lag <= MOST_AHEAD:
        raise TaskError(f"ahead = {lag!r}: give 0 to {MOST_AHEAD} columns")
    _check_columns(tapes, f"words, each of {len(symbols)} symbols", len(symbols) + 1)


def columns_seen(transducer: Transducer) -> int | None:
    """In how many columns before it letters and writing tell what a row writes; None: in no number.

    Together with a row's first tokens and its symbol, which lines see from anywhere. Two
    states are a pair if some column has them write differently, or lead to a pair and write the
    same. Where pairs lead to each other for ever, no number of columns tells them apart.
    """
    q, together = transducer.states, _together(transducer)
    tables = zip(*(x.reshape(q, -1).T for x in (transducer.next, transducer.written)), strict=True)
    columns = [
        (states, after[states], out[states])
        for after, out in tables
        if len(states := np.flatnonzero(after >= 0)) > 1
    ]

    def before(pairs: np.ndarray) -> np.ndarray:
        """The states that a column leads to one of these pairs, both writing the same in it."""
        lead = np.zeros((q, q), bool)
        for states, after, out in columns:
            lead[np.ix_(states, states)] |= (out[:, None] == out) & pairs[np.ix_(after, after)]
        return lead & together

    pairs = np.zeros((q, q), bool)
    for states, _, out in columns:
        pairs[np.ix_(states, states)] |= out[:, None] != out
    pairs &= together
    while (wider := pairs | before(pairs)).sum() > pairs.sum():
        pairs = wider
    count = 0
    while pairs.any():  # without those from which no pair follows
        count += 1
        if ((following := pairs & before(pairs)) == pairs).all():
            return None
        pairs = following
    return count


def _together(transducer: Transducer) -> np.ndarray:
    """Which states ``(q, q)`` rows may be in that were alike for long, and then differed."""
    q = transducer.states
    state, _, _, to = transducer.steps
    now, late = np.array(transducer.start), np.zeros(q, bool)
    for column in range(2 * q):
        now = np.unique(to[np.isin(state, now)])
        late[now] |= column >= q
    rows = np.eye(q, dtype=bool)[late]
    while True:
        wider = rows.copy()
        np.logical_or.at(wider.T, to, rows.T[state])
        if (wider == rows).all():
            return (rows.T.astype(int) @ rows.astype(int)) > 0
        rows = wider
