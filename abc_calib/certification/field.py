"""What one decoding step of a calibrated model can see: its exact receptive field.

With every head on lines and no positions (or cyclic ones), the state of a row after each layer
is a function of a few *atoms*: digits of the operands, tokens written so far, and phases of
cyclic positions. ``Field`` follows the lines down through the layers and names them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from abc_calib.certification.places import (
    Atom,
    Case,
    Constant,
    Digit,
    Key,
    Layout,
    Phase,
    Place,
    Token,
    Written,
)
from abc_calib.errors import AbcError
from abc_calib.geometry.lines import CORNER, Line, LineBias


class Unbounded(AbcError):
    """The model's field has no bound, or none that is known; the message says why."""


@dataclass(frozen=True)
class Field:
    """The receptive field of a model with these lines on sources of this layout."""

    bias: LineBias
    layers: int
    layout: Layout
    period: int = 1

    # Where a line leads

    def own_key(self, line: Line, row: Place) -> Place:
        """The row that a self-attention line reads from ``row``."""
        if line.segment == CORNER:
            raise Unbounded("its lines count from corners of a matrix of fixed size")
        if line.direction == "vert":
            limit = row.at if row.kind == "low" else line.offset
            return Place("low", max(0, min(line.offset, limit)))
        if line.direction != "diag":
            raise Unbounded("an anti-diagonal in self-attention has no end while writing")
        index = row.at + min(line.offset, 0)
        return Place("low", max(index, 0)) if row.kind == "low" else Place("near", index)

    def source_key(self, line: Line, row: Place, case: Case) -> Token:
        """The token of the source that a cross-attention line reads from ``row``."""
        if line.segment == CORNER:
            raise Unbounded("its lines count from corners of a matrix of fixed size")
        if line.segment == 0:
            return self._delimiter(0)
        segment = self.layout.segments[line.segment - 1]
        tokens = len(segment.operands)
        stride = line.step
        if line.direction == "vert":
            return self._from_end(line.segment, Place("low", line.offset - 1), case)
        if segment.columns is None and stride != tokens:
            raise Unbounded(
                f"a line of {stride} tokens a row drifts through {tokens} tokens a column"
            )
        if line.direction == "anti":
            if row.kind == "near" and segment.columns is not None:
                return self._delimiter(line.segment - 1)  # past its digits long ago
            return self._from_end(
                line.segment, Place(row.kind, stride * row.at + line.offset), case
            )
        return self._from_start(line, stride * row.at + line.offset, row, case)

    def _from_end(self, number: int, token: Place, case: Case) -> Token:
        """The token ``token.at`` tokens before the end of a segment; delimiters beyond it."""
        segment = self.layout.segments[number - 1]
        count = len(segment.operands)
        if token.kind == "low" and token.at < 0:
            return self._delimiter(number)
        column, which = divmod(token.at, count)
        if segment.columns is not None:
            limit: int | None = segment.columns
        elif token.kind == "near":
            limit = case.left
        else:
            limit = case.width
        if limit is not None and column >= limit:
            return self._delimiter(number - 1)
        operand = segment.operands[which]
        atom = (
            Constant(operand)
            if operand == self.layout.constant
            else Digit(operand, Place(token.kind, column))
        )
        wide, fixed = self.layout.behind(number)
        along = count if token.kind == "near" else 0
        return Token(None, atom, wide, along, fixed + 1 + token.at)

    def _from_start(self, line: Line, index: int, row: Place, case: Case) -> Token:
        """The token ``index`` tokens after the beginning of a segment."""
        segment = self.layout.segments[line.segment - 1]
        if self.period > 1:
            raise Unbounded("a diagonal in cross-attention runs against cyclic positions")
        if len(segment.operands) > 1 or segment.columns is not None:
            raise Unbounded("a diagonal in cross-attention runs against aligned digits")
        operand = segment.operands[0]
        if row.kind == "low":
            if index < 0:
                return self._delimiter(line.segment - 1)
            if case.width is None:
                top = Place("top", index)
                known = top if case.left is None else Place("near", case.left - 1 - index)
                return Token(None, Digit(operand, known), 0, 0, 0)
            return self._from_end(line.segment, Place("low", case.width - 1 - index), case)
        if case.left is not None:  # the row's distance to the top makes it a column from below
            return self._from_end(line.segment, Place("low", case.left - 1 - index), case)
        return Token(None, Digit(operand, Place("free", index)), 0, 0, 0)

    def _delimiter(self, number: int) -> Token:
        wide, fixed = self.layout.behind(number)
        return Token(self.layout.symbols[number], None, wide, 0, fixed)

    # What a row reads

    def input(self, row: Place, case: Case) -> Token:
        """The decoder's input token in ``row``."""
        along, shift = (1, row.at) if row.kind == "near" else (0, row.at)
        if row == Place("low", 0):
            return Token(self.layout.symbols[0], None, 0, 0, 0)
        return Token(None, Written(Place(row.kind, row.at - 1)), 0, along, shift)

    def keys(self, layer: int, row: Place, case: Case) -> tuple[list[list[Key]], list[list[Key]]]:
        """The keys of each head in self-attention and in cross-attention; lines that meet, once."""
        own, crossed = self.bias.heads("self", layer), self.bias.heads("cross", layer)
        if own is None or crossed is None:
            raise Unbounded("its attention is not restricted to lines: abc calibrate it")
        return (
            [_met([Key(self.own_key(x, row), None, x.value) for x in head]) for head in own],
            [
                _met([Key(None, self.source_key(x, row, case), x.value) for x in head])
                for head in crossed
            ],
        )

    def atoms(self, layer: int, row: Place, case: Case) -> frozenset[Atom]:
        """Everything that the state of ``row`` after ``layer`` layers depends on."""
        known: dict[tuple[int, Place], frozenset[Atom]] = {}

        def below(layer: int, row: Place) -> frozenset[Atom]:
            if (layer, row) not in known:
                if layer == 0:
                    found = self._seen(self.input(row, case), case)
                else:
                    found = below(layer - 1, row)
                    for key in (
                        k for site in self.keys(layer - 1, row, case) for h in site for k in h
                    ):
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

    # How far it reaches

    @cached_property
    def reach(self) -> Reach:
        """How many rows and columns matter at either end; raises ``Unbounded``."""
        self._check_restricted()
        case = Case(None, None)
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
            self.keys(layer, Place("low", 0), Case(0, None))

    def _runs_out(self) -> int:
        """Rows after which every line has left the operands of one digit."""
        ends = [0]
        for layer in range(self.layers):
            for head in self.bias.heads("cross", layer) or ():
                for line in head:
                    if (
                        line.segment > 0
                        and self.layout.segments[line.segment - 1].columns is not None
                    ):
                        ends.append(2 - line.offset)
        return max(ends)

    def _rows(self, case: Case) -> set[Place]:
        rows = {case.place}
        for layer in reversed(range(self.layers)):
            for row in list(rows):
                own, _ = self.keys(layer, row, case)
                rows |= {key.row for head in own for key in head if key.row is not None}
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
    """Lines that meet on one key count once, with the highest bias."""
    best: dict[tuple[Place | None, Token | None], Key] = {}
    for key in keys:
        kept = best.get(key[:2])
        if kept is None or key.bias > kept.bias:
            best[key[:2]] = key
    return list(best.values())
