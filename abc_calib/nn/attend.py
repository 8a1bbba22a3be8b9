"""Attention as our layers and models of ``transformers`` compute it: over all keys, or a few.

Everything that restricts or shifts attention (padding, causality, lines, the schemes' own terms) is
added to the scores before softmax, as a matrix, or as the list of the keys that each query looks
at. Shapes: ``b`` batch, ``h`` head, ``i`` query, ``j`` key, ``k`` lines a head, ``e`` head width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

MASKED = -math.inf
"""Added where a query may not look. One that may look nowhere mixes nothing: see ``opened``."""
LANES = 16
"""Single-precision numbers that a processor takes at once; torch's softmax of fewer is 13 times
slower."""
SHORT, MANY = 64, 4096
"""Up to these keys and from these scores on, separate products are faster on a CPU."""


@dataclass(frozen=True)
class Gathered:
    """The keys that each query looks at: ``index (b|1, h, i, k)`` and the bias on them, alike."""

    index: Tensor
    bias: Tensor


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    bias: Tensor | Gathered,
    dropout: float = 0.0,
    scaling: float | None = None,
) -> Tensor:
    """Mixed values ``(b, h, i, e)`` of ``queries (b, h, i, e)``, keys and values ``(b, h, j, e)``.

    ``bias (b|1, h|1, i|1, j)`` is added to the scores, which are multiplied by ``scaling``, by
    default one over the root of ``e``.
    """
    scaling = 1 / math.sqrt(queries.shape[-1]) if scaling is None else scaling
    if isinstance(bias, Gathered):
        return gathered(queries, keys, values, bias, dropout, scaling)
    b, h, i, _ = queries.shape
    j = keys.shape[2]
    if queries.device.type != "cpu" or j > SHORT or b * h * i * j < MANY:
        return F.scaled_dot_product_attention(queries, keys, values, bias, dropout, scale=scaling)
    if (missing := LANES - j) > 0:
        keys, values = (F.pad(tensor, (0, 0, 0, missing)) for tensor in (keys, values))
        bias = F.pad(bias, (0, missing), value=-math.inf)
    every = bias.expand(b, h, i, -1) if bias.shape[:2].numel() > 1 else bias
    heads = [rearrange(tensor, "b h i e -> (b h) i e") for tensor in (every, queries, keys, values)]
    scores = torch.baddbmm(heads[0], heads[1], heads[2].mT, alpha=scaling)
    weights = F.dropout(scores.softmax(-1), dropout)
    return rearrange(weights @ heads[3], "(b h) i e -> b h i e", h=h)


def scored(queries: Tensor, keys: Tensor, bias: Tensor, scaling: float | None = None) -> Tensor:
    """The scores ``(b, h, i, j)`` before softmax, all arguments as of ``attend``."""
    scaling = 1 / math.sqrt(queries.shape[-1]) if scaling is None else scaling
    return queries @ keys.transpose(-1, -2) * scaling + bias.to(queries.dtype)


def weights_of(scores: Tensor) -> Tensor:
    """The weights of ``scores (b, h, i, j)``, by a softmax in float32 at least."""
    precise = torch.promote_types(scores.dtype, torch.float32)
    return scores.softmax(-1, dtype=precise).to(scores.dtype)


def gathered(
    queries: Tensor, keys: Tensor, values: Tensor, bias: Gathered, dropout: float, scaling: float
) -> Tensor:
    """Attention over the keys of ``bias`` alone: cost linear in ``i``."""
    index, b = bias.index, keys.shape[0]
    weights = torch.ones_like(bias.bias, dtype=queries.dtype)
    if index.shape[-1] > 1:
        scores = torch.einsum("bhie,bhike->bhik", queries, picked(keys, index))
        weights = (scores * scaling + opened(bias.bias)[0].to(queries.dtype)).softmax(-1)
    weights = F.dropout(weights, dropout).masked_fill(bias.bias == MASKED, 0)
    weights = weights.expand(b, -1, -1, -1)
    return torch.einsum("bhik,bhike->bhie", weights, picked(values, index))


def opened(bias: Tensor, mask: Tensor | float = 0.0) -> tuple[Tensor, Tensor]:
    """A bias ``(..., k)`` with the ``mask`` alone where it masks all keys, and where that is.

    Softmax of nothing would be no number, and spread; what those ``(..., 1)`` queries mix has to be
    left out instead.
    """
    nowhere = (bias == MASKED).all(-1, keepdim=True)
    return torch.where(nowhere, mask, bias), nowhere


def picked(x: Tensor, index: Tensor) -> Tensor:
    """``x (b, h, j, e)`` at ``index (b|1, h, i, k)``: ``(b, h, i, k, e)``."""
    b, h, j, e = x.shape
    if index.shape[2] == 1:
        return _copied(x, index)
    start = torch.arange(h, device=index.device)[:, None, None] * j
    return _selected(x.flatten(1, 2), index + start).view(b, *index.shape[1:], e)


def one_key(values: Tensor, key: Tensor) -> Tensor:
    """``values (b, h, j, e)`` where every head has one key, ``key (b|1, h, i)``: ``(b, i, h * e)``.

    Softmax over one key is 1, so there is nothing to compare. Values that were never turned from
    the shape ``(b, j, h, e)`` are not copied.
    """
    b, h, _, e = values.shape
    if key.shape[2] == 1:
        return _copied(values, key[..., None]).reshape(b, 1, h * e)
    index = key.transpose(1, 2) * h + torch.arange(h, device=key.device)
    return _selected(values.transpose(1, 2).flatten(1, 2), index).view(b, key.shape[2], h * e)


def _selected(x: Tensor, index: Tensor) -> Tensor:
    """``x (b, n, e)`` at ``index (b|1, ...)``, flat."""
    groups = len(x)
    if len(index) > 1:
        groups, sample = 1, torch.arange(len(x), device=x.device) * x.shape[1]
        index = index + sample.view(-1, *[1] * (index.dim() - 1))
    return x.reshape(groups, -1, x.shape[2]).index_select(1, index.flatten())


def _copied(x: Tensor, index: Tensor) -> Tensor:
    """``picked`` for one query, as in decoding: without a copy of ``x``, part of a buffer."""
    b, h = (torch.arange(n, device=index.device) for n in x.shape[:2])
    return x[b[:, None, None, None], h[:, None, None], index]
