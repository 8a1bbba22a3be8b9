"""A decoder-only Transformer: source and output are one stream, which every head looks at.

A row of the source sees those before it, a row of the output all of the source and the output so
far, each head with one softmax. Lines keep the names that they have with an encoder: those of
``cross`` lead to the source and those of ``self`` to the output, and a head may have either.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from abc_calib.config import DecoderOptions
from abc_calib.data.vocabulary import TokenIds
from abc_calib.errors import UsageError
from abc_calib.geometry import ALONE, LineBias, Site
from abc_calib.nn.frames import Frame
from abc_calib.nn.padding import EVERY, Unpadded
from abc_calib.nn.positions import Coordinates, Scheme, build_scheme
from abc_calib.nn.transformer.base import Autoregressive, draw
from abc_calib.nn.transformer.cache import Cache
from abc_calib.nn.transformer.encoder import Encoded, coordinates, delimiter_positions
from abc_calib.nn.transformer.layers import StreamLayer
from abc_calib.nn.transformer.stream import Prefix, Stream, StreamBias


class DecoderOnly(Autoregressive):
    """The model. Tokens of the output stand behind the last one of their own source."""

    options_type = DecoderOptions
    hub_names = ("abc_decoder", "AbcDecoder")
    stream = True
    options: DecoderOptions

    def __init__(self, options: DecoderOptions, tokens: TokenIds):
        super().__init__(options, tokens)
        self.embed = nn.Embedding(tokens.size, options.width)
        self.scheme = build_scheme(options.scheme, options.width, options.heads, ("self",))
        self.layers = nn.ModuleList(StreamLayer(options, i) for i in range(options.decoder_layers))
        self.norm = nn.LayerNorm(options.width)
        self.dropout = nn.Dropout(options.dropout)
        self.head = nn.Linear(options.width, tokens.size)
        self.apply(draw)
        self.set_lines(None)

    # Lines

    @property
    def attention_layers(self) -> dict[Site, int]:
        """Of the source in the last layer nothing is read."""
        layers = self.options.decoder_layers
        return {"encoder": layers - 1, "self": layers, "cross": layers}

    @property
    def mixed_source(self) -> str:
        for bias in self.biases["encoder"]:
            if bias is None or any(head != (ALONE,) for head in bias.heads):
                return "tokens of its source look at others"
        return ""

    def set_lines(self, lines: LineBias | None) -> None:
        super().set_lines(lines)
        heads = [head for bias in self.biases["encoder"] if bias for head in bias.heads]
        for line in chain.from_iterable(heads):
            first = line.direction == "vert" and line.segment == line.offset == 0
            if not first and (line.direction != "diag" or line.segment or line.offset > 0):
                raise UsageError(
                    f"{line.label('encoder')} of the source of a decoder-only model leads to later "
                    "tokens: give diagonals with an offset of 0 or less, or vert +0"
                )
        pairs = zip(self.biases["cross"], self.biases["self"], strict=True)
        self.joined = [StreamBias(a, b) if a and b else None for a, b in pairs]

    # The pass

    def scheme_of(self, site: Site) -> Scheme:
        return self.scheme

    def encode(
        self,
        source: Tensor,
        mask: Tensor | None = None,
        weights: bool = False,
        kept: Unpadded = EVERY,
    ) -> Encoded:
        mask = source.ne(self.pad) if mask is None else mask
        lengths = mask.long().sum(1)
        delimiters = delimiter_positions(source, self.tokens.delimiters)
        rows = torch.arange(source.shape[1], device=source.device)
        at = coordinates(source, delimiters, self.tokens.words)
        drawn = self.scheme.starts(at)
        at = Coordinates(at.part, at.column, at.row, drawn)
        # numbered once: so many rows behind the source as it has, then on by one
        numbers = self.scheme.renumber(torch.arange(2 * len(rows)), 2 * lengths)
        frame = Prefix("encoder", rows, len(rows), lengths, delimiters, kept=kept)
        if self._by_token and not weights:
            every = torch.arange(self.tokens.size, device=source.device)[:, None]
            alone = Prefix("encoder", rows[:1], 1, torch.ones_like(every[:, 0]))
            states, seen = self._through(self.embed(every), alone, weights)
            states = [kept.unpad(state[:, 0][source]) for state in states]
        else:
            x = self.scheme.embed(self.embed(source), numbers[..., : len(rows)], at)
            states, seen = self._through(kept.unpad(self.dropout(x)), frame, weights)
        attention = tuple(seen) if weights else ()
        found = states[-1], lengths, delimiters, 0, attention, drawn, tuple(states), numbers
        return Encoded(*found, kept=kept)

    @property
    def _by_token(self) -> bool:
        """Do the states of a source depend on the token alone, so that each is computed once?"""
        plain = type(self.scheme).embed is Scheme.embed
        dropped = self.training and self.options.dropout
        return plain and not dropped and not self.mixed_source and self.path != "dense"

    def _through(
        self, x: Tensor, frame: Prefix, weights: bool
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The source before each layer, and what its rows saw."""
        states, seen = [x], []
        for layer, bias in zip(self.layers, self.biases["encoder"], strict=False):
            x, one = layer(x, frame, self.scheme, bias, path=self.path, weights=weights)
            states.append(x)
            seen.append(one)
        return states, seen

    def read(self, encoded: Encoded, read: Tensor, frame: Frame) -> Tensor:
        at = self._written_at(frame, encoded.drawn)
        behind = encoded.lengths[:, None] + frame.rows
        numbers = torch.atleast_2d(encoded.numbers).expand(len(behind), -1)
        last = numbers.shape[1] - 1
        positions = numbers.gather(1, behind.clamp(max=last)) + (behind - last).clamp(min=0)
        return self.scheme.embed(self.embed(read), positions, at)

    def layer(
        self,
        number: int,
        x: Tensor,
        encoded: Encoded,
        frames: dict[Site, Frame],
        cache: Cache | None,
        weights: bool,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        frame, memory = Stream.of(frames["cross"], frames["self"]), encoded.states[number]
        given = x, memory, frame, self.scheme, self.joined[number], cache
        layer: Any = self.layers[number]
        x, seen = layer.write(*given, path=self.path, weights=weights)
        if seen is None:
            return x, None, None
        return x, seen[..., encoded.size :], seen[..., : encoded.size]
