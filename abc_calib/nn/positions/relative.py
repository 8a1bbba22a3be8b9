"""Distances that meet what queries and keys hold: RoPE, Shaw and Transformer-XL."""

from __future__ import annotations

import math

import torch
from pydantic import Field
from torch import Tensor, nn

from abc_calib.config import Options
from abc_calib.errors import UsageError
from abc_calib.geometry.coords import AttentionView, Coords
from abc_calib.nn.positions.absolute import waves
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


class RpeOptions(Options):
    """``clip``: the distance from which on all keys on one side are alike."""

    clip: int = Field(16, ge=1)


class Rpe(Scheme):
    """A learned key vector a clipped distance (Shaw et al. 2018, equations 2 and 4).

    ``q_i . w_clip(j-i, k) / sqrt(e)`` is added to the scores. The value term of their equation
    3 did not matter to them (section 4.3), and is left out. Each site and head has its own
    vectors, shared by the site's layers (the paper's base model has them for each layer).
    """

    options_type = RpeOptions

    def __init__(self, shape: Shape, options: RpeOptions):
        super().__init__(shape, options)
        self.clip = options.clip
        size = (len(shape.sites), shape.heads, 2 * self.clip + 1, shape.head_width)
        self.table = nn.Parameter(torch.empty(size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """As large as Glorot's initialisation makes one head's matrix."""
        nn.init.normal_(self.table, std=math.sqrt(2 / sum(self.table.shape[-2:])))

    def score_bias(self, queries: Tensor, keys: Tensor, view: AttentionView) -> Tensor:
        table = self.table[self.shape.sites.index(view.site)]
        clipped = view.offsets().clamp(-self.clip, self.clip) + self.clip  # (b|1, 1, i, j)
        scores = torch.einsum("bhie,hre->bhir", queries, table) / math.sqrt(queries.shape[-1])
        return scores.gather(-1, clipped.expand(*scores.shape[:2], -1, -1))


class TransformerXL(Scheme):
    """Terms (b), (c) and (d) of Dai et al. 2019, section 3.3, added to the product (a).

    ``q_i . W R_(i-j) + u . k_j + v . W R_(i-j)``, over the root of ``e``, with sinusoids ``R``
    of the distance, a learned map ``W`` and two learned biases a head. Each site has its own
    ``W``, ``u`` and ``v``, shared by its layers, as ``u`` and ``v`` are in the paper (where each
    layer has its own ``W``). Keys behind a row have negative distances.
    """

    def __init__(self, shape: Shape, options: Options):
        super().__init__(shape, options)
        sites, h, e = len(shape.sites), shape.heads, shape.head_width
        self.distance_map = nn.Parameter(torch.empty(sites, h, e, shape.width))
        self.content_bias = nn.Parameter(torch.empty(sites, h, e))
        self.distance_bias = nn.Parameter(torch.empty(sites, h, e))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The map Xavier-uniform like the model's own, the biases as in the authors' code."""
        bound = math.sqrt(3 / self.shape.width)
        nn.init.uniform_(self.distance_map, -bound, bound)
        nn.init.normal_(self.content_bias, std=0.02)
        nn.init.normal_(self.distance_bias, std=0.02)

    def score_bias(self, queries: Tensor, keys: Tensor, view: AttentionView) -> Tensor:
        site = self.shape.sites.index(view.site)
        distance = -view.offsets()  # (b|1, 1, i, j)
        low, high = int(distance.min()), int(distance.max())
        distances = torch.arange(low, high + 1, device=queries.device)
        sinusoids = waves(distances, self.shape.width).to(queries.dtype)  # (r, d)
        relative = torch.einsum("rd,hed->hre", sinusoids, self.distance_map[site])
        drawn = queries + self.distance_bias[site][:, None]
        scores = torch.einsum("bhie,hre->bhir", drawn, relative)
        index = (distance - low).expand(*scores.shape[:2], -1, -1)
        content = torch.einsum("bhje,he->bhj", keys, self.content_bias[site])
        return (scores.gather(-1, index) + content[:, :, None]) / math.sqrt(queries.shape[-1])
