"""What a row of an output depends on: a graph of nodes down to the tokens that it reads.

A *node* is a token, or the state of a token after a layer, together with the nodes that it is made
of. Tokens that may be any are *atoms*, numbered in the order of their first use, so that two places
with the same node are computed by the same arithmetic from atoms that stand elsewhere: whatever one
gives, the other gives too. The tokens of a source (after encoder layers, or of a decoder-only
model), of the output's own row and of the rows above are nodes alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from abc_calib.geometry import Line
from abc_calib.geometry.lines import formula
from abc_calib.proof.forms import Gaps, Undecided
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


class Own(NamedTuple):
    """A token of the output: of the row ``up`` above, in a column."""

    up: int
    column: Any


Heads = list[list[tuple["Own | Token", float]]]
"""What each head of an attention reads: keys with their biases."""


class Query(Size):
    """One query in problems of one size: what it and all below it reads, as nodes of a graph."""

    def __init__(self, setup: Setup, graph: Graph, frame: Frame, gaps: Gaps, short: int = 0):
        super().__init__(setup, frame, gaps, short)
        self.graph = graph
        self.source = reading(self)
        self._known: dict[tuple[Any, ...], State] = {}

    def state(self) -> State:
        """The state that the query's prediction is read off."""
        return self.after(self.setup.layers, Own(0, self.column))

    # Where lines lead

    def own_key(self, line: Line, up: int, column: Any) -> Own:
        """The key of a self-attention line for a query in a column of the row ``up`` above."""
        opens: list[Any] = [0]
        for above in range(1, line.segment + 1):
            exists = self.row - up - above >= 0
            opens.append(opens[-1] - (self.width(up + above) + 1) if exists else opens[-1])
        position, _ = formula(line, "self").key((0, column, *opens), column)
        for above, opened in enumerate(opens):
            if not position < opened:
                return Own(up + above, position - opened + self.nothing)
        raise AssertionError("a line is kept within its rows")

    def of_source(self, token: Token) -> Own | Token:
        """A token of the source as a key; where it is the output's first one, as that."""
        if self.setup.last_is_first and token.behind == -1:
            last = token.part == len(self.setup.layout.parts)
            return Own(0, self.nothing) if last else token
        return token

    # Nodes

    def after(self, layer: int, key: Own | Token) -> State:
        """A token of the output or of the source after ``layer`` layers.

        Without lines of their own the source's tokens of a stream see themselves alone.
        """
        is_own = isinstance(key, Own)
        if not is_own and self.setup.stream and "encoder" not in self.setup.lines.sites:
            layer = 0
        name = (is_own, layer, *(x if isinstance(x, int) else x.name for x in key))
        if name not in self._known:
            state = self._written(layer, key) if isinstance(key, Own) else self._read(layer, key)
            self._known[name] = state
        return self._known[name]

    def _written(self, layer: int, key: Own) -> State:
        up, column = key
        if layer == 0:
            return self._token("self", self._symbol(up, column), column.value % self.setup.period)
        row = self.row - up
        output = self._heads("self", layer, lambda line: self.own_key(line, up, column))
        crossed = self._heads(
            "cross", layer, lambda line: self.of_source(self.source.crossed(line, column, row))
        )
        attentions = [output, crossed]
        if self.setup.stream:
            attentions = [[a + b for a, b in zip(output, crossed, strict=True)]]
        return self._state("self", layer, key, attentions)

    def _symbol(self, up: int, column: Any) -> int | Atom:
        """What stands in a column of the output, of which column 0 is what opens the row."""
        if column != 0:
            return Atom("written", up, column - 1)
        if not self.row - up > 0:
            return self.setup.sos
        if self.setup.rule.closers:
            return Atom("closer", up, None)
        assert self.setup.row is not None
        return self.setup.row

    def _read(self, layer: int, token: Token) -> State:
        if layer == 0:
            return self._token("encoder", *self.source.token(token))
        keys = self._heads(
            "encoder", layer, lambda line: self.of_source(self.source.encoder_token(line, token))
        )
        return self._state("encoder", layer, token, [keys])

    def _heads(self, site: Any, layer: int, find: Callable[[Line], Own | Token]) -> Heads:
        """The keys that each head reads, with their biases."""
        heads = self.setup.lines.heads(site, layer - 1) if site in self.setup.lines.sites else None
        if heads is None:
            raise Undecided("its attention is not restricted to lines: abc calibrate it")
        return [[(find(line), float(np.float32(line.value))) for line in head] for head in heads]

    def _token(self, site: str, what: int | Atom, phase: int) -> State:
        if isinstance(what, int):
            return State(self.graph.add(("token", site, what, phase), (), 0), ())
        return State(self.graph.add(("token", site, None, phase), (), 1), (what,))

    def _state(self, site: str, layer: int, itself: Own | Token, attentions: list[Heads]) -> State:
        """A token after a layer; ``attentions``: what the heads of each read."""
        below: dict[tuple[int, tuple[int, ...]], int] = {}
        atoms: dict[tuple[Any, ...], tuple[int, Atom]] = {}

        def slot(state: State) -> int:
            numbers = (atoms.setdefault(x.key, (len(atoms), x))[0] for x in state.atoms)
            return below.setdefault((state.node, tuple(numbers)), len(below))

        slot(self.after(layer - 1, itself))
        crosses = site == "self" and not self.setup.stream
        read = []
        for heads in attentions:
            each = []
            for head in heads:
                if not head:
                    raise Undecided(f"a head of layer {layer - 1} is transparent: it sees all")
                keys = []
                for key, bias in _met(head):
                    is_memory = crosses and isinstance(key, Token)
                    under = self.setup.encoder if is_memory else layer - 1
                    keys.append((slot(self.after(under, key)), bias))
                each.append(tuple(keys))
            read.append(tuple(each))
        node = self.graph.add(("state", site, layer, *read), tuple(below), len(atoms))
        return State(node, tuple(atom for _, atom in atoms.values()))


def _met(head: list[tuple[Own | Token, float]]) -> list[tuple[Own | Token, float]]:
    """Lines that meet on one key count once, with the highest bias."""
    merged: list[tuple[Own | Token, float]] = []
    for key, bias in head:
        for number, (other, highest) in enumerate(merged):
            if type(key) is type(other) and key[0] == other[0] and key[1] == other[1]:
                merged[number] = other, max(highest, bias)
                break
        else:
            merged.append((key, bias))
    return merged
