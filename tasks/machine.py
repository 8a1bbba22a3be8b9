"""A transducer from a function of a state and letters, and whether its state can be seen.

>>> double = machine("ab", lambda state, word: (state, word), start=0)
>>> double.states
2
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np

from tasks.base import TaskError
from tasks.rules import NO, Transducer, reduced

Step = Callable[..., tuple[Hashable, str | None] | None]
"""From a state and a word of each tape, None behind its last one: the next state, and what is
written; None closes the row. None in place of both: no source has such a column."""
End = Callable[[Any], Sequence[str] | None]
"""The words that follow the last column in a state; None: no source ends there."""
MOST_ENTRIES = 5_000_000
"""States times columns of letters."""
MOST_SYMBOLS = 250
"""Letters are bytes; a few are the model's own."""


def machine(
    symbols: Sequence[str],
    step: Step,
    start: Hashable,
    end: End = lambda state: (),
    tapes: Sequence[int] = (0,),
) -> Transducer:
    """The transducer that ``step`` describes, with the states that are reached from ``start``.

    ``TaskError`` for a word that is written and no symbol, and for states without end.
    """
    if not 1 <= len(symbols) <= MOST_SYMBOLS:
        raise TaskError(f"{len(symbols)} symbols: a rule has 1 to {MOST_SYMBOLS}")
    base, k = len(symbols), len(tapes)
    number = {word: i for i, word in enumerate(symbols)}
    columns = [*product((*symbols, None), repeat=k)]
    found: dict[Any, int] = {("on", (False,) * k, start): 0}
    after: list[np.ndarray] = []
    written: list[np.ndarray] = []
    for state in (queue := [*found]):
        rows = np.full((2, len(columns)), NO)
        for at, column in enumerate(columns):
            made = _made(state, column, step, end)
            if made is None:
                continue
            following, word = made
            if word not in number and word not in (CLOSED, NOTHING):
                raise TaskError(f"{word!r} is written and is no symbol: {_some(symbols)}")
            if following not in found:
                found[following] = len(found)
                queue.append(following)
            code = base if word == CLOSED else base + 1 if word == NOTHING else number[word]
            rows[:, at] = found[following], code
        after.append(rows[0])
        written.append(rows[1])
        if len(found) * len(columns) > MOST_ENTRIES:
            raise TaskError(
                f"more than {MOST_ENTRIES // len(columns):,} states: a rule has a bounded number "
                "of them; does its state count, or hold all that was read?"
            )
    shape = (len(after), *(base + 1,) * k)
    rows, out = np.reshape(after, shape), np.reshape(written, shape)
    return reduced(Transducer(base, tuple(tapes), (0,), rows, out, words=True))


CLOSED, NOTHING = ("closed",), ("nothing",)
"""In place of a word: the row closes, and nothing stands behind it."""


def _made(state: Any, column: tuple[str | None, ...], step: Step, end: End) -> Any:
    """The state after a column, and the word that is written there; None where there is none."""
    what, over, of = state
    ended = tuple(letter is None for letter in column)
    if any(before and not now for before, now in zip(over, ended, strict=True)):
        return None  # nothing follows the end of a tape
    if what == "on" and not all(ended):
        made = step(of, *column)
        if made is None:
            return None
        following, word = made
        return (("done", ended, 0), CLOSED) if word is None else (("on", ended, following), word)
    if not all(ended):
        return None
    left = end(of) if what == "on" else of if what == "end" else None
    if what == "done":
        return ("done", ended, 0), NOTHING
    if left is None:
        return None
    rest = tuple(left)
    return (("end", ended, rest[1:]), rest[0]) if rest else (("done", ended, 0), CLOSED)


def _some(symbols: Sequence[str]) -> str:
    shown = ", ".join(symbols[:10])
    return f"they are {shown}{', ...' * (len(symbols) > 10)}"


def columns_seen(one: Transducer) -> int | None:
    """How many columns before it tell a column's state, by letters and writing; None: no number.

    A row that sees fewer cannot be right everywhere.
    """
    if one.states == 1:
        return 0
    state, letters, out, after = one.steps
    looks = np.ravel_multi_index((out, *letters), (one.base + 2, *(one.base + 1,) * len(letters)))
    order = np.argsort(looks, kind="stable")
    state, after = state[order], after[order]
    bounds = [0, *(np.flatnonzero(np.diff(looks[order])) + 1).tolist(), len(state)]
    pairs: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for low, high in pairwise(bounds):  # steps that look the same, from different states
        for i, j in combinations(range(low, high), 2):
            if state[i] != state[j] and after[i] != after[j]:
                before, behind = (sorted((int(x[i]), int(x[j]))) for x in (state, after))
                pairs.setdefault((before[0], before[1]), set()).add((behind[0], behind[1]))
    seen = 1
    while pairs:  # without those from which no pair follows
        kept = {pair: to & pairs.keys() for pair, to in pairs.items() if to & pairs.keys()}
        if len(kept) == len(pairs):
            return None
        pairs, seen = kept, seen + 1
    return seen
