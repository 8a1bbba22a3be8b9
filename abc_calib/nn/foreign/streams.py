"""From our sources, ``$ a b =`` and padding, to the ids that a foreign model reads, and back."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Sources:
    """How sources are written for a model: between a ``prefix`` and a ``suffix`` of ids.

    ``closed``: our sources have the first of the suffix already. ``stream``: the output follows, so
    that padding is on the left, and no suffix stands between.
    """

    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    closed: bool
    stream: bool

    def ids(self, source: Tensor, pad: int) -> tuple[Tensor, Tensor]:
        """Ids ``(b, s)`` and which of them are no padding."""
        content = source[:, 1:]
        lengths = content.ne(pad).sum(1)
        behind = () if self.stream else self.suffix[1:] if self.closed else self.suffix
        ids = torch.cat([self._repeated(self.prefix, source), content], 1)
        lengths = lengths + len(self.prefix)
        if behind:
            ids = F.pad(ids, (0, len(behind)), value=pad)
            at = lengths[:, None] + torch.arange(len(behind), device=ids.device)
            ids = ids.scatter(1, at, self._repeated(behind, source))
            lengths = lengths + len(behind)
        width = int(lengths.max()) if len(ids) else ids.shape[1]
        places = torch.arange(width, device=ids.device)
        if not self.stream:
            return ids[:, :width], places < lengths[:, None]
        left = (width - lengths)[:, None]
        there = places >= left
        moved = ids.gather(1, (places - left).clamp(min=0))
        return moved.masked_fill(~there, pad), there

    @staticmethod
    def _repeated(ids: tuple[int, ...], like: Tensor) -> Tensor:
        return like.new_tensor(ids).expand(len(like), -1)

    def places(self, there: Tensor, width: int) -> Tensor:
        """Where the tokens of our sources stand among ``width`` ids, ``(b, s)``; -1 for none.

        ``there (b, s)``: which are no padding. What closes the source of a stream is the output's.
        """
        place, counts = torch.arange(there.shape[1], device=there.device), there.sum(1)[:, None]
        at = (place + len(self.prefix) - 1).expand_as(there)
        if self.stream:
            at = at + width - (counts + len(self.prefix) - 1)
            there = there & (place < counts - 1)
        opened = bool(self.prefix) | (place > 0)
        return at.masked_fill(~(there & opened), -1)


def picked(x: Tensor, at: Tensor, dim: int) -> Tensor:
    """``x (b, h, i, j)`` at some places ``(b, s)`` of a dimension; zeros at -1."""
    at = at[:, None, None] if dim == 3 else at[:, None, :, None]
    shape = [at.shape[dim] if k == dim else size for k, size in enumerate(x.shape)]
    return x.gather(dim, at.clamp(min=0).expand(shape)).masked_fill(at < 0, 0)
