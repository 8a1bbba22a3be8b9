"""RoPE: queries and keys turned by their positions."""

from __future__ import annotations

import torch
from torch import Tensor

from abc_calib.config import Options
from abc_calib.errors import UsageError
from abc_calib.geometry.coords import Coords
from abc_calib.nn.positions.base import Scheme, Shape


class Rope(Scheme):
    """Rotary positions (Su et al. 2021, equations 15 and 34), in every attention.

    Numbers ``2k`` and ``2k+1`` of a head are turned by ``position * 10000^(-2k/e)``, so that a
    score depends on ``i - j``, in cross-attention too. Nothing is learned; values stay as they
    are. (Llama pairs ``k`` with ``k + e/2`` instead: the same up to the order of columns.)
    """

    def __init__(self, shape: Shape, options: Options):
        super().__init__(shape, options)
        if shape.head_width % 2:
            raise UsageError(
                f"scheme rope turns pairs of numbers, and width {shape.width} with heads "
                f"{shape.heads} makes {shape.head_width} a head: choose a width and heads with "
                "an even quotient"
            )

    def rotate(self, x: Tensor, at: Coords) -> Tensor:
        e = x.shape[-1]
        pair = torch.arange(0, e, 2, device=x.device, dtype=torch.float32)
        angle = at.place[..., None].float() * 10000.0 ** (-pair / e)  # (b, i, e/2)
        return turned(x, angle[:, None])


def turned(x: Tensor, angle: Tensor) -> Tensor:
    """``x (..., e)`` with each pair of neighbouring numbers turned by ``angle (..., e/2)``."""
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(-2)
