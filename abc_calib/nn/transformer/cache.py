"""What is kept between steps: the source, and keys and values of it and of the output so far.

Where every head follows lines, only of the tokens that lines can reach.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from abc_calib.geometry.coords import Coords, View
from abc_calib.nn.lines import Lines


@dataclass(frozen=True)
class Encoded:
    """A source that was read.

    ``memory``: what each block reads of it, ``(b, s, d)``; of a stream, its states before the
    block. ``at``: where its tokens stand. ``phase``: from where cyclic positions count. ``drawn``:
    what a scheme drew for the output. ``numbers (b, n)``: of a stream, what a scheme calls its
    positions. ``attention``: of each layer, if asked for.
    """

    memory: tuple[Tensor, ...]
    at: Coords
    phase: int = 0
    drawn: Tensor | None = None
    numbers: Tensor | None = None
    attention: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class Outputs:
    """Logits ``(b, t, v)`` and, if asked for, the weights ``(b, h, i, j)`` of each layer."""

    logits: Tensor
    own: tuple[Tensor, ...] = ()
    crossed: tuple[Tensor, ...] = ()


class KeptRows(NamedTuple):
    """Tokens of an output that later ones still read: the first ``pinned``, the last ``recent``.

    Where an output has several rows: those of the row that is written, and of ``above`` it.
    """

    pinned: int
    recent: int
    above: int | None = None


def kept_rows(every: list[Lines | None], several: bool = False) -> KeptRows | None:
    """What the self-attention of all layers together reads; None where a head may read any token.

    ``several``: the output has several rows.
    """
    pinned, recent, above = 0, 0, 0
    for lines in every:
        if lines is None or not lines.restricted or lines.may_mask_rows:
            return None
        for line in {line for head in lines.heads["self"] for line in head}:
            above = max(above, line.segment)
            if several:
                continue
            if line.segment == 0 and line.direction == "diag":
                recent = max(recent, -line.offset)
            elif line.segment == 0 and line.direction == "anti":  # against the rows
                return None
            else:
                pinned = max(pinned, 1, line.offset + 1 if line.segment == 0 else 0)
    return KeptRows(0, 0, above) if several else KeptRows(pinned, recent)


class Cache:
    """Keys and values of each block, of the source and of the output so far.

    ``kept``: which tokens later ones read; None keeps all. ``held``: where the tokens stand whose
    keys and values are there, ``newest`` the last of them that were written.
    """

    def __init__(self, kept: KeptRows | None = None):
        self.kept = kept
        self.held: Coords | None = None
        self.newest: Coords | None = None
        self.first = 0  # the first token that is held behind the pinned ones
        self.output: dict[nn.Module, tuple[Tensor, Tensor]] = {}
        self.source: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    @property
    def seen(self) -> int:
        """Tokens so far."""
        return 0 if self.newest is None else int(self.newest.position[0, -1]) + 1

    def view(self, queries: Coords) -> View:
        """How new tokens see themselves and those that are held."""
        self.held = queries if self.held is None else self.held.before(queries)
        pinned = self.kept.pinned if self.kept else 0
        evicted = pinned, max(0, self.first - pinned)
        return View("self", queries, self.held, causal=True, evicted=evicted)

    def extended(self, block: nn.Module, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """What was kept and the new ``(b, h, t, e)``."""
        if block in self.output:
            before = self.output[block]
            keys, values = torch.cat([before[0], keys], 2), torch.cat([before[1], values], 2)
        self.output[block] = keys, values
        return keys, values

    def commit(self) -> None:
        """Keep what later tokens read, when a layer each has been through."""
        assert self.held is not None
        self.newest = self.held.only(slice(-1, None))
        if self.kept is None:
            return
        self.first, position = self._first(self.kept, self.newest), self.held.position[0]
        index = ((position < self.kept.pinned) | (position >= self.first)).nonzero()[:, 0]
        if len(index) == len(position):
            return
        self.held = self.held.only(index)
        for block, (keys, values) in self.output.items():
            self.output[block] = keys[:, :, index], values[:, :, index]

    @staticmethod
    def _first(kept: KeptRows, newest: Coords) -> int:
        """The first token that later ones may read, but for the pinned ones."""
        if kept.above is None:
            return int(newest.position[0, -1]) + 1 - kept.recent
        return int(newest.opened(kept.above)[:, -1, -1].min())


def token_by_token(model: Any, encoded: Encoded, steps: int, cache: Cache) -> Tensor:
    """The greedy output ``(b, t)`` of a Transformer, padding behind its end."""
    device = encoded.at.position.device
    tokens = torch.full((len(encoded.memory[0]),), model.sos, device=device)
    ids = torch.full((len(tokens), steps), model.pad, device=device)
    ended = torch.zeros_like(tokens, dtype=torch.bool)
    for step in range(steps):
        logits = model.run(encoded, tokens[:, None], cache).logits[:, -1]
        tokens = logits.argmax(-1).masked_fill(ended, model.pad)
        ids[:, step] = tokens
        ended |= tokens.eq(model.eos)
        if bool(ended.all()):
            break
    return ids
