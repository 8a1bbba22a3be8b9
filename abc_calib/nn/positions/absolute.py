"""Absolute positions, added to the embeddings."""

from __future__ import annotations

import math

import torch
from pydantic import Field
from torch import Tensor, nn

from abc_calib.config import Options
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
