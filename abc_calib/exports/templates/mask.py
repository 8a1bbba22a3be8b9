"""A dense mask for ``torch.nn.functional.scaled_dot_product_attention``."""

from __future__ import annotations

import torch
from torch import Tensor

from abc_calib.exports.templates.lines import bias

# Code


def attn_mask(site: str, layer: int, source: Tensor, read: Tensor) -> Tensor:
    """The `attn_mask` of `scaled_dot_product_attention`: `(b, h, i, j)`, -inf where masked.

    A query that may look nowhere mixes nothing: torch gives 0 there.
    """
    made = bias(site, layer, source.cpu().numpy(), read.cpu().numpy())
    return torch.from_numpy(made).to(source.device)
