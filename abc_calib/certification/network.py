"""The model on windows instead of sequences: the same layers, shared prefixes computed once.

In float64, with a bound on its error (``rounding``). Many windows agree on what a lower layer
sees. So a layer's states are computed for the distinct projections of the windows on that layer's
own atoms, and looked up from above.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from abc_calib.certification.field import Field
from abc_calib.certification.places import Case, Key, Phase, Place, Token
from abc_calib.certification.rounding import (
    UNIT,
    Head,
    Linear,
    Norm,
    Rounded,
    beside,
    exactly,
    mixed,
    relu,
    size,
)
from abc_calib.certification.windows import Windows
from abc_calib.geometry import Site
from abc_calib.geometry.coords import coords
from abc_calib.nn.positions import Scheme


@dataclass
class Table:
    """States ``(n, d)`` of one row after some layers, one for each distinct code."""

    columns: list[int]
    radix: list[int]
    codes: np.ndarray
    states: Rounded

    def find(self, values: np.ndarray) -> Tensor:
        """Index of the state of each window ``values (m, atoms)``."""
        return torch.from_numpy(np.searchsorted(self.codes, code(values, self.columns, self.radix)))


def code(values: np.ndarray, columns: list[int], radix: list[int]) -> np.ndarray:
    """One number for the values of some columns, ``(m,)``."""
    total = np.zeros(len(values), np.int64)
    for column, r in zip(columns, radix, strict=True):
        total = total * r + values[:, column]
    return total


class Layer:
    """One decoder layer, in parts that bound their rounding."""

    def __init__(self, block: Any):
        norms = [Norm(module) for module in block.norms]
        #: one over a stream, or self-attention and cross-attention, whose keys have no norm
        self.attentions = [
            Attention(module, norm, None if number else norm)
            for number, (module, norm) in enumerate(zip(block.attentions, norms, strict=False))
        ]
        self.first = Linear(block.feedforward[0], norms[-1])
        self.second = Linear(block.feedforward[-1])

    def feedforward(self, x: Rounded) -> Rounded:
        return self.second(relu(self.first(x)))

    def alone(self, x: Rounded) -> Rounded:
        """Rows that read nothing but themselves, one layer later."""
        attention = self.attentions[0]
        x = x + attention.output(attention.value(x))
        return x + self.feedforward(x)


class Attention:
    """The maps of one attention; ``memory``: the norm of its keys, if they have one."""

    def __init__(self, module: Any, norm: Norm, memory: Norm | None):
        self.query = Linear(module.query, norm, module.heads)
        self.key = Linear(module.key, memory, module.heads)
        self.value = Linear(module.value, memory, module.heads)
        self.output = Linear(module.output)


class Exact:
    """A model in float64, ready for windows of any case."""

    def __init__(self, model: Any, field: Field):
        self.model, self.field = copy.deepcopy(model).double().eval(), field
        with torch.inference_mode():
            self.layers = [Layer(block) for block in self.model.layers]
            self.head = Head(Norm(self.model.norm), self.model.head)
            self.written, read = self._embedded("self"), self._embedded("encoder")
            #: what heads read of the source in each layer: rows of a stream change
            self.memory = [read] * len(self.layers)
            if field.bias.stream:
                for number, layer in enumerate(self.layers[:-1], 1):
                    self.memory[number] = layer.alone(self.memory[number - 1])

    def _embedded(self, site: Site) -> Rounded:
        """Every token at every phase of the positions, ``(v * phase, d)``."""
        period = self.field.period
        scheme = self.model.scheme_of(site)
        tokens = self.model.embed.weight[:, None].expand(-1, period, -1)
        places = torch.arange(period, device=self.model.device)[None]
        value = scheme.embed(tokens, coords(places, output=True)).flatten(0, 1)
        if type(scheme).embed is Scheme.embed:
            return exactly(value)
        # an angle is wrong by its size, and the sum of two vectors once more
        wrong = 32 * (period + 1) * UNIT * math.sqrt(value.shape[1])
        return Rounded(value, wrong + 2 * UNIT * size(value))


class Network:
    """One model on the windows of one case."""

    def __init__(self, exact: Exact, windows: Windows):
        self.exact, self.field, self.windows = exact, exact.field, windows
        self.case: Case = windows.case
        self.column = {atom: i for i, atom in enumerate(windows.atoms)}
        self.tables: dict[tuple[int, Place], Table] = {}
        self.projected: dict[tuple[int, Place, str], Rounded] = {}

    @torch.inference_mode()
    def logits(self, values: np.ndarray) -> Tensor:
        """``(m, v)``: what the row in question predicts in each window ``values (m, atoms)``."""
        model = self.exact.model
        return model.head(model.norm(self._top(values).value))

    @torch.inference_mode()
    def margins(self, values: np.ndarray, right: np.ndarray) -> tuple[Tensor, Tensor]:
        """Of the tokens ``right (m,)``: see ``rounding.Head.margins``."""
        return self.exact.head.margins(self._top(values), torch.from_numpy(right.astype(np.int64)))

    def _top(self, values: np.ndarray) -> Rounded:
        return self._state(self.field.layers, self.case.place, values)

    def _state(self, layer: int, row: Place, values: np.ndarray) -> Rounded:
        """The state ``(m, d)`` of a row after ``layer`` layers, in each window."""
        if layer == 0:
            return self._read(self.field.input(row, self.case), values, self.exact.written)
        block = self.exact.layers[layer - 1]
        below = self._table(layer - 1, row)
        x = below.states.take(below.find(values))
        every = self.field.keys(layer - 1, row, self.case)
        for number, (attention, heads) in enumerate(zip(block.attentions, every, strict=True)):
            query = partial(attention.query, x)
            if not number:
                query = partial(self._of_row, attention, row, "query", layer - 1, values)
            x = x + self._attend(attention, query, heads, layer - 1, values)
        return x + block.feedforward(x)

    def _table(self, layer: int, row: Place) -> Table:
        """The states of a row for every distinct projection of the windows on its atoms."""
        if (layer, row) not in self.tables:
            atoms = self.field.atoms(layer, row, self.case)
            columns = sorted(self.column[atom] for atom in atoms)
            radix = [self.windows.radix[c] for c in columns]
            codes, first = np.unique(code(self.windows.values, columns, radix), return_index=True)
            values = self.windows.values[first]
            states = beside([self._state(layer, row, part) for part in in_chunks(values)], 0)
            self.tables[layer, row] = Table(columns, radix, codes, states)
        return self.tables[layer, row]

    def _attend(
        self,
        attention: Attention,
        query: Callable[[], Rounded],
        heads: list[list[Key]],
        layer: int,
        values: np.ndarray,
    ) -> Rounded:
        """Attention of one row over each head's few keys, ``(m, d)``."""
        found: dict[tuple[Key, str], Rounded] = {}

        def side(keys: list[Key], name: str, hs: list[int]) -> Rounded:  # of some heads, a key each
            plain = [key._replace(bias=0.0) for key in keys]
            for key in set(plain):
                if (key, name) not in found:
                    found[key, name] = self._project(attention, key, name, layer, values)
            if len(set(plain)) == 1 and len(hs) == len(heads):
                return found[plain[0], name]
            return beside([found[k, name].group(h) for k, h in zip(plain, hs, strict=True)], 1)

        every = list(range(len(heads)))
        if all(len(keys) == 1 for keys in heads):
            return attention.output(side([keys[0] for keys in heads], "value", every))
        asked, parts = query(), {}
        for count in {len(keys) for keys in heads}:
            hs = [h for h in every if len(heads[h]) == count]
            slots = [[heads[h][k] for h in hs] for k in range(count)]
            compared, read = ([side(s, name, hs) for s in slots] for name in ("key", "value"))
            some = asked if hs == every else beside([asked.group(h) for h in hs], 1)
            found_here = mixed(some, compared, read, [[key.bias for key in s] for s in slots])
            parts.update({h: found_here.group(i) for i, h in enumerate(hs)})
        if hs == every:
            return attention.output(found_here)
        return attention.output(beside([parts[h] for h in every], 1))

    def _project(
        self, attention: Attention, key: Key, name: str, layer: int, values: np.ndarray
    ) -> Rounded:
        """A key's or value's projection in each window, from the table of where it stands."""
        if key.row is not None:
            return self._of_row(attention, key.row, name, layer, values)
        assert key.token is not None
        return self._read(key.token, values, getattr(attention, name)(self.exact.memory[layer]))

    def _of_row(
        self, attention: Attention, row: Place, name: str, layer: int, values: np.ndarray
    ) -> Rounded:
        table = self._table(layer, row)
        place = (layer, row, name)
        if place not in self.projected:
            self.projected[place] = getattr(attention, name)(table.states)
        return self.projected[place].take(table.find(values))

    def _read(self, token: Token, values: np.ndarray, table: Rounded) -> Rounded:
        """Rows of ``table (v * phase, d)`` for a token in each window."""
        return table.take(self._token(token, values))

    def _token(self, token: Token, values: np.ndarray) -> Tensor:
        """The row ``(m,)`` of such a table."""
        if token.atom is not None:
            ids = values[:, self.column[token.atom]].astype(np.int64)
        else:
            ids = np.full(len(values), token.symbol, np.int64)

        def at(atom: Phase) -> np.ndarray:
            if atom in self.column:
                return values[:, self.column[atom]].astype(np.int64)
            return np.zeros(len(values), np.int64)

        return torch.from_numpy(ids * self.field.period + self.field.phase(token, self.case, at))


def in_chunks(values: np.ndarray, size: int = 2**11) -> list[np.ndarray]:
    """``values`` in parts that fit the memory easily."""
    return [values[i : i + size] for i in range(0, max(len(values), 1), size)]
