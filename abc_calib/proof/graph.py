"""What a row of an output depends on: a graph of nodes down to the tokens that it reads.

A *node* is a token, or the state of a token after a layer, together with the nodes that it is made
of. Tokens that may be any are *atoms*, numbered in the order of their first use, so that two places
with the same node are computed by the same arithmetic from atoms that stand elsewhere: whatever one
gives, the other gives too. The tokens of a source (after encoder layers, or of a decoder-only
model), of the output's own row and of the rows above are nodes alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np

from abc_calib.data.vocabulary import EOS
from abc_calib.geometry import CORNER, Layout, Line, LineBias
from abc_calib.geometry.layout import placed
from abc_calib.geometry.lines import DELIMITERS, formula, stepped
from abc_calib.proof.forms import Form, Gaps, Unbounded
from tasks.rules import Rule


class Node(NamedTuple):
    """``label``: what it is. ``below``: the nodes it is made of, each with its atoms' numbers here.

    Labels are ("token", site, symbol or None, phase) and ("state", site, layer, attentions): of
    each attention, of each head, the (number in ``below``, bias) of its keys. ``below[0]`` of a
    state is the token's own state before the layer.
    """

    label: tuple[Any, ...]
    below: tuple[tuple[int, tuple[int, ...]], ...]
    atoms: int


class Graph:
    """All nodes, each different one once; a node comes after those below it."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._numbers: dict[tuple[Any, ...], int] = {}

    def add(self, label: tuple[Any, ...], below: tuple[Any, ...], atoms: int) -> int:
        if (label, below) not in self._numbers:
            self._numbers[label, below] = len(self.nodes)
            self.nodes.append(Node(label, below, atoms))
        return self._numbers[label, below]


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


class State(NamedTuple):
    """A node at one place: its number, and its atoms."""

    node: int
    atoms: tuple[Atom, ...]


class Token(NamedTuple):
    """A token of a source: of which ``part``, and how many tokens of it are ``behind``.

    Parts are identified by the delimiter that closes them, which has -1 tokens behind it.
    """

    part: Any
    behind: Any


class Key(NamedTuple):
    """What a line names: a token of the source, or of the row ``up`` above in a column."""

    up: int | None
    place: Any


@dataclass(frozen=True)
class Setup:
    """What a model and its sources look like, as far as a graph needs it.

    ``layers``: of the decoder (or stream), ``encoder`` of the encoder. ``layout``: of a source of
    some size. ``last_is_first``: the token that closes a source is the first one of the output.
    ``opened``: does a token open the source?
    """

    rule: Rule
    lines: LineBias
    layers: int
    encoder: int
    layout: Layout
    ids: Mapping[str, int]
    row: int | None = None
    period: int = 1
    last_is_first: bool = False
    opened: bool = True

    def __post_init__(self) -> None:
        if any(line.segment == CORNER for line in self.lines.every()):
            raise Unbounded("its lines count from corners of a matrix of fixed size")

    @property
    def stream(self) -> bool:
        return self.lines.stream

    @property
    def sos(self) -> int:
        """What opens an output."""
        return self.ids[self.layout.delimiters[0]]

    @property
    def eos(self) -> int:
        return self.ids[EOS]

    def frames(self, mirrored: bool) -> Iterator[Frame]:
        """In how many ways the ends of a row and its query may lie: with each, which gaps.

        ``mirrored``: the column that is as far from the end as the query from the start counts too.
        """
        wide, above = {"column": 0, "wide": 1}, {}
        if self.rule.in_rows:
            counted = self.rule.counted
            yield from _orders(wide, first=True, counted=counted)
            if self.rule.extra is None:
                above = {"above": 1}
            yield from _orders({**wide, **above}, first=False, counted=counted)
        elif mirrored:
            yield {"column": (0, 1, 0), "wide": (1, 2, 1)}
            yield {"column": (0, 1, 1), "wide": (0, 2, 1)}
            yield {"column": (1, 1, 1), "wide": (0, 1, 0)}
        else:
            yield from _orders(wide)


Frame = dict[str, tuple[int, ...]]
"""Of each name of a size its constant and its slopes."""


def _orders(
    columns: dict[str, int], first: bool | None = None, counted: bool = False
) -> Iterator[Frame]:
    """Every order of the places on a row; the gaps between them, then those between rows.

    ``first``: of the first row or of later ones; None where there is one alone. ``counted``: rows
    below the query's are a gap, too; else its row may be the last one, or not.
    """
    between = [] if first is None else [0] * counted if first else [1] + [0] * counted
    count = len(columns) + (0 if first is None else (not first) + counted)
    for order in permutations(columns):
        frame: Frame = {}
        below, constant = [0] * count, 0
        for gap, name in enumerate(order):
            below[gap] = 1
            if gap and list(columns).index(order[gap - 1]) > list(columns).index(name):
                constant += 1  # places that meet are in one of the orders
            frame[name] = (constant, *below)
        if first is not None:
            row = [0] * len(columns)
            frame["row"] = (0 if first else 1, *row, *between)
            frame["rows"] = (1 if first else 2, *row, *([1] * len(between)))
        yield frame


