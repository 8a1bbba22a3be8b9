"""FIRE: a learned function of distance, on a scale that grows with the row."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from abc_calib.config import Options
from abc_calib.geometry.coords import View
from abc_calib.geometry.lines import Site
from abc_calib.nn.positions.base import Scheme, Shape


class FireOptions(Options):
    """``hidden``: width of the function. ``threshold``: the row from which on the scale grows."""

    hidden: int = Field(32, ge=1, le=4096)
    threshold: float = Field(512.0, gt=0, le=10**9)


class Fire(Scheme):
    """``f(log(c |i - j| + 1) / log(c max(i, L) + 1))`` (Li et al. 2024, arXiv 2310.04418).

    ``f`` is a network of one hidden layer with a number for each head; ``c`` is learned, from 0.1
    on, and ``L`` too, from the threshold on. Each site has its own, shared by its layers. In
    encoder and cross-attention, which the paper does not have, keys stand on both sides of a row:
    there the ratio has the sign of ``i - j``.
    """

    options_type = FireOptions
    has_score_bias = True

    def __init__(self, shape: Shape, options: FireOptions):
        super().__init__(shape, options)
        self.threshold = options.threshold
        sites, h, hidden = len(shape.sites), shape.heads, options.hidden
        self.rate = nn.Parameter(torch.empty(sites))
        self.stretch = nn.Parameter(torch.empty(sites))
        self.into = nn.Parameter(torch.empty(sites, 2, hidden))  # a weight and a bias each
        self.out = nn.Parameter(torch.empty(sites, h, hidden))
        self.out_bias = nn.Parameter(torch.empty(sites, h))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The linear maps as torch makes them: uniform within the root of what they read."""
        bound = 1 / math.sqrt(self.out.shape[-1])
        nn.init.constant_(self.rate, 0.1)
        nn.init.ones_(self.stretch)
        nn.init.uniform_(self.into, -1, 1)
        nn.init.uniform_(self.out, -bound, bound)
        nn.init.uniform_(self.out_bias, -bound, bound)

    def score_bias(self, queries: Tensor, keys: Tensor, view: View) -> Tensor:
        """Where positions differ from sample to sample, each pair of them is computed once."""
        rows, row = view.queries.place.unique(return_inverse=True)
        columns, column = view.keys.place.unique(return_inverse=True)
        table = self._table(rows.to(queries.dtype), columns.to(queries.dtype), view.site)
        index = row[:, :, None] * len(columns) + column[:, None]  # (b|1, i, j)
        return F.embedding(index, table.flatten(0, 1)).permute(0, 3, 1, 2)

    def _table(self, rows: Tensor, columns: Tensor, site: Site) -> Tensor:
        """The bias between positions ``(i,)`` and ``(j,)``: ``(i, j, h)``."""
        at = self.shape.sites.index(site)
        offsets, rate = columns - rows[:, None], self.rate[at]
        longest = rows.maximum((self.stretch[at] * self.threshold).abs())
        ratio = (rate * offsets).abs().log1p() / ((rate * longest).abs().log1p()[:, None] + 1e-6)
        if site != "self":
            ratio = ratio * -offsets.sign()
        weight, bias = self.into[at]
        hidden = (ratio[..., None] * weight + bias).relu()
        return F.linear(hidden, self.out[at], self.out_bias[at])
