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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tasks.ragged import Ragged
from tasks.transducer import ABOVE, END, NO, ROW, Transducer, reduced

__all__ = ["ABOVE", "END", "NO", "ROW", "NoSource", "Rule", "Transducer", "reduced"]

MOST_ROWS = 100_000
"""Of an output that says itself where it ends."""


class NoSource(ValueError):
    """Problems that the rule does not take, or does not end: ``args[0]`` are their numbers."""


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