class Query:
    """One query in problems of one size: what it and all below it reads, as nodes of a graph.

    ``short``: how many words the last column lacks, where a column reads several.
    """

    def __init__(self, setup: Setup, graph: Graph, frame: Frame, gaps: Gaps, short: int = 0):
        self.setup, self.graph, self.frame, self.gaps = setup, graph, frame, gaps
        place = {name: gaps.form(*linear) for name, linear in frame.items()}
        self.column, self.wide = place["column"], place["wide"]
        self.short = short
        self.row: Any = place.get("row", 0)
        self.rows: Any = place.get("rows", 1)
        self.above = place.get("above")
        if self.above is None and setup.rule.in_rows and setup.rule.extra is not None:
            self.above = self.wide + setup.rule.extra
        self.there = self.wide >= 1 and (self.above is None or self.above >= 0)
        if setup.rule.past:
            self.there &= self.rows >= 2
        if setup.rule.later is not None and not setup.rule.later.goes_on:
            self.there &= self.row < 2
        self.source = (Listed if setup.rule.listed else Parts)(self)
        self._known: dict[tuple[Any, ...], State] = {}

    @property
    def first(self) -> bool:
        """Is it the output's first row?"""
        return not self.setup.rule.in_rows or self.frame["row"][0] == 0

    @property
    def last(self) -> bool:
        """Is it the output's last row?"""
        return not self.setup.rule.in_rows or not self.row < self.rows - 1

    def letters(self, tape: int) -> Any:
        """How many letters a tape has that is an operand."""
        return self.wide - self.setup.rule.lacks(tape, self.short)

    def width(self, up: int) -> Any:
        """How many symbols the row ``up`` above has."""
        if self.setup.rule.extra is not None:
            return self.wide + self.setup.rule.extra
        shorter = 0 if up == 1 else self.setup.rule.shorter
        if shorter is None or self.above is None:
            raise Unbounded("it reads rows further up than the one above, which may have any width")
        return self.above + (up - 1) * shorter

    def state(self) -> State:
        """The state that the query's prediction is read off."""
        return self.written(self.setup.layers, 0, self.column)

    # Where lines lead

    def own_key(self, line: Line, up: int, column: Any) -> Key:
        """The key of a self-attention line for a query in a column of the row ``up`` above."""
        opens: list[Any] = [0]
        for above in range(1, line.segment + 1):
            exists = self.setup.rule.in_rows and self.row - up - above >= 0
            opens.append(opens[-1] - (self.width(up + above) + 1) if exists else opens[-1])
        position, _ = formula(line, "self").key((0, column, *opens), column)
        for above, opened in enumerate(opens):
            if not position < opened:
                return Key(up + above, position - opened + self._nothing)
        raise AssertionError("a line is kept within its rows")

    @property
    def _nothing(self) -> Form:
        return self.gaps.form(0, *(0 for _ in self.gaps.values))

    def of_source(self, token: Token) -> Key:
        """A token of the source as a key; where it is the output's first one, as that."""
        if self.setup.last_is_first and token.behind == -1 and self.source.closes(token):
            return Key(0, self._nothing)
        return Key(None, token)

    # Nodes

    def written(self, layer: int, up: int, column: Any) -> State:
        """A token of the output after ``layer`` layers."""
        name = ("written", layer, up, *column.name)
        if name not in self._known:
            self._known[name] = self._written(layer, up, column)
        return self._known[name]

    def _written(self, layer: int, up: int, column: Any) -> State:
        if layer == 0:
            phase = column.value % self.setup.period
            if column == 0:
                opening = self.setup.sos
                if self.setup.rule.in_rows and self.row - up > 0:
                    if self.setup.rule.closers:
                        return self._token("self", Atom("closer", up, None), phase)
                    assert self.setup.row is not None
                    opening = self.setup.row
                return self._token("self", opening, phase)
            return self._token("self", Atom("written", up, column - 1), phase)
        own = [
            [(self.own_key(line, up, column), line) for line in head]
            for head in self._heads("self", layer - 1)
        ]
        row = self.row - up
        crossed = [
            [(self.of_source(self.source.crossed(line, column, row)), line) for line in head]
            for head in self._heads("cross", layer - 1)
        ]
        keys = [own, crossed]
        if self.setup.stream:
            keys = [[keys_here + other for keys_here, other in zip(own, crossed, strict=True)]]
        return self._state("self", layer, self.written(layer - 1, up, column), keys)

    def read(self, layer: int, token: Token) -> State:
        """A token of the source after ``layer`` layers of the encoder, or of the stream.

        Without lines of their own the source's tokens of a stream see themselves alone.
        """
        if self.setup.stream and "encoder" not in self.setup.lines.sites:
            layer = 0
        behind = token.behind if isinstance(token.behind, int) else token.behind.name
        part = token.part if isinstance(token.part, int) else token.part.name
        name = ("read", layer, part, behind)
        if name not in self._known:
            if layer == 0:
                at, phase = self.source.token(token)
                self._known[name] = self._token("encoder", at, phase)
            else:
                keys = [
                    [(self.of_source(self.source.encoder_token(line, token)), line) for line in h]
                    for h in self._heads("encoder", layer - 1)
                ]
                below = self.read(layer - 1, token)
                self._known[name] = self._state("encoder", layer, below, [keys])
        return self._known[name]

    def _heads(self, site: Any, layer: int) -> Sequence[Sequence[Line]]:
        heads = self.setup.lines.heads(site, layer) if site in self.setup.lines.sites else None
        if heads is None:
            raise Unbounded("its attention is not restricted to lines: abc calibrate it")
        return heads

    def _token(self, site: str, what: int | Atom, phase: int) -> State:
        if isinstance(what, int):
            return State(self.graph.add(("token", site, what, phase), (), 0), ())
        return State(self.graph.add(("token", site, None, phase), (), 1), (what,))

    def _state(
        self, site: str, layer: int, itself: State, attentions: list[list[list[tuple[Key, Line]]]]
    ) -> State:
        """A token after a layer; ``attentions``: the keys of each head of each."""
        below: dict[tuple[Any, ...], int] = {}
        atoms: dict[tuple[Any, ...], tuple[int, Atom]] = {}
        named: list[tuple[int, tuple[int, ...]]] = []

        def slot(state: State) -> int:
            numbers = tuple(
                atoms.setdefault(atom.key, (len(atoms), atom))[0] for atom in state.atoms
            )
            if (state.node, numbers) not in below:
                below[state.node, numbers] = len(named)
                named.append((state.node, numbers))
            return below[state.node, numbers]

        slot(itself)
        read = []
        for heads in attentions:
            each = []
            for head in heads:
                if not head:
                    raise Unbounded(f"a head of layer {layer - 1} is transparent: it sees all")
                keys = [(slot(self._below(site, layer - 1, key)), bias) for key, bias in _met(head)]
                each.append(tuple(keys))
            read.append(tuple(each))
        node = self.graph.add(("state", site, layer, *read), tuple(named), len(atoms))
        return State(node, tuple(atom for _, atom in atoms.values()))

    def _below(self, site: str, layer: int, key: Key) -> State:
        """The state that a layer reads at a key."""
        if key.up is not None:
            return self.written(layer, key.up, key.place)
        if site == "self" and not self.setup.stream:
            layer = self.setup.encoder
        return self.read(layer, key.place)


