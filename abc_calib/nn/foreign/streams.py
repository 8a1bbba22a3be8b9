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

    def of_source(self, weights: Tensor, there: Tensor) -> Tensor:
        """Of weights over a stream, ``(b, h, t, j)``, those over our source, ``(b, h, t, s)``.

        ``there (b, s)``: what of the source is no padding.
        """
        last = weights.shape[3] - weights.shape[2]  # of the source, which the first row reads
        s = there.shape[1]
        places = torch.arange(s, device=there.device)
        at = last + 1 - there.sum(1, keepdim=True) + places
        first = 0 if self.prefix else 1  # without a prefix nothing stands where our source opens
        closing = places == there.sum(1, keepdim=True) - 1  # the output's first row, by then
        inside = there & (places >= first) & ~closing
        index = at.clamp(0, weights.shape[3] - 1)[:, None, None].expand(*weights.shape[:3], s)
        return weights.gather(3, index) * inside[:, None, None]


def cut(x: Tensor, first: int, count: int, dim: int) -> Tensor:
    """``count`` entries of a dimension from ``first`` on; zeros where there are none."""
    before, after = max(0, -first), max(0, first + count - x.shape[dim])
    if before or after:
        sides = [0, 0] * (x.dim() - 1 - dim) + [before, after]
        x = F.pad(x, sides)
    return x.narrow(dim, first + before, count)
