"""Machines as rows: a cellular automaton or a Turing machine, one configuration a row.

A configuration of a Turing machine is its tape, with the head as part of the cell that it is on:
``A0 1 0`` is a head in state A on the first of three cells. A row begins with a mark: ``.``, or
``<`` if it has one cell more on the left than the row above. Where the machine has halted, ``!``
stands before the cell of its head and ``~`` before all cells to the right, so that the row's end is
decided where it stands.
"""

from __future__ import annotations

import re
from itertools import product
from typing import Any

from tasks.base import TaskError
from tasks.rules import END
from tasks.words import WordTask

ELEMENTARY = 110
"""The cellular automaton unless one is named: universal (Cook 2004)."""
NOTATION = re.compile(r"([0-9][LR][A-Z]|---)+(_([0-9][LR][A-Z]|---)+)*")
"""Turing machines as lists of busy beavers have them: the symbols of each state in order."""
STAYS, GROWS = ".", "<"
HALTED, BEHIND = "!", "~"


class Tape(WordTask):
    """Rows of a machine: ``2 : 0 1 1 -> 1 1 1 | 1 0 1`` (by default of Rule 110)."""

    name = "tape"
    options = ("rule",)
    counted = True
    ahead = 1
    train_length = 8

    def __init__(self, rule: str | None = None):
        self.by: Cells | Turing = read(rule or str(ELEMENTARY))
        self.symbols, self.start = self.by.symbols, self.by.start

    def step(self, state: Any, word: str) -> Any:
        return None if word == GROWS else self.by.step(state, word)

    def end(self, state: Any) -> Any:
        return self.by.end(state)

    def step_below(self, state: Any, above: str, *word: str) -> Any:
        return self.by.step(state, above, below=True)

    def end_below(self, state: Any) -> Any:
        return self.by.end(state, below=True)

    def words(self, source: str) -> list[str]:
        words = super().words(source)
        return words if isinstance(self.by, Cells) or words[0] == STAYS else [STAYS, *words]

    def write(self, problems: Any, row: int) -> str:
        return super().write(problems, row).replace(f"{STAYS} ", "")

    @property
    def usage(self) -> str:
        cells = "0 1 1 0" if isinstance(self.by, Cells) else "1 A0 1"
        return f"a number of steps and a tape, as in '3 : {cells}'"


class Cells:
    """An elementary cellular automaton by Wolfram's number, between zeros."""

    symbols: tuple[str, ...] = ("0", "1")
    start: Any = ("0", "0")

    def __init__(self, number: int):
        self.number = number

    def _new(self, left: str, here: str, right: str) -> str:
        return str(self.number >> int(left + here + right, 2) & 1)

    def step(self, state: Any, cell: str, below: bool = False) -> Any:
        left, here = state
        return (here, cell), self._new(left, here, cell)

    def end(self, state: Any, below: bool = False) -> Any:
        left, here = state
        return (self._new(left, here, "0"),)


