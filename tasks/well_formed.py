"""Are a transducer's tables well-formed? Then proofs and answers read the same out of them.

Every row closes once; nothing is written behind its close and in its first ``lag`` columns, and
something in every other one; behind the last letter it comes to a state that leads to itself.
What answers problems (``lenient``) answers as the transducer itself does, and takes nothing else
but numbers that begin with a zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tasks.rules import NO, Transducer

AT_ONCE = 2_000_000
"""Configurations times letters that are looked at together."""


class NotClosed(ValueError):
    """The rule does not map rows into rows, or has no run for some of them; the message says so."""


def check_tables(machine: Transducer) -> None:
    """Raise ``NotClosed`` unless its tables, and those of its ``lenient``, are well-formed."""
    _check_entries(machine)
    _check_writing(machine)
    if machine.lenient is not None:
        _check_entries(machine.lenient)
        _check_lenient(machine, machine.lenient)
        _check_writing(machine.lenient)


def _check_entries(machine: Transducer) -> None:
    """Every entry of a transducer names a state or a symbol that there is."""
    states, base = machine.states, machine.base
    shape = (states, *(base + 1,) * len(machine.tapes))
    for name, table in (("next", machine.next), ("written", machine.written)):
        if table.shape != shape:
            raise NotClosed(f"{name} has the shape {table.shape}: give {shape}")
    entries: list[tuple[str, Any, int, int]] = [
        ("lag", machine.lag, 0, 9),
        ("start", machine.start, 0, states),
        ("next", machine.next, NO, states),
        ("written", machine.written, NO, base + 4),
        ("symbols", machine.symbols, 0, base + 1),
        ("openers", machine.openers, 0, base),
        ("closers", machine.closers, 0, base),
    ]
    for name, values, low, high in entries:
        numbers = np.asarray(values, np.int64)
        if ((numbers < low) | (numbers >= high)).any():
            wrong = numbers[(numbers < low) | (numbers >= high)].flat[0]
            raise NotClosed(f"{name} has {wrong}: give whole numbers from {low} to {high - 1}")
    if {len(x) for x in (machine.symbols, machine.openers) if x} - {len(machine.start)}:
        raise NotClosed("not every symbol and opener has a start of its own")
    if (machine.steps[2] < 0).any():
        raise NotClosed("a step writes nothing that is known: give base + 1 for nothing")


def _check_writing(machine: Transducer) -> None:
    """Nothing is written in the first columns and behind the close alone, and every row ends.

    By all configurations of a state, the tapes that are over, and a phase: the column, at most
    ``lag``, or ``lag + 1`` behind the close. Where no row can end nothing matters.
    """
    table, out = (x.reshape(machine.states, -1) for x in (machine.next, machine.written))
    over, alive = _over(machine), _alive(machine)
    closes, shape = (
        np.isin(out, machine.closing),
        (machine.states, 2 ** len(machine.tapes), machine.lag + 2),
    )

    def step(now: np.ndarray) -> np.ndarray:
        state, ended, phase = (x[:, None] for x in np.unravel_index(now, shape))
        after = table[state[:, 0]]
        possible = (after >= 0) & (over & ended == ended)
        behind = phase > machine.lag
        silent = behind | (phase < machine.lag)
        wrong = (out[state[:, 0]] == machine.base + 1) != silent
        if (wrong & possible & alive[after]).any():
            raise NotClosed(
                f"a row writes nothing (base + 1) in its first {machine.lag} columns (lag) and "
                "behind its close, and nowhere else"
            )
        phase = np.where(
            behind | closes[state[:, 0]], machine.lag + 1, np.minimum(phase + 1, machine.lag)
        )
        reached = np.broadcast_arrays(np.where(possible, after, 0), over[None], phase)
        return np.ravel_multi_index(reached, shape)[possible]

    begun = np.ravel_multi_index((np.array(machine.start, int), 0, 0), shape)
    reached = np.unique(np.unravel_index(explored(begun, step, table.shape[1]), shape)[0])
    behind = np.append(np.where(table[:, -1] < 0, machine.states, table[:, -1]), machine.states)
    for _ in range(machine.states.bit_length()):  # far behind the last letter
        behind = behind[behind]
    if not np.append(is_done(machine), True)[behind[reached]].all():
        raise NotClosed(
            "behind its last letter a row has to come to a state that leads to itself and writes "
            "nothing (base + 1), or to none"
        )


def _check_lenient(machine: Transducer, other: Transducer) -> None:
    """It goes on wherever the transducer does that can still end, and writes the same.

    A source that it takes alone has a tape, of two letters or more, whose last one is 0. By all
    configurations of their states, the tapes that are over, those whose last letter is such a 0,
    and whether any was read.
    """
    for name in ("base", "tapes", "lag", "closers", "symbols", "openers"):
        if getattr(machine, name) != getattr(other, name):
            raise NotClosed(f"lenient has another {name} than the transducer that it answers for")
    if other.lenient is not None or len(machine.start) != len(other.start):
        raise NotClosed("lenient has other starts, or a lenient of its own")
    table, other_table = (x.next.reshape(x.states, -1) for x in (machine, other))
    table = np.concatenate(
        [np.where(_alive(machine)[table], table, NO), np.full_like(table[:1], NO)]
    )
    written, answered = (x.written.reshape(x.states, -1) for x in (machine, other))
    over, k = _over(machine), len(machine.tapes)
    zeros = 2 ** np.arange(k) @ (machine.columns == 0)
    shape = (machine.states + 1, other.states, 2**k, 2**k, 2)

    def step(now: np.ndarray) -> np.ndarray:
        state, of, ended, zero, read = (x[:, None] for x in np.unravel_index(now, shape))
        after, following = table[state[:, 0]], other_table[of[:, 0]]
        fits = over & ended == ended
        wrote = written[np.minimum(state[:, 0], machine.states - 1)]
        same = (following >= 0) & (wrote == answered[of[:, 0]])
        if (fits & (after >= 0) & ~same).any():
            raise NotClosed("lenient answers otherwise than the transducer that it answers for")
        possible = fits & (following >= 0)
        last = zeros * read | zero & over
        reached = (np.where(after < 0, machine.states, after), following, over[None], last)
        arrays = np.broadcast_arrays(*reached, np.ones_like(over)[None])
        return np.ravel_multi_index([x[possible] for x in arrays], shape)

    begun = np.ravel_multi_index(
        (np.array(machine.start, int), np.array(other.start, int), 0, 0, 0), shape
    )
    state, of, ended, zero, _ = np.unravel_index(explored(begun, step, len(over)), shape)
    alone = (state == machine.states) & is_done(other)[of] & (ended == 2**k - 1)
    if (alone & (zero == 0)).any():
        raise NotClosed(
            "lenient takes a source that the transducer does not take, and that has no number "
            "that begins with a zero"
        )


def is_done(machine: Transducer) -> np.ndarray:
    """From which states ``(q,)`` does nothing follow but ``end``, with nothing written?"""
    after, written = (x.reshape(machine.states, -1)[:, -1] for x in (machine.next, machine.written))
    return (after == np.arange(machine.states)) & (written == machine.base + 1)


def _alive(machine: Transducer) -> np.ndarray:
    """From which states ``(q,)`` a row can end; False behind them, for ``NO``."""
    state, _, _, after = machine.steps
    alive = np.append(is_done(machine), False)
    while (added := state[alive[after] & ~alive[state]]).size:
        alive[added] = True
    return alive


def _over(machine: Transducer) -> np.ndarray:
    """Which tapes are over in each column of letters ``(m,)``, as bits."""
    return 2 ** np.arange(len(machine.tapes)) @ (machine.columns == machine.base)


def explored(
    start: Iterable[int], step: Callable[[np.ndarray], np.ndarray], letters: int
) -> np.ndarray:
    """All configurations that are reached from ``start``, in order."""
    reached = ahead = np.unique(np.asarray(start, np.int64))
    while len(ahead):
        parts = np.array_split(ahead, 1 + len(ahead) * letters // AT_ONCE)
        following = np.unique(np.concatenate([np.unique(step(part)) for part in parts]))
        ahead = np.setdiff1d(following, reached, assume_unique=True)
        reached = np.union1d(reached, ahead)
    return reached
