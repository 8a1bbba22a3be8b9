"""What a decoding step sees where an output has several rows: a receptive field in two dimensions.

A query stands in a column of a row. Its window holds digits of the operands, of its own row and of
the rows above. Within a row everything is as in an output of one row (``field``), with the row
above as an operand more. From one row to the next only a few things differ: whether there are rows
above and below. Rows above may hold any digits: more windows than can occur, and no fewer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from abc_calib.certification.field import Field, Reach
from abc_calib.certification.places import (
    ABOVE,
    NEAR,
    Atom,
    Case,
    Constant,
    Digit,
    Key,
    Other,
    Place,
    Token,
    Unbounded,
    Written,
)
from abc_calib.certification.windows import Enumeration
from abc_calib.data.vocabulary import EOS, SOS
from abc_calib.geometry import Layout, Line, LineBias
from abc_calib.geometry.lines import formula
from tasks.columns import RowRule
from tasks.rows import ROW

DEEP, TALL = 10**30, 10**36
"""The row that stands for every row far below the first, and how many are below every such one."""


@dataclass(frozen=True)
class GridCase(Case):
    """Where a query stands: as in a ``Case`` within its row, and its row among the others.

    ``up`` rows below the first, ``down`` above the last; None where it does not matter how many.
    """

    up: int | None = None
    down: int | None = None

    @property
    def rows(self) -> tuple[int, int]:
        """The row, and how many there are, as numbers."""
        up = DEEP if self.up is None else self.up
        return up, up + 1 + (TALL if self.down is None else self.down)

    def label(self) -> str:
        row = "a later row" if self.up is None else f"row {self.up}"
        below = (
            "" if self.down is None else ", the last" if not self.down else f", {self.down} left"
        )
        column = super().label().replace("row ", "column ")
        return f"{row}{below}: {column}"


@dataclass(frozen=True)
class GridField(Field):
    """The receptive field of a model with these lines, on a grid of rows.

    ``sizes``: the layout of a source of so many digits and rows. ``closes``: what closes a row.
    """

    sizes: Callable[[tuple[int, int]], Layout] = lambda _: Layout((1,), ("", ""))
    closes: int = 0

    # Where a line leads

    def above_key(self, line: Line, row: Place, case: GridCase) -> Token:
        """The token that a self-attention line reads in a row above."""
        up = case.rows[0]
        column, (_, width) = case.number(row), case.numbers
        tokens = width + 2  # the digits of a row, one more than columns, and what opens it
        opens = [-min(above, up) * tokens for above in range(line.segment + 1)]
        key, _ = formula(line, "self").key((0, column, *opens), column)
        above = min(line.segment, up)
        place = key - opens[above]
        if place == 0:
            opening = self.ids[SOS] if up == above else self.closes
            return Token(opening, None, 0, 0, 0)
        if place == tokens:
            return Token(self.closes, None, 0, 0, 0)
        digit = place - 1
        beside = digit - self.rule.shift
        if above > 1 or beside < 0:
            return Token(None, Other("p" * above, case.place_of(digit)), 0, 0, 0)
        return Token(None, Digit(ABOVE, case.place_of(beside)), 0, 0, 0)

    def source_key(self, line: Line, row: Place, case: Case) -> Token:
        assert isinstance(case, GridCase)
        self._check(line)
        up, rows = case.rows
        _, width = case.numbers
        layout = self.sizes((width, rows))
        position, _ = formula(line, "cross").key(layout.anchors, case.number(row), up)
        part, operand, column = layout.coordinate(position)
        if operand is None:
            return Token(self.ids[layout.delimiters[part]], None, 0, 0, 0)
        if operand == 0:
            return Token(None, Digit(0, case.place_of(column)), 0, 0, 0)
        if abs(column - up) < NEAR:
            beside = column - up
            return Token(None, Other("b", beside) if beside else Constant(1), 0, 0, 0)
        if column < NEAR:
            return Token(None, Other("b", Place("low", column)), 0, 0, 0)
        raise Unbounded("a line drifts through the operand whose digits belong to rows")

    # What a row reads

    def input(self, row: Place, case: Case) -> Token:
        assert isinstance(case, GridCase)
        if row == Place("low", 0):
            return Token(self.ids[SOS] if case.up == 0 else self.closes, None, 0, 0, 0)
        return Token(None, Written(Place(row.kind, row.at - 1)), 0, 0, 0)

    def written_key(self, line: Line, layer: int, row: Place, case: Case) -> Key:
        assert isinstance(case, GridCase)
        if not line.segment:
            return super().written_key(line, layer, row, case)
        if layer:
            raise Unbounded("it reads rows above in a layer that is not the first")
        self._check(line)
        return Key(None, self.above_key(line, row, case), line.value)

    # How far it reaches

    @property
    def inner(self) -> GridCase:
        return GridCase(None, None)

    def _runs_out(self) -> int:
        return 0

    @cached_property
    def reach(self) -> Reach:
        inside = super().reach
        atoms = self.atoms(self.layers, self.inner.place, self.inner)
        found = [atom for atom in atoms if isinstance(atom, Other)]
        beside = [other.at for other in found if isinstance(other.at, int)]
        fixed = [o.at.at for o in found if o.of == "b" and not isinstance(o.at, int)]
        lines = (line for heads in self.bias.sites["self"] for head in heads for line in head)
        above = max(line.segment for line in lines)
        up = max(above, -min([0, *beside]), *(1 + at for at in [-1, *fixed])) + 1
        return GridReach(inside.rows, inside.columns, inside.near, up, max([0, *beside]))

    def cases(self) -> list[Case]:
        reach = self.reach
        assert isinstance(reach, GridReach)
        ups: list[int | None] = [None, *range(reach.up)]
        downs: list[int | None] = [None, *range(max(reach.down, 1))]
        return [
            GridCase(case.row, case.left, up, down)
            for case in super().cases()
            for up, down in itertools.product(ups, downs)
        ]

    @property
    def constant(self) -> int | None:
        return None

    def enumeration(self, case: Case, atoms: frozenset[Atom]) -> Enumeration:
        assert isinstance(case, GridCase)
        rule = self.rule.first if case.up == 0 else self.rule.later
        end = self.ids[EOS] if case.down == 0 else self.closes
        beyond = self.beyond(case)
        return Enumeration(rule, self.ids[EOS], case, atoms, self.period, None, end, beyond)

    def beyond(self, case: GridCase) -> dict[int, int]:
        """What stands beyond the digits of an operand, where numbers end by themselves."""
        return {}


@dataclass(frozen=True)
class EndingField(GridField):
    """The same where each row has an operand, and numbers and rows end by themselves.

    Beyond its digits an operand reads as what opens it, and the row above as what closes it. So
    no row counts from the end of a number, and all that are longer than it are alike.
    """

    def _closed(self, last: bool) -> int:
        """What stands behind an operand, the last one or another."""
        return self.ids[self.sizes((1, 2)).delimiters[2 if last else 1]]

    def above_key(self, line: Line, row: Place, case: GridCase) -> Token:
        if line.segment > 1:
            raise Unbounded("it reads rows further up than the one above")
        return super().above_key(line, row, case)

    def source_key(self, line: Line, row: Place, case: Case) -> Token:
        assert isinstance(case, GridCase)
        self._check(line)
        if line.direction == "diag":
            raise Unbounded("a diagonal in cross-attention counts from the first digit of a number")
        own = line.segment == line.part_step == 1
        drifts = line.beta or (line.part_step and not own) or line.stride != 1
        along = case.number(row) if line.direction == "anti" else -1
        column = along + line.offset
        if drifts or not (own or (line.segment < 2 and column < 0 and line.direction == "vert")):
            raise Unbounded(f"{line.label('cross')} leaves the row's own operand")
        if own and column >= 0:
            return Token(None, Digit(0, case.place_of(column)), 0, 0, 0)
        if line.segment == 0:
            return Token(self.ids[SOS], None, 0, 0, 0)
        last = case.down == 0 and (own or case.up == 0)
        return Token(self._closed(last), None, 0, 0, 0)

    def cases(self) -> list[Case]:
        reach = self.reach
        assert isinstance(reach, GridReach)
        rows = [None, *range(reach.rows)], [None, *range(reach.up)], [None, 0]
        return [GridCase(row, None, up, down) for row, up, down in itertools.product(*rows)]

    def beyond(self, case: GridCase) -> dict[int, int]:
        opened = self.ids[SOS] if case.up == 0 else self.ids[self.sizes((1, 2)).delimiters[1]]
        return {0: opened, ABOVE: self.closes}


@dataclass(frozen=True)
class GridReach(Reach):
    """From how many rows below the first and above the last the others do not matter, too."""

    up: int = 0
    down: int = 0


def grid_field(
    bias: LineBias,
    layers: int,
    sizes: Callable[[tuple[int, int]], Layout],
    ids: Mapping[str, int],
    rule: RowRule,
) -> GridField:
    """The field of a model with these lines; ``sizes``: layouts of sources by digits and rows."""

    def layout(width: int) -> Layout:
        return sizes((width, 1))

    kind = EndingField if rule.ends else GridField
    return kind(bias, layers, layout, ids, rule, sizes=sizes, closes=ids[ROW])
