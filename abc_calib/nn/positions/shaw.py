"""Relative positions as learned vectors, clipped."""

from __future__ import annotations

import math

import torch
from pydantic import Field
from torch import Tensor, nn

from abc_calib.config import Options
from abc_calib.geometry.coords import View
from abc_calib.nn.positions.base import Scheme, Shape


class RpeOptions(Options):
    """``clip``: the distance from which on all keys on one side are alike.

    ``values``: with the value term.
    """

    clip: int = Field(16, ge=1)
    values: bool = False


class Rpe(Scheme):
    """A learned key vector a clipped distance (Shaw et al. 2018, equations 2 and 4).

    ``q_i . w_clip(j-i, k) / sqrt(e)`` is added to the scores. The value term of their equation
    3, the weighted sum of a second table's vectors added to the mixed values, did not matter to
    them (section 4.3): ``values=true`` adds it. Each site and head has its own vectors, shared
    by the site's layers (the paper's base model has them for each layer).
    """

    options_type = RpeOptions
    has_score_bias = True

    def __init__(self, shape: Shape, options: RpeOptions):
        super().__init__(shape, options)
        self.clip = options.clip
        size = (len(shape.sites), shape.heads, 2 * self.clip + 1, shape.head_width)
        self.table = nn.Parameter(torch.empty(size))
        self.has_value_term = options.values
        if options.values:
            self.value_table = nn.Parameter(torch.empty(size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """As large as Glorot's initialisation makes one head's matrix."""
        for table in self.parameters():
            nn.init.normal_(table, std=math.sqrt(2 / sum(table.shape[-2:])))

    def score_bias(self, queries: Tensor, keys: Tensor, view: View) -> Tensor:
        table = self.table[self.shape.sites.index(view.site)]
        clipped = self.clipped(view)
        scores = torch.einsum("bhie,hre->bhir", queries, table) / math.sqrt(queries.shape[-1])
        return scores.gather(-1, clipped.expand(*scores.shape[:2], -1, -1))

    def value_term(self, weights: Tensor, view: View) -> Tensor:
        table = self.value_table[self.shape.sites.index(view.site)]
        clipped = self.clipped(view).expand(weights.shape)
        sums = weights.new_zeros(*weights.shape[:3], 2 * self.clip + 1)
        return torch.einsum("bhir,hre->bhie", sums.scatter_add(-1, clipped, weights), table)

    def clipped(self, view: View) -> Tensor:
        """The row of the table for each row and key: ``(b|1, 1, i, j)``."""
        return view.offsets().clamp(-self.clip, self.clip) + self.clip
