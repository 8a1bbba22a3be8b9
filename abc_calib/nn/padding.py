"""Batches without the rows of their padding, for what is computed row by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor


class Select(torch.autograd.Function):
    """Rows ``index (n,)`` of ``x (m, d)``, a row of zeros where it is ``m``.

    ``back (m,)`` leads from the rows of ``x`` to those selected, so that gradients are selected
    too: adding them up at an index, as torch does, is several times slower on a processor.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(back)
        return _selected(x, index)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (back,) = ctx.saved_tensors
        return _selected(gradients[0], back), None, None


def _selected(x: Tensor, index: Tensor) -> Tensor:
    if len(index) > len(x):  # some are padding
        x = F.pad(x, (0, 0, 0, 1))
    return x.index_select(0, index)


@dataclass(frozen=True)
class Unpadded:
    """The rows of a batch that are there: ``unpad`` takes them out, and ``pad`` puts them back.

    ``kept (n,)``: which of the ``b * i`` rows of ``shape (b, i)`` they are; ``place (b * i,)``:
    where each row stands among them, ``n`` for padding. Without these nothing is left out.
    """

    shape: tuple[int, int] = (0, 0)
    kept: Tensor | None = None
    place: Tensor | None = None

    @classmethod
    def of(cls, mask: Tensor) -> Self:
        """Of the rows where ``mask (b, i)`` is true."""
        there = mask.flatten()
        kept = there.nonzero()[:, 0]
        if len(kept) == len(there):
            return cls()
        place = torch.where(there, there.cumsum(0) - 1, len(kept))
        return cls((mask.shape[0], mask.shape[1]), kept, place)

    def unpad(self, x: Tensor) -> Tensor:
        """``x (b, i, d)`` as ``(n, d)``; ``RuntimeError`` for another shape."""
        if self.kept is None:
            return x
        rows = x.reshape(self.shape[0] * self.shape[1], x.shape[-1])
        return Select.apply(rows, self.kept, self.place)

    def pad(self, x: Tensor) -> Tensor:
        """``x (n, d)`` as ``(b, i, d)``, with zeros for padding."""
        if self.kept is None:
            return x
        return Select.apply(x, self.place, self.kept).view(*self.shape, -1)


EVERY = Unpadded()
"""Nothing is left out."""
