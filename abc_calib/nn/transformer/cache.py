"""The decoder's cache where every head follows lines: only the rows that lines can reach."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import EncoderDecoderCache
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from abc_calib.nn.biases import LayerBias


class Window(NamedTuple):
    """The rows that later rows still read: the first ``pinned`` ones and the last ``recent``."""

    pinned: int
    recent: int


def window(biases: list[LayerBias | None]) -> Window | None:
    """What the self-attention of all layers together reads; None where a head may read any row."""
    pinned, recent = 0, 0
    for bias in biases:
        if bias is None or not bias.restricted or bias.may_close_rows:
            return None
        for line in (line for head in bias.heads for line in head):
            if line.direction == "vert":
                pinned = max(pinned, line.offset + 1)
            elif line.direction == "diag":
                pinned, recent = max(pinned, 1), max(recent, -line.offset)
            else:
                return None
    return Window(pinned, recent)


class WindowLayer(DynamicLayer):
    """Keys and values of one layer, ``(b, h, kept, e)``, with the rows between left out."""

    is_croppable = False

    def __init__(self, kept: Window):
        super().__init__()
        self.kept = kept
        self.seen = 0

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Add rows; gives the rows that were kept and the new ones, and keeps what is needed."""
        keys, values = super().update(key_states, value_states)
        self.seen += key_states.shape[-2]
        pinned, recent = self.kept
        held = keys.shape[-2]
        if held > pinned + recent:
            index = torch.arange(held, device=keys.device)
            index = torch.cat([index[:pinned], index[held - recent :]])
            self.keys, self.values = keys[..., index, :], values[..., index, :]
        return keys, values

    def get_seq_length(self) -> int:
        return self.seen

    def reset(self) -> None:
        super().reset()
        self.seen = 0


class SourceLayer(DynamicLayer):
    """Keys and values of a source as they come, not copied: they do not grow."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        self.lazy_initialization(key_states, value_states)
        self.keys, self.values = key_states, value_states
        return key_states, value_states


def use_window(cache: EncoderDecoderCache, kept: Window, layers: int) -> None:
    """Make a cache that holds nothing yet one that keeps ``kept`` rows of the output."""
    if isinstance(cache.self_attention_cache, DynamicCache) and cache.get_seq_length() == 0:
        windowed: Any = Cache(layers=[WindowLayer(kept) for _ in range(layers)])
        source: Any = Cache(layers=[SourceLayer() for _ in range(layers)])
        cache.self_attention_cache, cache.cross_attention_cache = windowed, source


def left_out(cache: EncoderDecoderCache | None) -> tuple[int, int]:
    """From which row on, and how many, rows are left out of the cache."""
    if cache is None or isinstance(cache.self_attention_cache, DynamicCache):
        return 0, 0
    layers = cache.self_attention_cache.layers
    if not layers or not isinstance(layers[0], WindowLayer):
        return 0, 0
    first = layers[0]
    held = min(first.seen, first.kept.pinned + first.kept.recent)
    return first.kept.pinned, first.seen - held
