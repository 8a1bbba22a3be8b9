"""Distances, added to the scores: ALiBi, T5 and FIRE."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from einops import rearrange
from pydantic import Field
from torch import Tensor, nn

from abc_calib.config import Options
from abc_calib.errors import UsageError
from abc_calib.geometry.coords import AttentionView
from abc_calib.geometry.lines import Site
from abc_calib.nn.positions.base import Scheme, Shape


def slopes(heads: int) -> list[float]:
    """The slope of each head, as published (Press et al. 2022, section 3, and their code).

    For a power of two the geometric sequence that starts at its own ratio ``2^(-8/h)``; for
    another number the sequence of the power of two below it, then every other slope of the
    next one.
    """
    power = 2 ** int(math.log2(heads))
    first = [2 ** (-8 * k / power) for k in range(1, power + 1)]
    between = [2 ** (-8 * k / (2 * power)) for k in range(1, 2 * power, 2)]
    return (first + between)[:heads]


class Alibi(Scheme):
    """A penalty a head that is linear in distance (Press et al. 2022, section 3): ``-m |i - j|``.

    The paper has decoder self-attention only, where ``j <= i``. In the encoder the distance is
    symmetric. In cross-attention row ``i`` is as far from key ``j`` as their positions are apart.
    Nothing is learned.
    """

    def score_bias(self, queries: Tensor, keys: Tensor, view: AttentionView) -> Tensor:
        slope = torch.tensor(slopes(self.shape.heads), device=queries.device)
        return -slope[:, None, None] * view.offsets().abs()


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

    buckets: int = Field(32, ge=4, multiple_of=2)
    distance: int = Field(128, ge=1)


class T5(Scheme):
    """A learned bias a head and bucket of distances (Raffel et al. 2020, section 2.1).

    As in T5 shared by all layers of a site; T5 has none in cross-attention, and here it has one
    of its own. In encoder and cross-attention keys before and after a query are distinguished.
    """

    options_type = T5Options

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

    def score_bias(self, queries: Tensor, keys: Tensor, view: AttentionView) -> Tensor:
        table = self.table[self.shape.sites.index(view.site)]
        index = bucket(view.offsets(), view.site != "self", self.buckets, self.distance)
        return rearrange(table[index], "b 1 i j h -> b h i j")


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

    def score_bias(self, queries: Tensor, keys: Tensor, view: AttentionView) -> Tensor:
        """Where positions differ from sample to sample, each pair of them is computed once."""
        rows, row = view.queries.place.unique(return_inverse=True)
        columns, column = view.keys.place.unique(return_inverse=True)
        exact = torch.promote_types(queries.dtype, torch.float32)  # half precision has no 1001
        table = self._table(rows.to(exact), columns.to(exact), view.site).to(queries.dtype)
        index = row[:, :, None] * len(columns) + column[:, None]  # (b|1, i, j)
        return F.embedding(index, table.flatten(0, 1)).permute(0, 3, 1, 2)

    def _table(self, rows: Tensor, columns: Tensor, site: Site) -> Tensor:
        """The bias between positions ``(i,)`` and ``(j,)``: ``(i, j, h)``."""
        at = self.shape.sites.index(site)
        offsets, rate = columns - rows[:, None], self.rate[at].to(rows.dtype)
        longest = rows.maximum((self.stretch[at] * self.threshold).abs())
        ratio = (rate * offsets).abs().log1p() / ((rate * longest).abs().log1p()[:, None] + 1e-6)
        if site != "self":
            ratio = ratio * -offsets.sign()
        weight, bias = self.into[at].to(rows.dtype)
        hidden = (ratio[..., None] * weight + bias).relu()
        return F.linear(hidden, *(x[at].to(rows.dtype) for x in (self.out, self.out_bias)))
