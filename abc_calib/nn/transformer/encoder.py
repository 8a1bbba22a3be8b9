"""The source, read once: embeddings with positions, and encoder layers if there are any."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from abc_calib.config import TransformerOptions
from abc_calib.data.vocabulary import TokenIds
from abc_calib.geometry.layout import placed
from abc_calib.nn.biases import LayerBias
from abc_calib.nn.frames import Frame
from abc_calib.nn.padding import EVERY, Unpadded
from abc_calib.nn.positions import Coordinates, Scheme
from abc_calib.nn.transformer.layers import EncoderLayer


@dataclass(frozen=True)
class Encoded:
    """An encoded source ``memory (b, s, d)``, and where its tokens stand.

    ``lengths (b,)``; ``delimiters (b, c)``, their positions; ``start``: from where cyclic
    positions count, and ``drawn``, what a scheme drew for the output; ``attention``: of each layer,
    if asked for. Of a stream: ``states``, the source before each layer, and ``numbers (n,)`` or
    ``(b, n)``, what a scheme calls the first positions. ``kept``: which tokens ``memory`` and
    ``states`` hold, ``(n, d)`` where they do not hold all of ``size``.
    """

    memory: Tensor
    lengths: Tensor
    delimiters: Tensor
    start: int
    attention: tuple[Tensor, ...] = ()
    drawn: Tensor | None = None
    states: tuple[Tensor, ...] = ()
    numbers: Tensor | None = None
    kept: Unpadded = EVERY

    @property
    def size(self) -> int:
        """How many tokens the longest source has."""
        return self.memory.shape[1] if self.memory.dim() == 3 else self.kept.shape[1]


class Encoder(nn.Module):
    """The encoder layers, if there are any, on embeddings with positions.

    Cyclic positions are all alike, but short problems do not show it: the fifth digit of six is
    the only one far from both ends, and would be seen in one phase alone. So in every step of
    training they start in a random phase, the same for source and output; else in phase 0.
    """

    def __init__(self, options: TransformerOptions, tokens: TokenIds, scheme: Scheme):
        super().__init__()
        self.period, self.tokens, self.scheme = options.cyclic, tokens, scheme
        self.layers = nn.ModuleList(EncoderLayer(options) for _ in range(options.encoder_layers))
        layered = options.encoder_layers > 0
        self.norm = nn.LayerNorm(options.width) if layered else nn.Identity()
        self.dropout = nn.Dropout(options.dropout)

    def forward(
        self,
        source: Tensor,
        mask: Tensor,
        embed: nn.Embedding,
        biases: list[LayerBias | None],
        path: str,
        weights: bool,
        output: Scheme,
        kept: Unpadded = EVERY,
    ) -> Encoded:
        """``output``: the scheme of what is written, where it is another one."""
        lengths = mask.long().sum(1)
        delimiters = delimiter_positions(source, self.tokens.delimiters)
        rows = torch.arange(source.shape[1], device=source.device)
        start = int(torch.randint(self.period, ())) if self.training and self.period else 0
        given = rows, len(rows), lengths, delimiters, self.period, start
        frame = Frame("encoder", *given, kept=kept)
        positions = self.scheme.renumber(frame.row_positions, lengths)
        at = coordinates(source, delimiters, self.tokens.words)
        at = replace(at, start=self.scheme.starts(at))
        drawn = at.start if output is self.scheme else output.starts(at)
        x = kept.unpad(self.dropout(self.scheme.embed(embed(source), positions, at)))
        seen = []
        for layer, bias in zip(self.layers, biases, strict=True):
            x, one = layer(x, frame, self.scheme, bias, path=path, weights=weights)
            seen.append(one)
        attention = tuple(seen) if weights else ()
        found = self.norm(x), lengths, delimiters, start, attention, drawn
        return Encoded(*found, kept=kept)


def coordinates(source: Tensor, delimiters: Tensor, words: bool = False) -> Coordinates:
    """Where the tokens of a source stand, from the positions of its delimiters ``(b, c)``.

    ``words``: columns are counted from the first token.
    """
    places = torch.arange(source.shape[1], device=source.device).expand(source.shape)
    part, behind = placed(delimiters[..., None].unbind(1) or [places], places)
    column = torch.where(behind < 0, behind.clamp(min=-1), places - 1) if words else behind
    part = torch.zeros_like(places) + part
    return Coordinates(part, column.clamp(min=-1), torch.zeros_like(part))


def delimiter_positions(ids: Tensor, delimiters: tuple[int, ...]) -> Tensor:
    """Where the delimiters stand in each source: ``(b, c)``, ascending.

    A row with fewer delimiters than the others repeats its last one.
    """
    found = torch.isin(ids, torch.tensor(delimiters, device=ids.device))
    count = int(found.sum(1).max()) if found.numel() else 0
    places = torch.arange(ids.shape[1], device=ids.device).expand(ids.shape)
    places = torch.where(found, places, ids.shape[1]).sort(1).values[:, :count]
    last = torch.where(found, torch.arange(ids.shape[1], device=ids.device), 0).amax(1)
    return torch.minimum(places, last[:, None])
