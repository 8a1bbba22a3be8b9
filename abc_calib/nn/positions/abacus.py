"""Abacus embeddings: a digit's place in its own number."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from abc_calib.config import Options
from abc_calib.errors import UsageError
from abc_calib.geometry.coords import Coords
from abc_calib.nn.positions.base import Scheme, Shape


class AbacusOptions(Options):
    """``size``: rows of the table. ``offset``: by how much places are moved on at most."""

    size: int = Field(1024, ge=3)
    offset: int = Field(99, ge=0)


class Abacus(Scheme):
    """A learned vector a place within a number, added to the embeddings (McLeish et al. 2024).

    Places are counted from 1 on, from the last digit of a number: the authors write operands
    backwards and count from the first one (arXiv 2405.17399, section 3). What is no digit has
    place 0. In every step of training all places are moved on by one number that is drawn, so
    that longer numbers find places that were trained. Beyond the table they are its last row.
    """

    options_type = AbacusOptions
    absolute = True
    by_columns = True

    def __init__(self, shape: Shape, options: AbacusOptions):
        super().__init__(shape, options)
        if options.offset >= options.size - 1:
            raise UsageError(
                f"scheme abacus: offset = {options.offset} moves places beyond size = "
                f"{options.size}: give a larger size"
            )
        self.offset = options.offset
        self.table = nn.Parameter(torch.empty(options.size, shape.width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.table)

    def starts(self, at: Coords) -> Tensor | None:
        if not self.training:
            return None
        drawn = torch.randint(self.offset + 1, (1, 1), device=at.column.device)
        return drawn.expand(len(at.column), 1)

    def embed(self, x: Tensor, at: Coords) -> Tensor:
        place = at.column + (at.part > 0)
        moved = place if at.start is None else place + at.start[:, :1]
        return x + self.table[torch.where(place > 0, moved, 0).clamp(max=len(self.table) - 1)]
