"""One attention over source and output: its rows, keys and lines, put together from both parts.

The keys of a row are the tokens of the source, padding included, then the output's so far. Lines
know the two parts as ``cross`` and ``self``, as in a model with two attentions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from abc_calib.geometry import Site
from abc_calib.nn.biases import Gathered, LayerBias, side_by_side
from abc_calib.nn.frames import Frame


@dataclass(frozen=True)
class Prefix(Frame):
    """Rows of the source, each of which looks at those before it."""

    @property
    def scheme_site(self) -> Site:
        return "self"

    def mask(self) -> Tensor:
        keys = torch.arange(self.keys, device=self.rows.device)
        return (keys <= self.rows[:, None])[None, None]


@dataclass(frozen=True)
class Stream(Frame):
    """Rows of the output, behind their source. ``parts``: how they stand to source and output."""

    parts: tuple[Frame, ...] = ()

    @classmethod
    def of(cls, crossed: Frame, own: Frame) -> Stream:
        keys = crossed.keys + own.keys
        left_out = (crossed.keys + own.left_out[0], own.left_out[1])
        given = own.rows, keys, own.lengths
        return cls("self", *given, left_out=left_out, parts=(crossed, own), kept=own.kept)

    @property
    def row_positions(self) -> Tensor:
        return self.lengths[:, None] + self.rows

    @property
    def key_positions(self) -> Tensor:
        crossed, own = self.parts
        source = torch.arange(crossed.keys, device=self.rows.device).expand(len(self.lengths), -1)
        output = torch.arange(own.keys, device=self.rows.device)
        return torch.cat([source, self.lengths[:, None] + output], 1)

    def mask(self) -> Tensor:
        crossed, own = (frame.mask() for frame in self.parts)
        rows = own.shape[2]
        samples = max(len(crossed), len(own))
        both = [x.expand(samples, 1, rows, -1) for x in (crossed, own)]
        return torch.cat(both, 3)


class StreamBias:
    """The lines of one layer: as ``LayerBias``, on the keys of both parts."""

    def __init__(self, crossed: LayerBias, own: LayerBias):
        self.parts = crossed, own
        self.restricted, self.single = own.restricted, own.single
        self.may_mask_rows = own.may_mask_rows

    def picks(self, frame: Stream) -> list[Tensor]:
        """Where each head has one line: its key ``(b, h, i)`` among those of either part.

        What a head names in the part without its line is of no meaning: see ``of_source``.
        """
        pairs = zip(self.parts, frame.parts, strict=True)
        return [part.stored(bias.positions(part)[0][..., 0]) for bias, part in pairs]

    def of_source(self, device: torch.device) -> Tensor:
        """Which heads have a line to the source, ``(h,)``."""
        return self.parts[0].tensors(device).there

    def dense(self, frame: Any) -> Tensor:
        """The bias as a matrix, ``(b, h, i, j)``."""
        pairs = zip(self.parts, frame.parts, strict=True)
        return side_by_side([bias.dense(part) for bias, part in pairs])

    def gathered(self, frame: Any) -> Gathered:
        """The same as a list of keys a row."""
        crossed, own = (bias.keys(f) for bias, f in zip(self.parts, frame.parts, strict=True))
        keys = side_by_side([crossed[0], own[0] + frame.parts[0].keys])
        return Gathered(frame.stored(keys), side_by_side([crossed[1], own[1]]))


AnyBias = LayerBias | StreamBias
"""What an attention takes."""