def _met(head: list[tuple[Key, Line]]) -> list[tuple[Key, float]]:
    """Lines that meet on one key count once, with the highest bias."""
    merged: list[tuple[Key, float]] = []
    for key, line in head:
        bias = float(np.float32(line.value))
        for number, (other, highest) in enumerate(merged):
            if _same(key, other):
                merged[number] = other, max(highest, bias)
                break
        else:
            merged.append((key, bias))
    return merged


def _same(key: Key, other: Key) -> bool:
    if key.up != other.up:
        return False
    if key.up is not None:
        return bool(key.place == other.place)
    return bool(key.place.part == other.place.part and key.place.behind == other.place.behind)


class Parts:
    """Sources with one part an operand (or with all of them in columns), whose widths are known."""

    def __init__(self, query: Query):
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

    def closes(self, token: Token) -> bool:
        """Does the delimiter close the source?"""
        return bool(token.part == len(self.layout.parts))

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
        behind = token.behind + (last[-1] - last[token.part]) + query._nothing + 1
        phase = behind.value % setup.period
        if token.behind < 0:
            return setup.ids[self.layout.delimiters[token.part]], phase
        operands = self.layout.parts[token.part - 1].operands
        column, which = divmod(token.behind + query._nothing, len(operands))
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

    def __init__(self, query: Query):
        self.query = query

    def closes(self, token: Token) -> bool:
        """Does the delimiter close the source?"""
        return bool(token.part == self.query.rows)

    def _drifts(self, line: Line, site: Any) -> Unbounded:
        return Unbounded(f"{line.label(site)} leaves the row's own operand")

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
            return Atom("digit", 0, token.behind + self.query._nothing), 0
        last = token.part == self.query.rows
        return setup.ids[names[-1] if last else names[1] if token.part > 0 else names[0]], 0
