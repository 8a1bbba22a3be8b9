"""What the decoder keeps between steps: keys and values of the source and of its own rows.

Where every head follows lines, only of the rows that lines can reach.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from abc_calib.geometry.lines import formula
from abc_calib.nn.biases import LayerBias
from abc_calib.nn.frames import Grid
from abc_calib.nn.transformer.rows import Opened

FAR = 10**6
"""A row far from the first: what a line reads from there, it reads from every later row."""


class KeptRows(NamedTuple):
    """The rows that later rows still read: the first ``pinned`` ones and the last ``recent``.

    Where an output has several rows of tokens: the row that is written, and ``above`` it.
    """

    pinned: int
    recent: int
    above: int | None = None


def kept_rows(biases: list[LayerBias | None], several: bool = False) -> KeptRows | None:
    """What the self-attention of all layers together reads; None where a head may read any row.

    ``several``: the output has several rows of tokens.
    """
    pinned, recent = 0, 0
    if several:
        every = [bias for bias in biases if bias is not None and bias.restricted]
        lines = [line for bias in every for head in bias.heads for line in head]
        bounded = len(every) == len(biases) and all(line.segment >= 0 for line in lines)
        above = max([0, *(line.segment for line in lines)])
        return KeptRows(0, 0, above) if bounded else None
    for bias in biases:
        if bias is None or not bias.restricted or bias.may_mask_rows:
            return None
        for line in {line for head in bias.heads for line in head}:
            named = formula(line, "self")
            if named.slope not in (0, 1):  # against the rows: from some row on the first one
                return None
            for row in (*range(abs(line.offset) + 2), FAR):
                key, _ = named.key((0, row), row)
                if row - key > FAR // 2:  # a fixed row
                    pinned = max(pinned, key + 1)
                elif named.slope:
                    recent = max(recent, row - key)
    return KeptRows(pinned, recent)


class Cache:
    """Keys and values of each layer, of the source and of the rows so far.

    ``kept``: which rows later ones read; None keeps all. ``seen``: rows so far. ``opened``: where
    rows of tokens opened, and ``grid``, where the newest tokens stand in them; None in outputs
    of one row.
    """

    def __init__(self, kept: KeptRows | None = None):
        self.kept = kept
        self.seen = 0
        self.opened: Opened | None = None
        self.grid: Grid | None = None
        self.rows: dict[int, tuple[Tensor, Tensor]] = {}
        self.source: dict[int, tuple[Tensor, Tensor]] = {}

    @property
    def left_out(self) -> tuple[int, int]:
        """From which row on, and how many, rows are not held."""
        if self.kept is None:
            return 0, 0
        if self.kept.above is not None:
            return 0, self._above(self.kept.above)
        return self.kept.pinned, self.seen - min(self.seen, self.kept.pinned + self.kept.recent)

    def _above(self, above: int) -> int:
        """Where the earliest row opened that later ones may still read."""
        if self.opened is None or not self.seen:
            return 0
        number = (self.opened.count - 1 - above).clamp(min=0)[:, None]
        return int(self.opened.opens.gather(1, number).min())

    def extended(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """The rows that were kept and the new ones ``(b, h, t, e)``, held until they settle."""
        if layer in self.rows:
            before = self.rows[layer]
            keys, values = torch.cat([before[0], keys], 2), torch.cat([before[1], values], 2)
        self.rows[layer] = keys, values
        return keys, values

    def settle(self, final: int, drafted: int) -> None:
        """Of the ``drafted`` newest rows the first ``final`` ones are so; keep what is needed."""
        before = self.left_out[1]
        self.seen += final
        if self.opened is not None and self.grid is not None:
            self.opened = self.opened.until(self.grid, final)
        for layer, (keys, values) in self.rows.items():
            held = keys.shape[2] - drafted + final
            index: Any = slice(held)
            if self.kept is not None and self.kept.above is not None:
                first = self.left_out[1] - before
                if final == drafted and not first:
                    continue
                index = slice(first, held)
            elif self.kept is not None and held > self.kept.pinned + self.kept.recent:
                places = torch.arange(held, device=keys.device)
                index = torch.cat([places[: self.kept.pinned], places[held - self.kept.recent :]])
            elif final == drafted:
                continue
            self.rows[layer] = keys[:, :, index], values[:, :, index]

    def reordered(self, samples: Tensor) -> None:
        """Take these samples of the batch, as a beam search does."""
        for held in (self.rows, self.source):
            for layer, (keys, values) in held.items():
                held[layer] = keys[samples], values[samples]
        if self.opened is not None:
            self.opened = Opened(self.opened.opens[samples], self.opened.count[samples])
