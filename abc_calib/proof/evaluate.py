"""A model on windows instead of sequences: by its own layers, each different state once.

In float64, on the nodes of a graph: a node's states are computed for the distinct windows that
those above it need, and looked up from there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from abc_calib.evaluation.failures import logit_margins
from abc_calib.geometry import LineBias
from abc_calib.nn.transformer.blocks import Blocks, States
from abc_calib.proof.occurrence import distinct
from abc_calib.proof.rounding import Rounding
from abc_calib.proof.windows import AllWindows

CHUNK = 2**13
"""Windows of one node that are computed at once."""
HELD = 3 * 10**6
"""States of all nodes together that are held; of more windows one part is done after another."""


class Layers:
    """Runs windows by the layers of our own models, in float64."""

    def __init__(self, model: Any, listing: AllWindows):
        self.listing, self.nodes = listing, listing.graph.nodes
        self.base = listing.setup.rule.base
        self.blocks = Blocks(model, listing.setup.period, Rounding())

    @torch.inference_mode()
    def run(
        self, windows: Iterator[tuple[int, np.ndarray]]
    ) -> Iterator[tuple[int, np.ndarray, Tensor]]:
        """Give node, windows and margins of them."""
        tokens = self.blocks.tokens["self"]
        for together in _together(windows):
            each: dict[int, list[np.ndarray]] = {}
            for node, codes in together:  # a node may be there in several parts
                each.setdefault(node, []).append(distinct(codes % self.listing.radix(node)))
            needed, states = self._needed({**each}), dict[int, States]()
            last = {below: node for node in sorted(needed) for below, _ in self.nodes[node].below}
            for node, codes in sorted(needed.items()):
                rows = tokens.new_empty(len(codes), tokens.shape[1])
                for first in range(0, len(codes), CHUNK):
                    chunk = slice(first, first + CHUNK)
                    rows[chunk] = self._state(node, codes[chunk], needed, states)
                states[node] = States(rows)
                for unread in {k for k in states if last.get(k) == node} - each.keys():
                    del states[unread]
            for node, codes in together:
                right, value = np.divmod(codes, self.listing.radix(node))
                where = np.searchsorted(needed[node], value)
                yield node, codes, self._margins(states[node], where, right)

    def _needed(self, pending: dict[int, list[np.ndarray]]) -> dict[int, np.ndarray]:
        """The windows of all nodes, as numbers in order, from those at the top down."""
        needed: dict[int, np.ndarray] = {}
        for node in sorted(range(len(self.nodes)), reverse=True):
            if node not in pending:
                continue
            parts = pending.pop(node)
            codes = needed[node] = distinct(np.concatenate(parts)) if len(parts) > 1 else parts[0]
            values = self._values(node, codes)
            for below, names in self.nodes[node].below:
                pending.setdefault(below, []).append(distinct(self._code(values, names)))
        return needed

    def _on_device(self, numbers: np.ndarray) -> Tensor:
        """Numbers where the model is."""
        return torch.from_numpy(numbers).to(self.blocks.model.device)

    def _values(self, node: int, codes: np.ndarray) -> list[np.ndarray]:
        """The value of each atom of a node, ``(n,)`` each."""
        values = []
        for _ in range(self.nodes[node].atoms):
            codes, value = np.divmod(codes, self.base)
            values.append(value)
        return values

    def _code(self, values: list[np.ndarray], names: tuple[int, ...]) -> np.ndarray:
        """The windows of a node below, as numbers, from the atoms that it has here."""
        total = np.zeros(len(values[0]) if values else 1, np.int64)
        for name in reversed(names):
            total = total * self.base + values[name]
        return total

    def _state(
        self,
        node: int,
        codes: np.ndarray,
        needed: Mapping[int, np.ndarray],
        states: Mapping[int, States],
    ) -> Tensor:
        """The states ``(n, d)`` of a node in these windows; ``states``: of the nodes below."""
        kind, site, *label = self.nodes[node].label
        if kind == "token":
            symbol, phase = label
            ids = self._on_device(codes if symbol is None else np.array([symbol]))
            return self.blocks.tokens[site][ids * self.blocks.period + phase]
        layer, *attentions = label
        below, values = self.nodes[node].below, self._values(node, codes)
        where = [
            self._on_device(np.searchsorted(needed[k], self._code(values, names)))
            for k, names in below
        ]
        slots = [states[k] for k, _ in below]
        return self.blocks.row(site, layer, tuple(attentions), slots, where)

    def _margins(self, states: States, where: np.ndarray, right: np.ndarray) -> Tensor:
        """How far the logits of the tokens ``right (n,)`` are above all others, ``(n,)``."""
        margins, tokens = [], self._on_device(right.astype(np.int64))
        chunks = self._on_device(where).split(CHUNK)
        for at, token in zip(chunks, tokens.split(CHUNK), strict=True):
            logits = self.blocks.logits(states.states.index_select(0, at))
            margins.append(logit_margins(logits, token).nan_to_num(nan=-math.inf).cpu())
        return torch.cat(margins)

    @torch.inference_mode()
    def uncertain(self) -> float:
        """Bound what rounding takes of any margin computed so far: see ``Rounding``."""
        lines: LineBias = self.listing.setup.lines
        keys = 2 * max(len(head) for *_, head in lines.each())
        bias = max((abs(line.value) for line in lines.every()), default=0.0)
        rounding: Any = self.blocks.rounding
        return float(rounding.bound(self.blocks, keys, bias))


def _together(
    windows: Iterator[tuple[int, np.ndarray]],
) -> Iterator[list[tuple[int, np.ndarray]]]:
    """Windows in lots that fit the memory."""
    lot: list[tuple[int, np.ndarray]] = []
    count = 0
    for node, codes in windows:
        for first in range(0, len(codes), HELD):
            part = codes[first : first + HELD]
            if lot and count + len(part) > HELD:
                yield lot
                lot, count = [], 0
            lot.append((node, part))
            count += len(part)
    if lot:
        yield lot
