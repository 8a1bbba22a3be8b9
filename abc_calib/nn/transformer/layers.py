"""The layers of the Transformer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from abc_calib.config import DecoderOptions, TransformerOptions
from abc_calib.geometry import Site
from abc_calib.nn.biases import LayerBias
from abc_calib.nn.frames import Frame
from abc_calib.nn.positions import Scheme
from abc_calib.nn.transformer.attention import Attention, is_single
from abc_calib.nn.transformer.cache import Cache
from abc_calib.nn.transformer.stream import AnyBias, Stream, StreamBias


class FeedForward(nn.Sequential):
    """Two linear maps with ReLU between them."""

    def __init__(self, width: int, hidden: int, dropout: float):
        super().__init__(
            nn.Linear(width, hidden),
            nn.ReLU(inplace=True),  # long passes are as fast as memory
            nn.Dropout(dropout),
            nn.Linear(hidden, width),
        )


class EncoderLayer(nn.Module):
    """Self-attention over the source, then the feed-forward part."""

    def __init__(self, options: TransformerOptions | DecoderOptions):
        super().__init__()
        self.attention = Attention(options.width, options.heads, options.dropout)
        self.feedforward = FeedForward(options.width, options.feedforward, options.dropout)
        self.norms = nn.ModuleList(nn.LayerNorm(options.width) for _ in range(2))
        self.dropout = nn.Dropout(options.dropout)

    def forward(
        self, x: Tensor, frame: Frame, scheme: Scheme, bias: LayerBias | None, **how: Any
    ) -> tuple[Tensor, Tensor | None]:
        y = self.norms[0](x)
        keys, values = self.attention.project(
            y, frame.row_positions, scheme, is_single(bias, scheme, **how), frame.kept
        )
        y, weights = self.attention(y, keys, values, frame, scheme, bias, **how)
        x = x + self.dropout(y)
        return x + self.dropout(self.feedforward(self.norms[1](x))), weights


class StreamLayer(EncoderLayer):
    """Attention over the source and the output so far, then the feed-forward part.

    Rows of the source go through it as through an encoder layer.
    """

    def __init__(self, options: TransformerOptions | DecoderOptions, index: int):
        super().__init__(options)
        self.index = index

    @property
    def attentions(self) -> tuple[Attention]:
        """In their order, each behind the norm of its number."""
        return (self.attention,)

    def write(
        self,
        x: Tensor,
        memory: Tensor,
        frame: Stream,
        scheme: Scheme,
        bias: AnyBias | None,
        cache: Cache | None,
        **how: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """Rows of the output, of which ``memory (b, s, d)`` is the source at this layer."""
        crossed = frame.parts[0]
        y = self.norms[0](x)
        single = is_single(bias, scheme, **how)
        if cache is not None and self.index in cache.source:
            source = cache.source[self.index]
        else:
            places = torch.arange(crossed.keys, device=memory.device)
            given = self.norms[0](memory), places, scheme, single
            source = self.attention.project(*given, crossed.kept_keys)
            if cache is not None:
                cache.source[self.index] = source
        output = self.attention.project(y, frame.row_positions, scheme, single, frame.kept)
        if cache is not None:
            output = cache.extended(self.index, *output)
        if single:
            assert isinstance(bias, StreamBias)
            y, seen = self.attention.along((source[1], output[1]), frame, bias), None
        else:
            keys, values = (torch.cat(both, 2) for both in zip(source, output, strict=True))
            y, seen = self.attention(y, keys, values, frame, scheme, bias, **how)
        x = x + self.dropout(y)
        return x + self.dropout(self.feedforward(self.norms[1](x))), seen


class DecoderLayer(nn.Module):
    """Self-attention over the output so far, cross-attention to the source, feed-forward."""

    def __init__(self, options: TransformerOptions, index: int):
        super().__init__()
        self.index = index
        self.self_attention = Attention(options.width, options.heads, options.dropout)
        self.cross_attention = Attention(options.width, options.heads, options.dropout)
        self.feedforward = FeedForward(options.width, options.feedforward, options.dropout)
        self.norms = nn.ModuleList(nn.LayerNorm(options.width) for _ in range(3))
        self.dropout = nn.Dropout(options.dropout)

    @property
    def attentions(self) -> tuple[Attention, Attention]:
        """In their order, each behind the norm of its number."""
        return self.self_attention, self.cross_attention

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        frames: dict[Site, Frame],
        schemes: dict[Site, Scheme],
        biases: dict[Site, LayerBias | None],
        cache: Cache | None,
        **how: Any,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        frame, scheme = frames["self"], schemes["self"]
        y = self.norms[0](x)
        single = is_single(biases["self"], scheme, **how)
        positions = frame.row_positions
        keys, values = self.self_attention.project(y, positions, scheme, single, frame.kept)
        if cache is not None:
            keys, values = cache.extended(self.index, keys, values)
        y, own = self.self_attention(y, keys, values, frame, scheme, biases["self"], **how)
        x = x + self.dropout(y)

        frame, scheme = frames["cross"], schemes["cross"]
        if cache is not None and self.index in cache.source:
            keys, values = cache.source[self.index]
        else:
            single = is_single(biases["cross"], scheme, **how)
            positions = frame.key_positions
            given = memory, positions, scheme, single
            keys, values = self.cross_attention.project(*given, frame.kept_keys)
            if cache is not None:
                cache.source[self.index] = keys, values
        y, crossed = self.cross_attention(
            self.norms[1](x), keys, values, frame, scheme, biases["cross"], **how
        )
        x = x + self.dropout(y)
        return x + self.dropout(self.feedforward(self.norms[2](x))), own, crossed