class Turing:
    """A Turing machine: ``moves[state, symbol]`` are what is written, the move, the next state."""

    def __init__(self, moves: dict[tuple[str, str], tuple[str, str, str]]):
        self.moves = moves
        states, plain = (tuple(dict.fromkeys(x)) for x in zip(*moves, strict=True))
        self.states, self.plain = states, plain
        heads = [state + symbol for state, symbol in product(states, plain)]
        marked = [mark + symbol for mark, symbol in product((HALTED, BEHIND), plain)]
        self.symbols = (STAYS, GROWS, *plain, *heads, *marked)
        self.start: Any = "mark"

    def _move(self, cell: str | None) -> tuple[str, str, str] | None:
        """What a head does; None for a cell without one."""
        return self.moves.get((cell[0], cell[1:])) if cell else None

    def _reached(self, state: str, symbol: str) -> str:
        """The cell that a head moves on, in its next state."""
        return (state if state in self.states else HALTED) + symbol

    def _new(self, left: str | None, here: str, right: str | None, behind: bool) -> str:
        """A cell in the next row; ``behind`` a head that has halted there."""
        own, before, after = self._move(here), self._move(left), self._move(right)
        symbol = own[0] if own else here
        if own is None and before and before[1] == "R":
            return self._reached(before[2], symbol)
        if own is None and after and after[1] == "L":
            return self._reached(after[2], symbol)
        return BEHIND + symbol if behind else symbol

    def _came(self, left: str | None, here: str, right: str | None) -> bool:
        """Can the machine have moved to ``here``, by what stands where it was?"""
        came = {(move[1], move[0]) for move in self.moves.values() if move[2] == here[0]}
        return ("R", left) in came or ("L", right) in came

    def step(self, state: Any, cell: str, below: bool = False) -> Any:
        """The state: the mode, the two or three cells before, has the head been, has it halted?

        ``below``: in a row that the machine has written.
        """
        head = self._move(cell) is not None
        if cell[0] in (HALTED, BEHIND) or (cell in (STAYS, GROWS)) != (state == "mark"):
            return None
        if state == "mark":
            return cell, ""
        if state == GROWS and not head:
            return None  # a tape grows for the head
        if state in (STAYS, GROWS):
            grows = head and self._move(cell)[1] == "L"  # type: ignore[index]
            return (grows, None, None, cell, head, False), GROWS if grows else STAYS
        grows, older, left, here, been, halted = state
        if (head and been) or (below and self._move(here) and not self._came(left, here, cell)):
            return None
        new = self._next(grows, older, left, here, cell, halted)
        halted = halted or new[0] == HALTED
        return (grows, left if grows else None, here, cell, been or head, halted), new

    def _next(
        self, grows: bool, older: str | None, left: str | None, here: str, cell: Any, halted: bool
    ) -> str:
        """What is written where ``here`` stands; in a row that grows, one cell earlier stands."""
        if not grows:
            return self._new(left, here, cell, halted)
        if left is None:
            _, _, state = self._move(here) or ("", "", "")
            return self._reached(state, self.plain[0])
        return self._new(older, left, here, halted)

    def end(self, state: Any, below: bool = False) -> Any:
        if not isinstance(state, tuple) or not state[4]:
            return None  # a tape without a cell, or without a head
        grows, older, left, here, _, halted = state
        if below and self._move(here) and not self._came(left, here, None):
            return None
        words = [self._next(grows, older, left, here, None, halted)]
        halted = halted or words[0][0] == HALTED
        if grows:
            words.append(self._new(left, here, None, halted))
        elif (move := self._move(here)) and move[1] == "R":
            words.append(self._reached(move[2], self.plain[0]))
        halted = halted or words[-1][0] == HALTED
        return (*words, END) if halted else tuple(words)


def read(rule: str) -> Cells | Turing:
    """A number, or a table such as ``1RB1LB_1LA1RZ``; ``TaskError`` for anything else."""
    if re.fullmatch(r"\d{1,3}", rule) and int(rule) < 256:
        return Cells(int(rule))
    rows = [re.findall("...", state) for state in rule.split("_")]
    if not NOTATION.fullmatch(rule) or len({len(row) for row in rows}) != 1 or len(rows) > 20:
        raise TaskError(
            f"rule {rule!r} is not possible: give the number of an elementary cellular automaton, "
            "0 to 255, or a Turing machine such as 1RB1LB_1LA1RZ, each state with every symbol"
        )
    moves = {}
    for number, row in enumerate(rows):
        for symbol, move in enumerate(row):
            write, way, state = tuple(f"{min(1, len(row) - 1)}RZ" if move == "---" else move)
            moves[chr(65 + number), str(symbol)] = write, way, state
    used = {write for write, _, _ in moves.values()}
    if not used <= {str(symbol) for symbol in range(len(rows[0]))}:
        raise TaskError(f"rule {rule!r} writes a symbol for which it has no column")
    return Turing(moves)
