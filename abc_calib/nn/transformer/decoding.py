"""Greedy decoding with a cache, token by token."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from abc_calib.nn.transformer.cache import Cache, Encoded


def token_by_token(model: Any, encoded: Encoded, steps: int, cache: Cache) -> Tensor:
    """The greedy output ``(b, t)``, padding behind its end."""
    device = encoded.at.position.device
    tokens = torch.full((len(encoded.memory[0]),), model.sos, device=device)
    ids = torch.full((len(tokens), steps), model.pad, device=device)
    ended = torch.zeros_like(tokens, dtype=torch.bool)
    for step in range(steps):
        logits = model.run(encoded, tokens[:, None], cache).logits[:, -1]
        tokens = logits.argmax(-1).masked_fill(ended, model.pad)
        ids[:, step] = tokens
        ended |= tokens.eq(model.eos)
        if bool(ended.all()):
            break
    return ids
