"""The tokens of a source: which one a line names, and what stands there."""

from __future__ import annotations

from typing import Any, NamedTuple

from abc_calib.geometry import Layout, Line
from abc_calib.geometry.layout import placed
from abc_calib.geometry.lines import DELIMITERS, formula, stepped
from abc_calib.proof.forms import Undecided
from abc_calib.proof.setup import Size


class Atom(NamedTuple):
    """A token that may be any: of an operand (``kind`` "digit"), the symbol of the row ("symbol").

    Or one written in the row (``of`` 0) or ``of`` rows above it ("written"), or what opens it
    ("closer", of the row above that one). "other": a digit that may be any whatever the others are.
    ``column (Form)``: where; None of the row's symbol and of closers.
    """

    kind: str
    of: int
    column: Any

    @property
    def key(self) -> tuple[Any, ...]:
        return self.kind, self.of, *(() if self.column is None else self.column.name)


class Token(NamedTuple):
    """A token of a source: of which ``part``, and how many tokens of it are ``behind``.

    Parts are identified by the delimiter that closes them, which has -1 tokens behind it.
    """

    part: Any
    behind: Any


class Parts:
    """Sources with one part an operand (or with all of them in columns), whose widths are known."""

    def __init__(self, query: Size):
        setup = query.setup
        layout, rule = setup.layout, setup.rule
        widths: list[Any] = [query.wide] * len(layout.widths)
        if rule.stride > 1:
            widths[-1] = query.wide * rule.stride - query.short
        if rule.of_row is not None:
            widths[rule.of_row] = query.wide if layout.aligned else query.rows - rule.past
        self.query, self.rule = query, rule
        self.layout = Layout(tuple(widths), layout.delimiters, layout.aligned)
        self.anchors = self.layout.anchors

    def _named(self, position: Any) -> Token:
        part, behind = placed(self.layout.closes, position)
        if part == 0 and not self.query.setup.opened:
            part = 1  # what closes the first part is read in its place
        return Token(int(part), behind)

    def crossed(self, line: Line, column: Any, row: Any) -> Token:
        """The token that a cross-attention line names in a column of a row."""
        position, _ = formula(line, "cross").key(self.anchors, column, row)
        return self._named(position)

    def encoder_token(self, line: Line, token: Token) -> Token:
        """The token that a line of the encoder names for a token."""
        position = self.layout.closes[token.part] - 1 - token.behind
        key_position, _ = formula(line, "encoder").key(self.anchors, position)
        return self._named(key_position)

    def token(self, token: Token) -> tuple[int | Atom, int]:
        """What stands there, and the phase of its position."""
        setup, query, last = self.query.setup, self.query, self.layout.closes
        behind = token.behind + (last[-1] - last[token.part]) + query.nothing + 1
        phase = behind.value % setup.period
        if token.behind < 0:
            return setup.ids[self.layout.delimiters[token.part]], phase
        operands = self.layout.parts[token.part - 1].operands
        column, which = divmod(token.behind + query.nothing, len(operands))
        operand = operands[which]
        if operand in self.rule.forward:
            column = self.layout.widths[operand] - 1 - column
        if self.rule.stride > 1 and operand != self.rule.of_row:
            column, turn = divmod(column, self.rule.stride)
            operand += turn
        if operand == self.rule.of_row and self.rule.ticks:
            return self.rule.first.symbols[0], phase
        if operand != self.rule.of_row:
            return Atom("digit", operand, column), phase
        if self.layout.aligned or column == query.row:
            return Atom("symbol", operand, None), phase
        return Atom("other", operand, column), phase


class Listed:
    """Sources with any number of operands, of which row ``r`` reads number ``r``."""

    def __init__(self, query: Size):
        self.query = query

    def _drifts(self, line: Line, site: Any) -> Undecided:
        return Undecided(f"{line.label(site)} leaves the row's own operand")

    def crossed(self, line: Line, column: Any, row: Any) -> Token:
        """The token that a cross-attention line names in a column of a row."""
        query, form = self.query, formula(line, "cross")
        step, last = form.step * row, DELIMITERS + query.rows
        low, high = (stepped(x, step, last) - DELIMITERS for x in (form.low, form.high))
        if not low < high:
            return Token(high, -1)
        move = form.slope * column + form.shift + form.down * row
        ahead = form.origin == form.low
        if move <= 0 if ahead else move >= 0:
            return Token(low if ahead else high, -1)
        if high != query.row + 1:
            raise self._drifts(line, "cross")
        behind = query.wide - move if ahead else -1 - move
        if behind < -1:
            return Token(high, -1)
        return Token(low, -1) if behind >= query.wide else Token(high, behind)

    def encoder_token(self, line: Line, token: Token) -> Token:
        """The token that a line of the encoder names for a token."""
        if line.direction == "vert":
            return Token(min(line.segment, self.query.rows), -1)
        if line.direction == "anti":
            raise self._drifts(line, "encoder")
        behind = token.behind - line.offset
        in_own_row = token.part == self.query.row + 1
        if not line.offset or (in_own_row and -1 <= behind < self.query.wide):
            return Token(token.part, behind)
        if in_own_row and behind == self.query.wide:
            return Token(token.part - 1, -1)
        raise self._drifts(line, "encoder")

    def token(self, token: Token) -> tuple[int | Atom, int]:
        """What stands there; positions have no phase."""
        setup, names = self.query.setup, self.query.setup.layout.delimiters
        if not token.behind < 0:
            return Atom("digit", 0, token.behind + self.query.nothing), 0
        last = token.part == self.query.rows
        return setup.ids[names[-1] if last else names[1] if token.part > 0 else names[0]], 0


def reading(size: Size) -> Parts | Listed:
    """How the sources of a size are read."""
    return Listed(size) if size.setup.rule.listed else Parts(size)
