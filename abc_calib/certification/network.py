"""The model on windows instead of sequences: the same layers, shared prefixes computed once.

Many windows agree on what a lower layer sees. So a layer's states are computed for the distinct
projections of the windows on that layer's own atoms, and looked up from above.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from abc_calib.certification.field import Field
from abc_calib.certification.places import Atom, Case, Key, Phase, Place, Token
from abc_calib.certification.windows import Windows
from abc_calib.geometry import Site


@dataclass
class Table:
    """States ``(n, d)`` of one row after some layers, one for each distinct code."""

    columns: list[int]
    radix: list[int]
    codes: np.ndarray
    states: Tensor

    def find(self, values: np.ndarray) -> Tensor:
        """Index of the state of each window ``values (m, atoms)``."""
        return torch.from_numpy(np.searchsorted(self.codes, code(values, self.columns, self.radix)))


def code(values: np.ndarray, columns: list[int], radix: list[int]) -> np.ndarray:
    """One number for the values of some columns, ``(m,)``."""
    total = np.zeros(len(values), np.int64)
    for column, r in zip(columns, radix, strict=True):
        total = total * r + values[:, column]
    return total


class Network:
    """One model, in one precision, on the windows of one case."""

    def __init__(self, model: Any, field: Field, windows: Windows):
        self.model, self.field, self.windows = model, field, windows
        self.case: Case = windows.case
        self.column = {atom: i for i, atom in enumerate(windows.atoms)}
        self.tables: dict[tuple[int, Place], Table] = {}
        self.projected: dict[tuple[int, Place, str], Tensor] = {}
        self.written = self._embedded("self")
        self.memory = self._embedded("encoder")

    def _embedded(self, site: Site) -> Tensor:
        """Every token at every phase of the positions, ``(v, phase, d)``."""
        phases = torch.arange(self.field.period, device=self.model.device)
        tokens = self.model.embed.weight[:, None].expand(-1, self.field.period, -1)
        return self.model.scheme_of(site).embed(tokens, phases)

    @torch.inference_mode()
    def logits(self, values: np.ndarray) -> Tensor:
        """``(m, v)``: what the row in question predicts in each window ``values (m, atoms)``."""
        state = self._state(self.field.layers, self.case.place, values)
        return self.model.head(self.model.norm(state))

    def _state(self, layer: int, row: Place, values: np.ndarray) -> Tensor:
        """The state ``(m, d)`` of a row after ``layer`` layers, in each window."""
        if layer == 0:
            return self._read(self.field.input(row, self.case), values, self.written)
        block = self.model.layers[layer - 1]
        below = self._table(layer - 1, row)
        x = below.states[below.find(values)]
        own, crossed = self.field.keys(layer - 1, row, self.case)
        x = x + self._attend(block.self_attention, block.norms[0], x, own, layer - 1, values)
        x = x + self._attend(block.cross_attention, block.norms[1], x, crossed, layer - 1, values)
        return x + block.feedforward(block.norms[2](x))

    def _table(self, layer: int, row: Place) -> Table:
        """The states of a row for every distinct projection of the windows on its atoms."""
        if (layer, row) not in self.tables:
            atoms = self.field.atoms(layer, row, self.case)
            columns = sorted(self.column[atom] for atom in atoms)
            radix = [self.windows.radix[c] for c in columns]
            codes, first = np.unique(code(self.windows.values, columns, radix), return_index=True)
            values = self.windows.values[first]
            states = torch.cat([self._state(layer, row, part) for part in in_chunks(values)])
            self.tables[layer, row] = Table(columns, radix, codes, states)
        return self.tables[layer, row]

    def _attend(
        self,
        attention: Any,
        norm: Any,
        x: Tensor,
        heads: list[list[Key]],
        layer: int,
        values: np.ndarray,
    ) -> Tensor:
        """Attention of one row over each head's few keys, ``(m, d)``."""
        width = x.shape[-1] // len(heads)
        found: dict[tuple[Key, str], Tensor] = {}

        def side(key: Key, name: str) -> Tensor:  # keys or values of all heads, (m, d)
            plain = key._replace(bias=0.0)
            if (plain, name) not in found:
                found[plain, name] = self._project(attention, norm, plain, name, layer, values)
            return found[plain, name]

        query = attention.query(norm(x)) if any(len(keys) > 1 for keys in heads) else None
        mixed = []
        for h, keys in enumerate(heads):
            part = slice(h * width, (h + 1) * width)
            if len(keys) == 1:
                mixed.append(side(keys[0], "value")[:, part])
                continue
            assert query is not None
            scores = [
                (query[:, part] * side(k, "key")[:, part]).sum(1) / math.sqrt(width) + k.bias
                for k in keys
            ]
            weights = torch.stack(scores, 1).softmax(1)
            seen = torch.stack([side(k, "value")[:, part] for k in keys], 1)
            mixed.append((weights[:, :, None] * seen).sum(1))
        return attention.output(torch.cat(mixed, 1))

    def _project(
        self, attention: Any, norm: Any, key: Key, name: str, layer: int, values: np.ndarray
    ) -> Tensor:
        """A key's or value's projection in each window, from the table of where it stands."""
        project = getattr(attention, name)
        if key.row is None:
            assert key.token is not None
            return self._read(key.token, values, project(self.memory))
        table = self._table(layer, key.row)
        place = (layer, key.row, name)
        if place not in self.projected:
            self.projected[place] = project(norm(table.states))
        return self.projected[place][table.find(values)]

    def _read(self, token: Token, values: np.ndarray, table: Tensor) -> Tensor:
        """Rows of ``table (v, phase, d)`` for a token in each window."""
        if token.atom is not None:
            ids = values[:, self.column[token.atom]].astype(np.int64)
        else:
            ids = np.full(len(values), token.symbol, np.int64)
        return table[torch.from_numpy(ids), torch.from_numpy(self._phase(token, values))]

    def _phase(self, token: Token, values: np.ndarray) -> np.ndarray:
        """The token's position modulo the period."""
        period = self.field.period
        position = np.full(len(values), token.shift, np.int64)
        if period > 1:
            row = self._distance(Phase("row"), self.case.row, values)
            width = self._distance(Phase("width"), self.case.width, values)
            if self.case.width is None and self.case.left is not None:
                width = row + self.case.left
            position = position + token.row * row + token.width * width
        return position % period

    def _distance(self, atom: Atom, known: int | None, values: np.ndarray) -> np.ndarray:
        if known is not None:
            return np.full(len(values), known, np.int64)
        if atom in self.column:
            return values[:, self.column[atom]].astype(np.int64)
        return np.zeros(len(values), np.int64)


def in_chunks(values: np.ndarray, size: int = 2**15) -> list[np.ndarray]:
    """``values`` in parts that fit the memory easily."""
    return [values[i : i + size] for i in range(0, max(len(values), 1), size)]
