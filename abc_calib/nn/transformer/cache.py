"""What is kept between steps: the source, and keys and values of it and of the output so far."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from abc_calib.geometry.coords import AttentionView, Coords


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


class Cache:
    """Keys and values of each block, of the source and of the output so far.

    ``at``: where the tokens of the output stand, None before the first. ``source`` and ``output``:
    keys and values ``(b, h, n, e)`` of each block; those of the output grow in place.
    """

    def __init__(self) -> None:
        self.at: Coords | None = None
        self.output: dict[nn.Module, tuple[Tensor, Tensor]] = {}
        self.source: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    @property
    def size(self) -> int:
        """The number of tokens so far."""
        return 0 if self.at is None else self.at.size

    def view(self, queries: Coords) -> AttentionView:
        """How new tokens see themselves and those before them."""
        self.at = queries if self.at is None else self.at.before(queries)
        return AttentionView("self", queries, self.at, causal=True)

    def extended(self, block: nn.Module, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of all tokens so far, the new ``(b, h, t, e)`` last."""
        first = self.size - keys.shape[2]
        before = self.output.get(block, (None, None))
        grown = _grown(before[0], keys, first), _grown(before[1], values, first)
        self.output[block] = grown
        return grown[0][:, :, : self.size], grown[1][:, :, : self.size]


def _grown(buffer: Tensor | None, new: Tensor, first: int) -> Tensor:
    """A buffer ``(b, h, n, e)`` with ``new`` from token ``first`` on; it doubles when full."""
    end = first + new.shape[2]
    if buffer is None or end > buffer.shape[2]:
        before = new[:, :, :0] if buffer is None else buffer[:, :, :first]
        room = new.new_zeros(*new.shape[:2], 2 * end - first, new.shape[3])
        buffer = torch.cat([before, room], 2)
    buffer[:, :, first:end] = new
    return buffer
