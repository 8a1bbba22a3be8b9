"""Running states of a finite automaton: from a table, or by the name of a well-known one.

The word problems of groups are those of Barrington (1989) and of the papers on state tracking
(Liu et al. 2023, arXiv 2210.10749; Merrill et al. 2024, arXiv 2404.08819); ``even_pairs``,
``cycle`` and ``arithmetic_mod`` those of Delétang et al. (2023, arXiv 2207.02098).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from itertools import permutations, product
from typing import Any, NamedTuple

from tasks.base import TaskError
from tasks.words import WordTask

COLUMNS = ("state", "symbol", "next", "output")
"""Of a table, which has one row for each state and symbol; the first row's state is the start."""
LARGEST = 60
"""``K`` of ``mod:K`` and of ``cycle:K``; of ``arithmetic_mod:K``, which writes pairs, 12."""

Moves = dict[tuple[str, str], tuple[str, str]]
"""The next state and what is written, by state and symbol."""


class Machine(NamedTuple):
    """``moves``; the ``start``; and what is written behind the last word in each state."""

    moves: Moves
    start: str
    ends: dict[str, tuple[str, ...]] | None = None


class Automaton(WordTask):
    """The running states of a finite automaton: ``213 321 -> 213 231`` (by default of S3)."""

    name = "automaton"
    options = ("table", "machine")
    train_length = 12

    def __init__(self, table: str | None = None, machine: str | None = None):
        if table is not None and machine is not None:
            raise TaskError("a table and a machine's name: give one of them")
        automaton = named(machine or "s3") if table is None else from_table(table)
        self.moves, self.start, self.ends = automaton
        read = dict.fromkeys(symbol for _, symbol in self.moves)
        wrote = dict.fromkeys(output for _, output in self.moves.values())
        at_end = dict.fromkeys(word for words in (self.ends or {}).values() for word in words)
        self.symbols = (*(read | wrote | at_end),)

    def step(self, state: Any, word: str) -> tuple[str, str] | None:
        return self.moves.get((state, word))

    def end(self, state: Any) -> tuple[str, ...] | None:
        return () if self.ends is None else self.ends.get(state)


def from_table(table: str) -> Machine:
    """The machine of the text of a CSV file; ``TaskError`` says which entry is wrong."""
    lines = table.removeprefix("\ufeff").splitlines()
    try:
        header, *rows = [[cell.strip() for cell in row] for row in csv.reader(lines) if any(row)]
    except (csv.Error, ValueError):
        header = []
    if tuple(header) != COLUMNS:
        given = f"this one with {','.join(header)[:60]!r}" if header else "this one has none"
        raise TaskError(
            f"a table begins with the line {','.join(COLUMNS)}; {given}: write it first"
        )
    moves: Moves = {}
    for number, row in enumerate(rows, 2):
        if len(row) != len(COLUMNS) or any(len(cell.split()) != 1 for cell in row):
            raise TaskError(f"line {number} of the table, {','.join(row)!r}: give 4 words")
        state, symbol, following, output = row
        if (state, symbol) in moves:
            raise TaskError(f"the table has two entries for state {state} and symbol {symbol}")
        moves[state, symbol] = following, output
    if not moves:
        raise TaskError("the table has no entries")
    states, symbols = (dict.fromkeys(words) for words in zip(*moves, strict=True))
    for following, _ in moves.values():
        if following not in states:
            raise TaskError(f"state {following} of the table has no entries of its own")
    for state, symbol in product(states, symbols):
        if (state, symbol) not in moves:
            raise TaskError(f"the table has no entry for state {state} and symbol {symbol}")
    return Machine(moves, next(iter(states)))


def named(text: str) -> Machine:
    """One of ``MACHINES``, as in ``s5`` or ``mod:7``; ``TaskError`` names them."""
    name, _, number = text.partition(":")
    needs = name in ("mod", "cycle", "arithmetic_mod")
    most = 12 if name == "arithmetic_mod" else LARGEST
    fits = re.fullmatch(r"[1-9]\d?", number) and 2 <= int(number) <= most
    if name not in MACHINES or (fits if not needs else not fits):
        names = ", ".join(f"{kind}:K" if kind in ("mod", "cycle") else kind for kind in MACHINES)
        names = names.replace("arithmetic_mod", "arithmetic_mod:K")
        limit = f", K from 2 to {most}" if needs else ""
        raise TaskError(f"unknown machine {text!r}: choose one of {names}{limit}")
    return MACHINES[name](int(number or 0))


def _group(elements: Iterator[tuple[int, ...]]) -> Machine:
    """A word and then another one are their product, whose name shows where each point goes."""
    by_name = {"".join(str(k + 1) for k in element): element for element in elements}
    name = {element: text for text, element in by_name.items()}
    moves: Moves = {}
    for (first, a), (second, b) in product(by_name.items(), repeat=2):
        composed = name[tuple(b[k] for k in a)]
        moves[first, second] = composed, composed
    return Machine(moves, next(iter(by_name)))


def _even(permutation: tuple[int, ...]) -> bool:
    return sum(a > b for k, a in enumerate(permutation) for b in permutation[k + 1 :]) % 2 == 0


def _mod(k: int) -> Machine:
    pairs = product(range(k), repeat=2)
    return Machine({(str(a), str(b)): (str((a + b) % k),) * 2 for a, b in pairs}, "0")


def _even_pairs(_: int) -> Machine:
    """Whether so far neighbours differed an even (0) or an odd number of times (1)."""
    moves: Moves = {("", symbol): (f"0{symbol}", "0") for symbol in "01"}
    for odd, before, symbol in product("01", repeat=3):
        now = str(int(odd) ^ (before != symbol))
        moves[odd + before, symbol] = now + symbol, now
    return Machine(moves, "")


def _cycle(k: int) -> Machine:
    """Steps back, none or ahead on a ring of ``k`` places."""
    moves = product(range(k), {"-": -1, "=": 0, "+": 1}.items())
    return Machine({(str(at), word): (str((at + by) % k),) * 2 for at, (word, by) in moves}, "0")


def _arithmetic(k: int) -> Machine:
    """``1 + 2 * 3``: a sum, and the term that is being multiplied; then the value modulo ``k``."""
    moves: Moves = {("", str(n)): (f"0.{n}", f"0.{n}") for n in range(k)}
    for total, term in product(range(k), repeat=2):
        state = f"{total}.{term}"
        for operator in "+-*":
            moves[state, operator] = state + operator, state
        for operator, n in product("+-*", range(k)):
            value = (total + term) % k
            after = {"+": (value, n), "-": (value, -n % k), "*": (total, term * n % k)}[operator]
            moves[state + operator, str(n)] = (f"{after[0]}.{after[1]}",) * 2
    ends: dict[str, tuple[str, ...]] = {}
    for a, b in product(range(k), repeat=2):
        ends[f"{a}.{b}"] = (str((a + b) % k),)
    return Machine(moves, "", ends)


MACHINES: dict[str, Callable[[int], Machine]] = {
    "s3": lambda _: _group(permutations(range(3))),
    "s5": lambda _: _group(permutations(range(5))),
    "a5": lambda _: _group(element for element in permutations(range(5)) if _even(element)),
    "parity": lambda _: _mod(2),
    "mod": _mod,
    "even_pairs": _even_pairs,
    "cycle": _cycle,
    "arithmetic_mod": _arithmetic,
}
