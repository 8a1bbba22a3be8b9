"""Machines as rows: a cellular automaton or a Turing machine, one configuration a row.

A configuration of a Turing machine is its tape, with the head as part of the cell that it is on:
``A0 1 0`` is a head in state A on the first of three cells. A row begins with a mark: ``.``, or
``<`` if it has one cell more on the left than the row above. Where the machine has halted, ``!``
stands before the cell of its head and ``~`` before all cells to the right, so that the row's end is
decided where it stands.
"""

from __future__ import annotations

import re
from typing import Any

from tasks.base import TaskError
from tasks.rules import END, ROW
from tasks.words import WordTask

ELEMENTARY = 110
"""The cellular automaton unless one is named: universal (Cook 2004)."""
UNIVERSAL = "4LA4LA3RA2LA0RA0RD_1LB0RB3LC4RB3LB2RB_5RA1RC4RD2RC---1RA_5LB0RD5LB4RD---2RD"
"""UTM(4,6), a universal Turing machine (Rogozhin 1996, section 8,
https://doi.org/10.1016/S0304-3975(96)00077-1): its symbols 0, 1, b, b>, <b, c are 0 to 5 here."""
NOTATION = re.compile(r"([0-9][LR][A-Z]|---)+(_([0-9][LR][A-Z]|---)+)*")
"""Turing machines as lists of busy beavers have them: the symbols of each state in order."""
MARKS = STAYS, GROWS = ".", "<"
HALTED, BEHIND = "!", "~"


class Tape(WordTask):
    """Steps of a machine, each a row: ``2 : 0 1 1 -> 1 0 1`` (by default of Rule 110)."""

    name = "tape"
    options = ("rule",)
    counted = True
    ahead = 1
    train_length = 8

    def __init__(self, rule: str | None = None):
        self.by = read(rule or str(ELEMENTARY))
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

    def read(self, output: str) -> str:
        """The last tape."""
        return " ".join(word for word in output.rpartition(ROW)[2].split() if word not in MARKS)

    def remark(self, answer: str) -> str:
        halts = isinstance(self.by, Cells) or {*answer.split()} & {*self.by.halted}
        return "" if halts else "the machine has not halted: this is its tape so far"

    @property
    def usage(self) -> str:
        return f"a number of steps and a tape, as in '3 : {self.by.example}'"


class Cells:
    """An elementary cellular automaton by its number; zeros stand beyond both ends."""

    symbols = ("0", "1")
    start: Any = ("0", "0")
    example = "0 1 1 0"

    def __init__(self, number: int):
        self.new = f"{number:08b}"[::-1]

    def step(self, state: Any, cell: str, below: bool = False) -> Any:
        left, here = state
        return (here, cell), self.new[int(left + here + cell, 2)]

    def end(self, state: Any, below: bool = False) -> Any:
        return (self.new[int(state[0] + state[1] + "0", 2)],)


class Turing:
    """A Turing machine: ``moves[state, symbol]`` are what is written, the move, the next state."""

    def __init__(self, moves: dict[tuple[str, str], tuple[str, str, str]]):
        self.moves = moves
        states, plain = (tuple(dict.fromkeys(x)) for x in zip(*moves, strict=True))
        self.states, self.plain = states, plain
        self.heads = {state + symbol: (state, symbol) for state, symbol in moves}
        self.halted, behind = ([mark + symbol for symbol in plain] for mark in (HALTED, BEHIND))
        self.marked = (*self.halted, *behind)
        self.symbols = (STAYS, GROWS, *plain, *self.heads, *self.marked)
        self.start: Any = "mark"

    @property
    def example(self) -> str:
        return f"{self.plain[-1]} {self.states[0]}{self.plain[0]} {self.plain[-1]}"

    def _move(self, cell: str | None) -> tuple[str, str, str] | None:
        """What a head does; None for a cell without one."""
        return self.moves.get(self.heads.get(cell, ("", ""))) if cell else None

    def _reached(self, state: str, symbol: str) -> str:
        """The cell that a head moves on, in its next state."""
        return (state if state in self.states else HALTED) + symbol

    def _new(self, left: str | None, here: str, right: str | None, behind: bool) -> str:
        """A cell in the next row; ``behind`` a head that has halted there."""
        move, before, after = self._move(here), self._move(left), self._move(right)
        symbol = move[0] if move else here
        if move is None and before and before[1] == "R":
            return self._reached(before[2], symbol)
        if move is None and after and after[1] == "L":
            return self._reached(after[2], symbol)
        return BEHIND + symbol if behind else symbol

    def _came(self, left: str | None, here: str, right: str | None) -> bool:
        """Can the machine have moved to ``here``, by what stands where it was?"""
        came = {
            (move[1], move[0]) for move in self.moves.values() if move[2] == self.heads[here][0]
        }
        return ("R", left) in came or ("L", right) in came

    def step(self, state: Any, cell: str, below: bool = False) -> Any:
        """The state: the mode, the two or three cells before, has the head been, has it halted?

        ``below``: in a row that the machine has written.
        """
        head = self._move(cell) is not None
        if cell in self.marked or (cell in (STAYS, GROWS)) != (state == "mark"):
            return None
        if state == "mark":
            return cell, ""
        if state == GROWS and not (head and self.heads[cell][1] == self.plain[0]):
            return None  # a tape grows for the head, by an empty cell
        if state in (STAYS, GROWS):
            grows = head and self._move(cell)[1] == "L"  # type: ignore[index]
            return (grows, None, None, cell, head, False), GROWS if grows else STAYS
        grows, older, left, here, been, halted = state
        if (head and been) or (below and self._move(here) and not self._came(left, here, cell)):
            return None
        new = self._next(grows, older, left, here, cell, halted)
        halted = halted or new in self.halted
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
        halted = halted or words[0] in self.halted
        if grows:
            words.append(self._new(left, here, None, halted))
        elif (move := self._move(here)) and move[1] == "R":
            words.append(self._reached(move[2], self.plain[0]))
        halted = halted or words[-1] in self.halted
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
