"""Position schemes: how a model knows where a token stands.

A scheme may act at three places, and by default acts at none of them (NoPE): it may change the
embeddings, change queries and keys, or add to the attention scores. Hooks get the positions of
queries *and* of keys, since cross-attention is not square. To add a scheme, write a subclass
here or in a file of its own and name it in ``SCHEMES``.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from abc_calib.errors import UsageError


class Scheme(nn.Module):
    """No positions at all (NoPE): the base of every scheme."""

    #: whether an attention score may depend on an absolute position, without bound
    absolute = False
    #: whether ``score_bias`` returns anything
    has_score_bias = False

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.width, self.heads = width, heads

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Change the embeddings ``x (b, i, d)`` at ``positions (i,)``."""
        return x

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Change the queries or keys ``x (b, h, i, e)`` at ``positions (i,)``."""
        return x

    def score_bias(self, queries: Tensor, rows: Tensor, keys: Tensor) -> Tensor | None:
        """Added to the scores: ``(b|1, h, i, j)``, from queries ``(b, h, i, e)`` and positions."""
        return None


class Sinusoidal(Scheme):
    """Fixed sines and cosines added to the embeddings (Vaswani et al. 2017, section 3.5)."""

    absolute = True

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        half = torch.arange(0, self.width, 2, device=x.device, dtype=torch.float32)
        rate = torch.exp(half * (-math.log(10000.0) / self.width))
        angle = positions[:, None].float() * rate
        waves = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)[:, : self.width]
        return x + waves.to(x.dtype)


SCHEMES: dict[str, type[Scheme]] = {
    "sinusoidal": Sinusoidal,
    "none": Scheme,
}


def check_scheme(name: str) -> None:
    """Raise ``UsageError`` unless there is a scheme of that name."""
    if name not in SCHEMES:
        raise UsageError(f"unknown scheme {name!r}: choose one of {', '.join(SCHEMES)}")


def build_scheme(name: str, width: int, heads: int) -> Scheme:
    """The scheme of that name for a model width and a number of heads."""
    check_scheme(name)
    return SCHEMES[name](width, heads)
