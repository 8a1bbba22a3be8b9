"""Transformer-XL's relative positions."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from abc_calib.config import Options
from abc_calib.geometry.coords import View
from abc_calib.nn.positions.absolute import waves
from abc_calib.nn.positions.base import Scheme, Shape


class TransformerXL(Scheme):
    """Terms (b), (c) and (d) of Dai et al. 2019, section 3.3, added to the product (a).

    ``q_i . W R_(i-j) + u . k_j + v . W R_(i-j)``, over the root of ``e``, with sinusoids ``R``
    of the distance, a learned map ``W`` and two learned biases a head. Each site has its own
    ``W``, ``u`` and ``v``, shared by its layers, as ``u`` and ``v`` are in the paper (where each
    layer has its own ``W``). Keys behind a row have negative distances.
    """

    has_score_bias = True

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

    def score_bias(self, queries: Tensor, keys: Tensor, view: View) -> Tensor:
        site = self.shape.sites.index(view.site)
        distance = -view.offsets()  # (b|1, 1, i, j)
        low, high = int(distance.min()), int(distance.max())
        each = torch.arange(low, high + 1, device=queries.device)
        sinusoids = waves(each, self.shape.width).to(queries.dtype)  # (r, d)
        relative = torch.einsum("rd,hed->hre", sinusoids, self.distance_map[site])
        drawn = queries + self.distance_bias[site][:, None]
        scores = torch.einsum("bhie,hre->bhir", drawn, relative)
        index = (distance - low).expand(*scores.shape[:2], -1, -1)
        content = torch.einsum("bhje,he->bhj", keys, self.content_bias[site])
        return (scores.gather(-1, index) + content[:, :, None]) / math.sqrt(queries.shape[-1])
