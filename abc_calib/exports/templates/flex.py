"""Functions for ``torch.nn.attention.flex_attention``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from abc_calib.exports.templates.lines import ALL, HEADS, OFF, PAD, exists, keys

# Code


def mods(site: str, layer: int, source: Tensor, read: Tensor) -> tuple[Callable, Callable]:
    """`score_mod` and `mask_mod` of one attention on these sequences."""
    found = keys(site, layer, source.cpu().numpy(), read.cpu().numpy())
    key, value = (torch.from_numpy(one).to(source.device) for one in found)
    length, s, masked = (source != PAD).sum(1), source.shape[1], bool(np.isneginf(OFF))
    off = torch.full((HEADS,), OFF, device=source.device)  # as a number it would be dynamic

    def score_mod(score: Tensor, b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
        total = off[h].to(score.dtype)
        for k in range(key.shape[3]):
            there = key[b, h, q, k] == kv
            total = torch.where(
                there, torch.maximum(total, value[0, h, q, k].to(score.dtype)), total
            )
        return score + torch.where(key[b, h, q, 0] == ALL, 0.0, total)

    def mask_mod(b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
        there = exists(site, q, kv, length[b], s)
        on = key[b, h, q, 0] == ALL
        for k in range(key.shape[3]):
            on = on | (key[b, h, q, k] == kv)
        return there & on if masked else there

    return score_mod, mask_mod


def block_mask(site: str, layer: int, source: Tensor, read: Tensor) -> BlockMask:
    """The blocks of keys that these sequences read: `flex_attention(..., block_mask=)`."""
    s, t = source.shape[1], read.shape[1]
    queries = {"encoder": s, "stream": s + t}.get(site, t)
    count = {"self": t, "stream": s + t}.get(site, s)
    _, mask_mod = mods(site, layer, source, read)
    return create_block_mask(mask_mod, len(source), HEADS, queries, count, device=source.device)
