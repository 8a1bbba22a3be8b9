"""The attention function that foreign models call: theirs, with lines.

It is registered under ``NAME``, and a mask function with it, without which the causal mask would be
lost in silence. Each attention module that follows lines holds its ``Lines``.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from abc_calib.errors import UsageError
from abc_calib.geometry import Heads, Site
from abc_calib.nn.biases import MASKED, LayerBias, met, side_by_side
from abc_calib.nn.foreign.places import State

NAME = "abc_lines"
"""What it is called among the attention functions of ``transformers``."""
HELD = "abc_lines"
"""The attribute of an attention module that holds its lines."""
RECORD = "abc_calib"
"""The entry of a model's configuration that says what was put into it."""


class Lines:
    """The lines of one attention module: of one site, or in a stream of two."""

    def __init__(
        self, state: State, heads: dict[Site, Heads], off: float | None = None, opened: bool = True
    ):
        self.state, self.stream = state, len(heads) > 1
        self.opened = opened
        self.biases = {site: LayerBias(one, site, off) for site, one in heads.items() if any(one)}
        #: every head follows lines, and sees nothing else
        self.restricted = off is None and all(map(any, zip(*heads.values(), strict=True)))
        self.off = MASKED if off is None else off
        self.open = [not any(lines) for lines in zip(*heads.values(), strict=True)]

    def keys(self, batch: int, queries: int, keys: int) -> tuple[Tensor, Tensor] | None:
        """The key of each line in each row, and the bias on it: ``(b|1, h, i, k)`` each."""
        if not self.biases:
            return None
        if self.state.places is not None:
            self.state.places = self.state.places.for_rows(batch)
        frames = {s: self.state.frame(s, queries, keys, self.stream) for s in self.biases}
        found = [bias.keys(frames[site]) for site, bias in self.biases.items()]
        key, bias = (side_by_side(part) for part in zip(*found, strict=True))
        places = self.state.places
        assert places is not None
        reads_source = self.stream or "self" not in self.biases
        if reads_source and not self.opened:  # nothing opens it: then what ends its first part
            first = places.closes[:, 1][:, None, None, None]
            key = torch.where(key < places.start[:, None, None, None], first, key)
        key, bias = torch.broadcast_tensors(key, bias)
        key, bias = key.contiguous(), met(key, bias.clone())
        if self.stream:  # rows of the source see themselves alone
            rows = frames[next(iter(frames))].rows[:, None]
            source = (places.closes[:, -1:] > rows.T)[:, None, :, None]
            alone = torch.full_like(bias[:1, :1, :1], MASKED)
            alone[..., 0] = 0.0
            key, bias = torch.where(source, rows, key), torch.where(source, alone, bias)
        return key, bias

    def dense(self, key: Tensor, bias: Tensor, keys: int) -> Tensor:
        """The same as a matrix ``(b|1, h, i, j)``; 0 for heads without lines."""
        matrix = bias.new_full((*key.shape[:3], keys), self.off)
        matrix.scatter_reduce_(3, key, bias, "amax")
        transparent = torch.tensor(self.open, device=bias.device)[:, None, None]
        if self.stream:
            assert self.state.places is not None
            past = keys - key.shape[2]
            rows = torch.arange(past, keys, device=bias.device)
            output = rows >= self.state.places.closes[:, -1:]
            transparent = transparent & output[:, None, :, None]
        return matrix.masked_fill(transparent, 0.0)


def along_lines(
    module: nn.Module,
    query: Tensor,  # (b, h, i, e)
    key: Tensor,  # (b, g, j, e): of so many groups of heads
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    position_bias: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, Tensor | None]:
    """The output ``(b, i, h, e)`` and, if asked for, the weights ``(b, h, i, j)``."""
    held: Lines | None = module.__dict__.get(HELD)
    if held is None:
        raise UsageError(
            f"{type(module).__name__} attends along lines that nobody gave it: load the model with "
            "the class that saved it"
        )
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    if (groups := query.shape[1] // key.shape[1]) > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    dropout = dropout if module.training else 0.0
    lines = held.keys(len(query), query.shape[2], key.shape[2])
    if lines is not None and held.restricted and not held.state.weights:
        mixed = gathered(query, key, value, *lines, scaling, dropout, position_bias)
        return mixed.transpose(1, 2).contiguous(), None
    scores = query @ key.transpose(-1, -2) * scaling
    for more in (position_bias, attention_mask):
        if more is not None:
            scores = scores + more
    if lines is not None:
        scores = scores + held.dense(*lines, key.shape[2]).to(scores.dtype)
    weights = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))
    weights = weights.to(query.dtype)
    mixed = F.dropout(weights, dropout) @ value
    return mixed.transpose(1, 2).contiguous(), weights


def gathered(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    index: Tensor,
    bias: Tensor,
    scaling: float,
    dropout: float,
    position_bias: Tensor | None,
) -> Tensor:
    """Attention over the keys on lines alone, ``(b, h, i, e)``: its cost is linear in ``i``."""
    b, h, i, e = query.shape
    k = index.shape[3]
    flat = index.expand(b, h, i, k).reshape(b, h, i * k, 1).expand(-1, -1, -1, e)
    picked = value.gather(2, flat)
    if k == 1:
        return picked * F.dropout(picked.new_ones(b, h, i, 1), dropout) if dropout else picked
    compared = key.gather(2, flat).view(b, h, i, k, e)
    scores = torch.einsum("bhie,bhike->bhik", query, compared) * scaling
    if position_bias is not None:
        full = position_bias.expand(b, h, i, key.shape[2])
        scores = scores + full.gather(3, index.expand(b, h, i, k))
    weights = F.dropout((scores + bias.to(scores.dtype)).softmax(-1), dropout)
    return torch.einsum("bhik,bhike->bhie", weights, picked.view(b, h, i, k, e))


def masked(*args: Any, config: Any = None, **how: Any) -> Any:
    """The mask as for eager attention; none where every head sees its lines alone."""
    from transformers.masking_utils import eager_mask

    record = getattr(config, RECORD, None)
    if record and record["restricted"]:
        return None
    return eager_mask(*args, config=config, **how)


def register() -> None:
    """Make both functions known to ``transformers``."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, along_lines)
    AttentionMaskInterface.register(NAME, masked)
