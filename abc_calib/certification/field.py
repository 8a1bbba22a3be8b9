"""What one decoding step of a calibrated model can see: its exact receptive field.

With every head on lines and no positions (or cyclic ones), the state of a row after each layer
is a function of a few *atoms*: digits of the operands, tokens written so far, and phases of
cyclic positions. ``Field`` follows the lines down through the layers and names them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from abc_calib.certification.places import (
    WIDE,
    Atom,
    Case,
    Constant,
    Digit,
    Key,
    Phase,
    Place,
    Token,
    Unbounded,
    Written,
    read_off,
)
from abc_calib.certification.windows import Enumeration
from abc_calib.data.vocabulary import EOS
from abc_calib.geometry import CORNER, Layout, Line, LineBias
from abc_calib.geometry.lines import formula

Steps = TypeVar("Steps", int, np.ndarray)


@dataclass(frozen=True)
class Field:
    """The receptive field of a model with these lines.

    ``layout``: of the source of operands of a width. ``ids``: of the delimiters. ``rule``: of the
    task.
    """

    bias: LineBias
    layers: int
    layout: Callable[[int], Layout]
    ids: Mapping[str, int]
    rule: Any
    period: int = 1

    @property
    def constant(self) -> int | None:
        """The operand of one digit, if there is one."""
        return self.rule.constant

    # Where a line leads

    def own_key(self, line: Line, row: Place, case: Case) -> Place:
        """The row that a self-attention line reads from ``row``."""
        self._check(line)
        if line.direction == "anti":
            raise Unbounded("an anti-diagonal in self-attention has no end while writing")
        number = case.number(row)
        key, _ = formula(line, "self").key((0, number), number)
        return case.place_of(key)

    def source_key(self, line: Line, row: Place, case: Case) -> Token:
        """The token of the source that a cross-attention line reads from ``row``."""
        self._check(line)
        _, width = case.numbers
        layout = self.layout(width)
        if line.direction == "diag" and line.segment:
            if self.period > 1:
                raise Unbounded("a diagonal in cross-attention runs against cyclic positions")
            if len(layout.parts[line.segment - 1].operands) > 1:
                raise Unbounded("a diagonal in cross-attention runs against aligned digits")
        position, _ = formula(line, "cross").key(layout.anchors, case.number(row))
        return self._token(layout, position, case)

    def _check(self, line: Line) -> None:
        if line.segment == CORNER:
            raise Unbounded("its lines count from corners of a matrix of fixed size")

    def _token(self, layout: Layout, position: int, case: Case) -> Token:
        """What stands at a position of the source, and how far from its end that is."""
        from_end = read_off(layout.keys - 1 - position)
        part, operand, column = layout.coordinate(position)
        if operand is None:
            return Token(self.ids[layout.delimiters[part]], None, *from_end)
        if operand == self.constant:
            return Token(None, Constant(operand), *from_end)
        return Token(None, Digit(operand, case.place_of(column)), *from_end)

    # What a row reads

    def input(self, row: Place, case: Case) -> Token:
        """The decoder's input token in ``row``."""
        along, shift = (1, row.at) if row.kind == "near" else (0, row.at)
        if row == Place("low", 0):
            return Token(self.ids[self.layout(1).delimiters[0]], None, 0, 0, 0)
        return Token(None, Written(Place(row.kind, row.at - 1)), 0, along, shift)

    def keys(self, layer: int, row: Place, case: Case) -> list[list[list[Key]]]:
        """The keys of each head of each attention, in their order; lines that meet, once.

        Those are self-attention and cross-attention, or one over a stream.
        """
        own, crossed = self.bias.heads("self", layer), self.bias.heads("cross", layer)
        if own is None or crossed is None:
            raise Unbounded("its attention is not restricted to lines: abc calibrate it")
        found = [
            [[self.written_key(x, layer, row, case) for x in head] for head in own],
            [[Key(None, self.source_key(x, row, case), x.value) for x in head] for head in crossed],
        ]
        if self.bias.stream:
            found = [[written + read for written, read in zip(*found, strict=True)]]
        return [[_met(head) for head in heads] for heads in found]

    def written_key(self, line: Line, layer: int, row: Place, case: Case) -> Key:
        """What a self-attention line reads from ``row`` after ``layer`` layers."""
        return Key(self.own_key(line, row, case), None, line.value)

    def atoms(self, layer: int, row: Place, case: Case) -> frozenset[Atom]:
        """Everything that the state of ``row`` after ``layer`` layers depends on."""
        known: dict[tuple[int, Place], frozenset[Atom]] = {}

        def below(layer: int, row: Place) -> frozenset[Atom]:
            if (layer, row) not in known:
                if layer == 0:
                    found = self._seen(self.input(row, case), case)
                else:
                    found = below(layer - 1, row)
                    heads = chain.from_iterable(self.keys(layer - 1, row, case))
                    for key in chain.from_iterable(heads):
                        if key.row is not None:
                            found |= below(layer - 1, key.row)
                        elif key.token is not None:
                            found |= self._seen(key.token, case)
                known[layer, row] = found
            return known[layer, row]

        return below(layer, row)

    def _seen(self, token: Token, case: Case) -> frozenset[Atom]:
        phases: set[Atom] = set()
        if self.period > 1:
            if token.row % self.period and case.row is None:
                phases.add(Phase("row"))
            if token.width % self.period and case.width is None:
                phases |= {Phase("width")} if case.left is None else {Phase("row")}
        return frozenset(phases | ({token.atom} if token.atom is not None else set()))

    def phase(self, token: Token, case: Case, at: Callable[[Phase], Steps]) -> Steps | int:
        """The token's position modulo the period; ``at``: of what the case leaves open."""
        row = at(Phase("row")) if case.row is None else case.row
        if case.width is not None:
            width: Steps | int = case.width
        else:
            width = at(Phase("width")) if case.left is None else row + case.left
        return (token.shift + token.row * row + token.width * width) % self.period

    # How far it reaches

    def enumeration(self, case: Case, atoms: frozenset[Atom]) -> Enumeration:
        """The windows of a case, which hold these atoms; ``TooMany`` if they cannot be numbered."""
        return Enumeration(self.rule, self.ids[EOS], case, atoms, self.period)

    @property
    def inner(self) -> Case:
        """A row that is far from everything."""
        return Case(None, None)

    @cached_property
    def reach(self) -> Reach:
        """How many rows and columns matter at either end; raises ``Unbounded``."""
        self._check_restricted()
        case = self.inner
        rows = self._rows(case)
        atoms = self.atoms(self.layers, case.place, case)
        columns = [a.column for a in atoms if isinstance(a, Digit | Written)]

        def indices(kind: str) -> list[int]:
            return [column.at for column in columns if column.kind == kind]

        near, free, top = [0, *indices("near")], indices("free"), indices("top")
        lowest = min([*near, -2 - max([-1, *top])])
        near_rows = [0, *(r.at for r in rows if r.kind == "near")]
        low_rows = [0, *(r.at for r in rows if r.kind == "low")]
        fixed = max([-1, *indices("low")]) + 1
        left = max(max(near) + 2 + max([-1, *top]), fixed, max([-1, *free]) + 2)
        fixed = max(fixed, left - min([left, *free]))
        return Reach(
            rows=1
            + max(
                1 - min(near_rows) + max(low_rows),
                fixed - lowest,
                -min([0, *free]),
                self._runs_out() - min(near_rows),
            ),
            columns=left + 1,
            near=(min(near), max(near)),
        )

    def _check_restricted(self) -> None:
        for site, layer, head in self.bias.transparent():
            raise Unbounded(
                f"head {head} of layer {layer} ({site}-attention) is transparent: it sees all"
            )
        for layer in range(self.layers):
            self.keys(layer, Place("low", 0), replace(self.inner, row=0))

    def _runs_out(self) -> int:
        """Rows after which every line has left the operands of one digit."""
        fixed = [part.columns != WIDE for part in self.layout(WIDE).parts]
        lines = (
            line
            for layer in range(self.layers)
            for head in self.bias.heads("cross", layer) or ()
            for line in head
        )
        ends = [2 - line.offset for line in lines if line.segment and fixed[line.segment - 1]]
        return max([0, *ends])

    def _rows(self, case: Case) -> set[Place]:
        rows = {case.place}
        for layer in reversed(range(self.layers)):
            for row in list(rows):
                every = chain.from_iterable(chain.from_iterable(self.keys(layer, row, case)))
                rows |= {key.row for key in every if key.row is not None}
        return rows

    def cases(self) -> list[Case]:
        """Every case of a row: inside, at either edge, and in each shorter number."""
        rows: list[int | None] = [None, *range(self.reach.rows)]
        left: list[int | None] = [None, *range(-1, self.reach.columns)]
        found = [Case(r, c) for r in rows for c in left]
        return [case for case in found if case.width is None or case.width >= 1]


@dataclass(frozen=True)
class Reach:
    """From how many ``rows`` and with how many ``columns`` left the ends do not matter.

    ``near``: first and last column that an inner row depends on, relative to its own.
    """

    rows: int
    columns: int
    near: tuple[int, int]


def _met(keys: list[Key]) -> list[Key]:
    """Lines that meet on one key count once, with the highest bias.

    ``Unbounded`` for lines of one head that meet in some rows and not in others.
    """
    best: dict[tuple[Place | None, Token | None], Key] = {}
    for key in keys:
        kept = best.get(key[:2])
        if kept is None or key.bias > kept.bias:
            best[key[:2]] = key
    digits = [key.token.atom for key in best.values() if key.token is not None]
    columns = [atom.column for atom in digits if isinstance(atom, Digit)]
    if len(columns) > 1 and any(column.kind == "free" for column in columns):
        raise Unbounded("lines of one head run against each other, and meet in some rows only")
    return list(best.values())
