"""Hard problems: the inputs on which arithmetic models fail while random ones pass.

A family is a way to make one long number; in tasks with several long operands the others are in
turn of the same family, random, zero, one, or much shorter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tasks.base import Problems
from tasks.ragged import Ragged, Rng, column, stack, without_zeros
from tasks.rules import NO, Rule, Transducer

Number = Callable[[Rng, int, int], np.ndarray]
"""Digits of one number, first digit first, from (generator, length, base)."""


def _random(rng: Rng, length: int, base: int) -> np.ndarray:
    digits = rng.integers(0, base, length)
    digits[0] = rng.integers(1, base)
    return digits


def _nines_but_one(rng: Rng, length: int, base: int) -> np.ndarray:
    digits = np.full(length, base - 1)
    if length > 1:
        digits[rng.integers(1, length)] = rng.integers(0, base - 1)
    return digits


def _palindrome(rng: Rng, length: int, base: int) -> np.ndarray:
    half = _random(rng, (length + 1) // 2, base)
    return np.concatenate([half, half[::-1][length % 2 :]])


NUMBERS: dict[str, Number] = {
    "all nines": lambda rng, length, base: np.full(length, base - 1),
    "nines but one": _nines_but_one,
    "a one and zeros": lambda rng, length, base: 1 * (np.arange(length) == 0),
    "ones at both ends": lambda rng, length, base: 1 * np.isin(np.arange(length), (0, length - 1)),
    "palindromes": _palindrome,
    "repeated digits": lambda rng, length, base: np.full(length, rng.integers(1, base)),
    "repeated patterns": lambda rng, length, base: np.resize(
        _random(rng, int(rng.integers(2, 5)), base), length
    ),
}


def _partner(rng: Rng, turn: int, number: Number, length: int, base: int) -> np.ndarray:
    """Another long operand for a problem: by turns alike, random, zero, one, short."""
    kind = turn % 5
    if kind == 0:
        return number(rng, length, base)
    if kind == 1:
        return _random(rng, length, base)
    if kind < 4:
        return np.array([kind - 2])
    return number(rng, int(np.ceil(length ** rng.random())), base)


def families(task: Any, rng: Rng, n: int, length: int) -> dict[str, Problems]:
    """``n`` hard problems of exactly ``length`` digits of each family, by its name."""
    by_name = {"carry chains": task.sample(rng, n, length, "carry", exact=True)}
    rule = task.rule()
    if rule is not None:
        by_name["chains of each length and place"] = chains(task, rule, rng, n, length)
    for name, number in NUMBERS.items():
        drawn = task.sample(rng, n, length, "balanced", exact=True).operands
        wide = [k for k, operand in enumerate(drawn) if operand.lengths.max() == length]
        operands = list(drawn)
        for k in wide:
            rows = [
                number(rng, length, task.base)
                if k == wide[i // 5 % len(wide)]
                else _partner(rng, i, number, length, task.base)
                for i in range(n)
            ]
            operands[k] = stack([without_zeros(row[None, ::-1].astype(np.uint8)) for row in rows])
        by_name[name] = task.problems(*operands)
    return by_name


def chains(task: Any, rule: Rule, rng: Rng, n: int, length: int) -> Problems:
    """Problems that carry from one column to another and nowhere else, where that is possible.

    Every pair of columns in turn if there are at most ``n`` of them, else random ones. Within a
    chain digits are preferred that pass a carry on but do not make one.
    """
    pairs = np.stack(np.triu_indices(min(length, 200) + 1, 1), 1)
    if length > 200 or len(pairs) > n:
        ends = np.sort(rng.integers(0, length + 1, (n, 2)), 1)
    else:
        ends = np.resize(pairs, (n, 2))
    by = rule.first
    choices, counts = _choices(by)
    begun = rng.integers(0, len(by.start), n)
    state = np.array(by.start)[begun]
    following = by.next.reshape(by.states, -1)
    index = np.zeros((length, n), int)
    for place in range(length):
        inside = ((place >= ends[:, 0]) & (place < ends[:, 1])).astype(int)
        last = int(place == length - 1)
        pick = rng.integers(0, 2**31, n) % counts[last, inside, state]
        index[place] = choices[last, inside, state, pick]
        state = following[state, index[place]]
    letters = by.columns
    operands = {
        tape: without_zeros(np.ascontiguousarray(letters[k][index].T).astype(np.uint8))
        for k, tape in enumerate(by.tapes)
    }
    if rule.of_row is not None:
        symbol = np.array(by.symbols, np.uint8)[begun]
        operands[rule.of_row] = column(symbol)
    return task.problems(*(operands[k] for k in sorted(operands)))


def _carries(by: Transducer) -> np.ndarray:
    """Which states carry: a digit more is written where the columns end.

    Where none does, those that write something else than the start does.
    """
    after, out = (x.reshape(by.states, -1) for x in (by.next, by.written))
    carries = (after[:, -1] >= 0) & (out[:, -1] < by.base)
    if carries.any():
        return carries
    inside = (by.columns < by.base).all(0)
    written = np.where(after < 0, -1, out)[:, inside]
    return (written != written[by.start[0]]).any(1) & (written >= 0).any(1)


def _choices(by: Transducer) -> tuple[np.ndarray, np.ndarray]:
    """Columns by (is it the first, should it carry, state), and how many of them there are."""
    following = by.next.reshape(by.states, -1)
    options, digits = following.shape[1], (by.columns < by.base).all(0)
    carries, may_end, starts = _carries(by), following[:, -1] >= 0, _starts(by)
    choices = np.zeros((2, 2, by.states, options), int)
    counts = np.ones((2, 2, by.states), int)
    for state in range(by.states):
        after = following[state]
        allowed = digits & (after >= 0)
        carrying = allowed & carries[after]
        passing = carrying & ~carries[following[starts[state]]]
        for last in range(2):
            possible = allowed & may_end[after] if last else allowed
            for inside, preferred in enumerate(([allowed & ~carrying], [passing, carrying])):
                fits = next((w & possible for w in preferred if (w & possible).any()), possible)
                numbers = np.flatnonzero(fits)
                choices[last, inside, state, : len(numbers)] = numbers
                counts[last, inside, state] = max(len(numbers), 1)
    return choices, counts


def _starts(by: Transducer) -> dict[int, int]:
    """From which start each state is reached, whose row's symbol it has."""
    starts: dict[int, int] = {}
    for start in by.start:
        for state in (queue := [start]):
            if state not in starts and state != NO:
                starts[state] = start
                queue += by.next[state].ravel().tolist()
    return starts


def mutated(task: Any, rng: Rng, parents: Problems, n: int) -> Problems:
    """``n`` changed copies: digits replaced, a run of one digit written, a part moved by one."""
    rows = rng.integers(0, len(parents), n)
    operands = []
    for operand in parents.operands:
        values, lengths = operand.values[rows].copy(), operand.lengths[rows]
        for i in range(n):
            part = values[i, : lengths[i]][::-1]
            start = int(rng.integers(0, len(part)))
            stop = min(len(part), start + int(rng.geometric(0.3)))
            kind = rng.integers(0, 4)
            if kind == 0:
                part[start] = rng.integers(0, task.base)
            elif kind == 1:
                part[start:stop] = rng.choice(
                    np.array([0, task.base - 1, rng.integers(0, task.base)])
                )
            elif kind == 2:
                part[start:stop] = np.roll(part[start:stop], 1)
            part[0] = part[0] if part[0] or len(part) == 1 else 1
        operands.append(Ragged(values, lengths))
    children = task.problems(*operands)
    return children if len(children) else parents.take(rows)  # none of them is a source
