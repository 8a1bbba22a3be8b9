"""T5's relative positions: a learned number a bucket of distances."""

from __future__ import annotations

import math

import torch
from einops import rearrange
from pydantic import Field, field_validator
from torch import Tensor, nn

from abc_calib.config import Options
from abc_calib.errors import UsageError
from abc_calib.geometry.coords import View
from abc_calib.nn.positions.base import Scheme, Shape


def bucket(offsets: Tensor, both_sides: bool, buckets: int, distance: int) -> Tensor:
    """The bucket of each offset ``j - i``, of any shape.

    Near distances have one each, farther ones share buckets that widen up to ``distance``;
    beyond it lies the last one. With ``both_sides`` keys before and behind a row have half of
    the buckets each; else keys behind it are in bucket 0.
    """
    side = torch.zeros_like(offsets)
    if both_sides:
        buckets //= 2
        side = (offsets > 0).long() * buckets
        away = offsets.abs()
    else:
        away = (-offsets).clamp(min=0)
    near = buckets // 2
    wide = (away.clamp(min=near).float() / near).log() / math.log(distance / near)
    far = near + (wide * (buckets - near)).long()
    return side + torch.where(away < near, away, far.clamp(max=buckets - 1))


class T5Options(Options):
    """``buckets`` in all, and the ``distance`` from which on keys share the last one."""

    buckets: int = Field(32, ge=4)
    distance: int = Field(128, ge=1)

    @field_validator("buckets")
    @classmethod
    def _half_on_each_side(cls, buckets: int) -> int:
        if buckets % 2:
            raise ValueError("give a multiple of 2, 4 or more")
        return buckets


class T5(Scheme):
    """A learned bias a head and bucket of distances (Raffel et al. 2020, section 2.1).

    As in T5 shared by all layers of a site; T5 has none in cross-attention, and here it has one
    of its own. Keys on both sides are told apart in encoder and cross-attention.
    """

    options_type = T5Options
    has_score_bias = True

    def __init__(self, shape: Shape, options: T5Options):
        super().__init__(shape, options)
        self.buckets, self.distance = options.buckets, options.distance
        if self.distance <= self.buckets // 2:
            raise UsageError(
                f"scheme t5: distance = {self.distance} must be more than half of buckets = "
                f"{self.buckets}, which have one near distance each"
            )
        self.table = nn.Parameter(torch.empty(len(shape.sites), self.buckets, shape.heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.table, std=self.shape.width**-0.5)

    def score_bias(self, queries: Tensor, keys: Tensor, view: View) -> Tensor:
        table = self.table[self.shape.sites.index(view.site)]
        index = bucket(view.offsets(), view.site != "self", self.buckets, self.distance)
        return rearrange(table[index], "b 1 i j h -> b h i j")
