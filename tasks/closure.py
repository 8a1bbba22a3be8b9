"""Does a rule map rows into rows? Computed for every size, by products of automata.

Only for outputs of several rows: a sum of two numbers, written in one row, needs none of this.

By hand: the sum ``19+3`` in rows writes 19 and then 22. The first row copies its number, and the
second one reads the row above, 19, next to its own number, 3. So that a certificate may say "if
the rows above are right, this one is", for any number of rows, two things are needed of all rows
that the second one takes above it: 19, which the first row writes, and 22, which it writes itself
and a third row would read, have to be among them (*closure*); and with 19 above, there has to be a
row for each number that may come next, not for 3 alone (*totality*).

**Lemma.** Let L be all rows above that ``later`` accepts, each together with the operands that are
the same in every row. If every row that ``first`` or ``later`` writes is in L, and of each word of
L, each number that a row may have of its own and each symbol of a row ``later`` has a run to the
end, then every output has exactly the rows that its source asks for, and each of them lies in L:
by induction over rows.

Words are read as if their last letter, ``end``, went on for ever.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tasks.rules import ABOVE, ROW, Rule, Transducer, reduced

MOST = 10**9
"""Configurations and letters of a product; long multiplication in base 36 has 10^8."""


MOST_SUBSETS = 100_000
"""Of states that later rows may be in behind the same word above; base 10 products have 1,543."""

NO_NEXT = (
    "a row above that its later rows take would be followed by one from which they cannot go on; "
    "let them take only what can stand there (of words, None for what cannot)"
)
"""Of all rows above that are taken, also those that no source leads to."""


class NotClosed(ValueError):
    """The rule does not map rows into rows, or has no run for some of them; the message says so."""


@dataclass(frozen=True)
class Accepted:
    """The words of L as a deterministic automaton: 0 is its start, ``next (d, letters)``.

    ``done (d,)``: is the word accepted if nothing but ``end`` follows?
    """

    next: np.ndarray
    done: np.ndarray


def check_closed(rule: Rule) -> None:
    """Raise ``NotClosed`` unless every row of every output has exactly the rows above it needs."""
    later, rows = rule.later, [row for row in (rule.first, rule.later) if row is not None]
    outputs = np.concatenate([row.steps[2] for row in rows])
    _check_fields(rule, rows, outputs)
    if later is None:
        return
    if any(_narrow(rule, row) for row in rows):
        raise NotClosed(f"a row that another follows has fewer than {rule.shift} symbols")
    symbols = {*rule.first.symbols, *later.symbols} - {rule.base}
    for opener in [x for x in rule.closers if (outputs == x).any()] or (None,):
        below = later
        if opener is not None:
            of_opener = np.equal(later.openers, opener)
            below = _starting(
                later, of_opener, "a row may close with a symbol that no row may stand below"
            )
        if lacking := symbols - {*below.symbols}:
            raise NotClosed(
                f"no row with the symbol number {min(lacking)} stands below one that closes with "
                f"{'a delimiter' if opener is None else f'symbol number {opener}'}; let begin give "
                "a state from which it can end"
            )
        if rule.past and rule.base not in below.symbols:
            raise NotClosed("a row may close with a symbol that the last row cannot stand below")
        above = below  # a row that another one may stand below: not the last
        if rule.past:
            above = _starting(below, np.not_equal(below.symbols, below.base), NO_NEXT)
        accepted = _accepted(rule, above)
        for row in rows:
            _check_closure(rule, row, accepted, opener)
        _check_totality(rule, below, accepted)
    if rule.closers and rule.of_row is not None:
        for row in rows:
            _check_ends(row)


def _check_fields(rule: Rule, rows: list[Transducer], outputs: np.ndarray) -> None:
    """What a rule says of its rows and of sources fits together."""
    closes = (outputs == rule.base + 2).any()  # with a delimiter
    if rule.of_row is not None and not all(row.symbols for row in rows):
        raise NotClosed("rows of a number (of_row) have its digits as their symbols")
    if rule.counted and closes:
        raise NotClosed(f"a row closes with {ROW}, although sources say how many there are")
    if rule.closers and rule.counted and not (rule.in_rows and rule.past):
        raise NotClosed("its last row closes as the others do, with one of its closers")
    if rule.closers and rule.in_rows and closes:
        raise NotClosed(f"a row closes with {ROW}, although rows have closers of their own")


def _narrow(rule: Rule, machine: Transducer) -> bool:
    """May it write a row with fewer symbols than are skipped of it, which another row follows?"""
    goes_on = [*((machine.base,) if rule.counted else ()), machine.base + 2, *machine.closers]
    state, _, out, after = machine.steps
    now = np.array(machine.start)
    for _ in range(rule.shift + machine.lag if rule.shift else 0):
        here = np.isin(state, now)
        if np.isin(out[here], goes_on).any():
            return True
        now = np.unique(after[here])
    return False


def _starting(later: Transducer, kept: np.ndarray, otherwise: str) -> Transducer:
    """The same with those first states alone, ``NotClosed`` where there are none."""
    if not kept.any():
        raise NotClosed(otherwise)
    start, symbols, openers = (
        tuple(np.array(x)[kept].tolist()) if x else ()
        for x in (later.start, later.symbols, later.openers)
    )
    return replace(later, start=start, symbols=symbols, openers=openers)


def _check_ends(machine: Transducer) -> None:
    """Rows without a symbol of their own, the last ones, close without one, and others with one."""
    state, _, out, after = machine.steps
    start, has_none = np.array(machine.start), np.equal(machine.symbols, machine.base)
    for last in (False, True):
        now = np.zeros(machine.states, bool)
        now[start[has_none == last]] = True
        while (added := after[now[state] & ~now[after]]).size:
            now[added] = True
        wrong = np.isin(out, machine.closers) if last else out == machine.base
        if (now[state] & wrong).any():
            raise NotClosed(
                "rows with a word of their own have to close with one of its closers, and the "
                "last row without one"
            )


def _kept(rule: Rule, machine: Transducer) -> list[int]:
    """The axes of the tapes that later rows read, too, and that are the same in every row."""
    assert rule.later is not None
    same = [tape for tape in rule.later.tapes if tape != ABOVE and not rule.listed]
    return [machine.tapes.index(tape) for tape in same]


def _words(rule: Rule, later: Transducer) -> np.ndarray:
    """The letter of a word of L in each column of a later row."""
    axes = [*_kept(rule, later), later.tapes.index(ABOVE)]
    return np.ravel_multi_index(tuple(later.columns[axes]), (later.base + 1,) * len(axes))


def _accepted(rule: Rule, later: Transducer) -> Accepted:
    """L by subsets of the states of ``later``, all that tells them apart but what they write."""
    silent = np.where(later.written == later.base + 1, later.base + 1, 0)
    plain = reduced(replace(later, written=silent, symbols=(), openers=()))
    word, table = _words(rule, plain), plain.next.reshape(plain.states, -1)
    columns = [word == letter for letter in range(word.max() + 1)]
    numbers, following = {frozenset(plain.start): 0}, list[list[int]]()
    for subset in (queue := [*numbers]):
        reached, row = table[sorted(subset)], list[int]()
        for column in columns:
            states = np.unique(reached[:, column])
            successor = frozenset(states[states >= 0].tolist())
            if successor not in numbers:
                if len(numbers) == MOST_SUBSETS:
                    raise NotClosed(f"more than {MOST_SUBSETS:,} kinds of rows above differ")
                numbers[successor] = len(numbers)
                queue.append(successor)
            row.append(numbers[successor])
        following.append(row)
    behind = {*np.flatnonzero(_is_done(plain)).tolist()}
    done = np.array([not behind.isdisjoint(subset) for subset in queue])
    return Accepted(np.array(following), _for_ever(np.array(following)[:, -1], done))


def _for_ever(after: np.ndarray, done: np.ndarray) -> np.ndarray:
    """Which states reach one that is ``done`` if the same letter goes on: ``after (d,)``."""
    while (larger := done | done[after]).sum() > done.sum():
        done = larger
    return done


def _explore(start: np.ndarray, step: Callable[[np.ndarray], np.ndarray], size: int) -> np.ndarray:
    """All configurations that are reached from ``start``, numbers below ``size``."""
    reached = np.zeros(size, bool)
    reached[start] = True
    while len(start):
        successors = np.unique(step(start))
        start = successors[~reached[successors]]
        reached[start] = True
    return np.flatnonzero(reached)


def _check_closure(rule: Rule, machine: Transducer, accepted: Accepted, opener: int | None) -> None:
    """Every row that it writes before another, read by as many columns later as that does, is in L.

    With an ``opener`` every row that closes with it.
    """
    radix, axes = machine.base + 1, _kept(rule, machine)
    each, kept = radix ** len(axes), np.zeros(machine.next[0].size, np.int64)
    for axis in axes:
        kept = kept * radix + machine.columns[axis]
    late = rule.shift + machine.lag
    buffered = (each + 1) ** late  # the kept letters of the last columns; ``each``: none yet
    table, out = (x.reshape(machine.states, -1) for x in (machine.next, machine.written))
    d = len(accepted.next)
    ends = np.isin(out, machine.closing)
    goes_on = ~ends | (out == machine.base + 2) | ((out == machine.base) & rule.counted)
    if opener is not None:
        goes_on = ~ends | (out == opener)
    over = ends | (out > machine.base)
    _bound(machine.states * d * buffered * len(kept))

    def step(now: np.ndarray) -> np.ndarray:
        now, buffer = np.divmod(now, buffered)
        state, word = (x[:, None] for x in np.divmod(now, d))
        buffer = buffer[:, None]
        after = table[state[:, 0]]
        written = np.where(over[state[:, 0]], machine.base, out[state[:, 0]])
        oldest, newer = buffer // (buffered // (each + 1)) if late else kept[None], 0
        if late:
            newer = buffer % (buffered // (each + 1)) * (each + 1) + kept[None]
        read = accepted.next[word, np.where(oldest == each, 0, oldest) * radix + written]
        word = np.where(oldest == each, word, read)
        valid = (after >= 0) & goes_on[state[:, 0]]
        return ((after * d + word) * buffered + newer)[valid]

    begun = np.array(machine.start) * d * buffered + (buffered - 1)
    now, _ = np.divmod(_explore(begun, step, machine.states * d * buffered), buffered)
    state, word = np.divmod(now, d)
    ended = _is_done(machine)[state]
    # behind the close nothing is written, and every tape is over
    if not accepted.done[word[ended]].all():
        raise NotClosed(NO_NEXT)


def _check_totality(rule: Rule, later: Transducer, accepted: Accepted) -> None:
    """Of every word of L it has a run, whatever the row's symbol and own number are."""
    letters, radix, named = later.columns, later.base + 1, _words(rule, later)
    digits, numbers = np.zeros_like(named), rule.first if rule.listed else None
    if numbers is not None:
        digits = letters[later.tapes.index(numbers.tapes[0])]
    f = 1 if numbers is None else numbers.states + 1
    numbered = np.zeros((1, radix), int) if numbers is None else _with_dead(numbers.next)
    table = _with_dead(later.next.reshape(later.states, -1))
    d = len(accepted.next)
    _bound(len(table) * d * f * letters.shape[1])

    def step(now: np.ndarray) -> np.ndarray:
        now, number = np.divmod(now, f)
        state, word = np.divmod(now, d)
        after = (table[state] * d + accepted.next[word][:, named]) * f
        return after + numbered[number][:, digits]

    first = [0] if numbers is None else numbers.start
    begun = [(s * d) * f + n for s, n in itertools.product(later.start, first)]
    now, number = np.divmod(_explore(np.array(begun), step, len(table) * d * f), f)
    state, word = np.divmod(now, d)
    runs = _for_ever(table[:, -1], np.append(_is_done(later), False))
    valid = np.ones(f, bool)
    if numbers is not None:
        valid = _for_ever(numbered[:, radix - 1], np.append(_is_done(numbers), False))
    if (accepted.done[word] & valid[number] & ~runs[state]).any():
        raise NotClosed(NO_NEXT)


def _is_done(machine: Transducer) -> np.ndarray:
    """From which states ``(q,)`` does nothing follow but ``end``, with nothing written?"""
    after, written = (x.reshape(machine.states, -1)[:, -1] for x in (machine.next, machine.written))
    return (after == np.arange(machine.states)) & (written == machine.base + 1)


def _with_dead(table: np.ndarray) -> np.ndarray:
    """The same with one state more, for what has no run."""
    dead = len(table)
    return np.concatenate([np.where(table < 0, dead, table), np.full((1, table.shape[1]), dead)])


def _bound(size: int) -> None:
    if size > MOST:
        raise NotClosed(f"its automata are too large to compare: {size:,} states and letters")
