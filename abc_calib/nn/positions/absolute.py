"""Absolute positions, added to the embeddings: fixed, learned, or drawn at random."""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from abc_calib.config import Options
from abc_calib.errors import UsageError
from abc_calib.geometry.coords import Coords
from abc_calib.nn.positions.base import Scheme, Shape


def angles(positions: Tensor, width: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """What ``waves`` takes the sine and cosine of: ``(..., i) -> (..., i, d/2)``."""
    half = torch.arange(0, width, 2, device=positions.device, dtype=dtype)
    rate = torch.exp(half * (-math.log(10000.0) / width))
    return positions[..., None].to(dtype) * rate


def waves(positions: Tensor, width: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Sines and cosines of Vaswani et al. 2017, section 3.5: ``(..., i) -> (..., i, d)``."""
    angle = angles(positions, width, dtype)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)[..., :width]


class Sinusoidal(Scheme):
    """Fixed sines and cosines added to the embeddings (Vaswani et al. 2017, section 3.5)."""

    absolute = True

    def embed(self, x: Tensor, at: Coords) -> Tensor:
        return x + waves(at.place, self.shape.width, x.dtype)


class LearnedOptions(Options):
    """``size``: rows of the table."""

    size: int = Field(128, ge=1)


class Learned(Scheme):
    """A learned vector a position, added to the embeddings (Gehring et al. 2017, section 3.1).

    One table for source and output, unit-normal at first like the embeddings of the tokens.
    Positions beyond it are those of its last row: sequences of any length run, though rows
    beyond the training lengths were never trained.
    """

    options_type = LearnedOptions
    absolute = True

    def __init__(self, shape: Shape, options: LearnedOptions):
        super().__init__(shape, options)
        self.table = nn.Parameter(torch.empty(options.size, shape.width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.table)

    def embed(self, x: Tensor, at: Coords) -> Tensor:
        return x + self.table[at.place.clamp(max=len(self.table) - 1)]


class RandomizedOptions(Options):
    """``base``: what embeds the positions. ``max``: how many there are to draw from."""

    base: Literal["sinusoidal", "learned"] = "sinusoidal"
    max: int = Field(2048, ge=2)


class Randomized(Scheme):
    """An ordered random subset of ``0 .. max-1`` in place of ``0 .. n-1`` (Ruoss et al. 2023).

    Section 3.1 of their paper: drawn without replacement and sorted, anew for every sequence and
    step of training, and in evaluation too, where it is the same for every sequence of a length,
    so that an evaluation can be repeated and a cache stays valid. Source and output each have a
    subset of their own, of as many positions as the source has tokens: an output's length is not
    known while it is written, and no answer is longer than its source. ``base=learned`` has a
    table of ``max`` rows.
    """

    options_type = RandomizedOptions
    absolute = True

    def __init__(self, shape: Shape, options: RandomizedOptions):
        super().__init__(shape, options)
        self.max = options.max
        self.base: Scheme = (
            Learned(shape, LearnedOptions(size=options.max))
            if options.base == "learned"
            else Sinusoidal(shape, Options())
        )

    def reset_parameters(self) -> None:
        self.base.reset_parameters()

    def renumber(self, places: Tensor, lengths: Tensor) -> Tensor:
        """The drawn position of each place: ``(b, i)``. Past a subset they go on by one."""
        longest = int(lengths.max())
        if longest > self.max:
            raise UsageError(
                f"scheme randomized: a source of {longest} tokens, and max = {self.max}: train "
                "with a larger max"
            )
        drawn = self.drawn(lengths[:, 0].tolist(), longest, places.device)  # (b, longest)
        wanted = places.expand(len(drawn), -1)
        last = lengths - 1
        beyond = (wanted - last).clamp(min=0)
        return drawn.gather(1, wanted.minimum(last).clamp(min=0)) + beyond

    def drawn(self, lengths: list[int], width: int, device: torch.device) -> Tensor:
        """For each length a sorted subset, ``(b, width)``, filled up with ``max``."""
        if self.training:
            order = torch.rand(len(lengths), self.max, device=device).argsort(1)[:, :width]
        else:
            seeded = (torch.Generator().manual_seed(n) for n in lengths)
            orders = [torch.randperm(self.max, generator=one)[:width] for one in seeded]
            order = torch.stack(orders).to(device)
        column = torch.arange(width, device=device)
        sizes = torch.tensor(lengths, device=device)[:, None]
        return order.masked_fill(column >= sizes, self.max).sort(1).values

    def embed(self, x: Tensor, at: Coords) -> Tensor:
        return self.base.embed(x, at)
