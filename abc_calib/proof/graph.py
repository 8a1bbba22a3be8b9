"""What a row of an output depends on: a graph of nodes down to the tokens that it reads.

A *node* is a token, or the state of a token after a layer, together with the nodes that it is made
of. Tokens that may be any are *atoms*, numbered in the order of their first use, so that two places
with the same node are computed by the same arithmetic from atoms that stand elsewhere: whatever one
gives, the other gives too. The tokens of a source (after encoder layers, or of a decoder-only
model), of the output's own row and of the rows above are nodes alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from abc_calib.geometry import Line
from abc_calib.geometry.lines import formula
from abc_calib.proof.forms import Gaps, Unbounded
from abc_calib.proof.operands import Atom, Token, reading
from abc_calib.proof.setup import Frame, Setup, Size


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


class State(NamedTuple):
    """A node at one place: its number, and its atoms."""

    node: int
    atoms: tuple[Atom, ...]


class Key(NamedTuple):
    """What a line names: a token of the source, or of the row ``up`` above in a column."""

    up: int | None
    place: Any


class Query(Size):
    """One query in problems of one size: what it and all below it reads, as nodes of a graph."""

    def __init__(self, setup: Setup, graph: Graph, frame: Frame, gaps: Gaps, short: int = 0):
        super().__init__(setup, frame, gaps, short)
        self.graph = graph
        self.source = reading(self)
        self._known: dict[tuple[Any, ...], State] = {}

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
                return Key(up + above, position - opened + self.nothing)
        raise AssertionError("a line is kept within its rows")

    def of_source(self, token: Token) -> Key:
        """A token of the source as a key; where it is the output's first one, as that."""
        if self.setup.last_is_first and token.behind == -1 and self.source.closes(token):
            return Key(0, self.nothing)
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
