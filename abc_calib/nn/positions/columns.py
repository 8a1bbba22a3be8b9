"""Columns of numbers, added to the embeddings: Abacus, and position coupling."""

from __future__ import annotations

from typing import Literal

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
    backwards and count from the first one (arXiv 2405.17399, section 3). A token that is no
    digit has place 0. In every step of training all places are moved on by one number that is
    drawn, so that longer numbers find places that were trained. Beyond the table they are its
    last row.
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


class CoupledOptions(Options):
    """``size``: ids of each kind. ``rows``: what stands in a row of its own.

    ``none``: nothing but columns count. ``operands``: operand k belongs to row k - 1 of the output,
    as in a sum. ``first`` and ``second``: digit k of that operand belongs to row k, as in a
    product. ``own``: nothing of a source belongs to a row.
    """

    size: int = Field(16, ge=2)
    rows: Literal["none", "operands", "first", "second", "own"] = "none"


OF_ROWS = {"first": 1, "second": 2, "own": -1}
"""The part of a source whose digits belong to rows."""


class Coupled(Scheme):
    """A learned vector for each column, and one for each row, added to the embeddings.

    Position coupling (Cho et al. 2024, arXiv 2405.20671; of several levels: arXiv 2410.15787):
    digits of one significance share an id in source and output. In training ids begin anywhere in
    the table, drawn for every sample; else at 1. Beyond the table they are those of its last row.

    With ``rows=none`` ids are those of the authors' code: the operator, and what precedes the
    answer, have the first id, the last digit of a number the second one, what begins the source
    0. With rows, delimiters have id 0, and an output the ids of what it writes next.
    """

    options_type = CoupledOptions
    absolute = True
    by_columns = True

    def __init__(self, shape: Shape, options: CoupledOptions):
        super().__init__(shape, options)
        self.rows = options.rows
        levels = 1 if options.rows == "none" else 2
        self.table = nn.Parameter(torch.empty(levels, 1 + options.size, shape.width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.table)

    def starts(self, at: Coords) -> Tensor | None:
        """By how much ids are moved on, ``(b, levels)``; an answer may have one digit more."""
        if not self.training:
            return None
        most = self.table.shape[1] - 1
        samples, levels = len(at.column), len(self.table)
        room = torch.full((samples, levels), most // 2, device=at.column.device)
        if self.rows == "none":
            room = (most - 3 - at.column.amax(1, keepdim=True)).clamp(min=0) + 1
        return (torch.rand(samples, levels, device=room.device) * room).long()

    def embed(self, x: Tensor, at: Coords) -> Tensor:
        for level, (table, number) in enumerate(zip(self.table, self._levels(at), strict=False)):
            most = len(table) - 1
            ids = 1 + number
            if at.start is not None:
                ids = ids + at.start[:, level, None]
            ids = torch.where(number < 0, 0, ids.clamp(max=most))
            x = x + table[ids]
        return x

    def _levels(self, at: Coords) -> tuple[Tensor, Tensor]:
        """The column and the row of each token, -1 where it has none."""
        none = torch.full_like(at.column, -1)
        if self.rows == "operands":
            row = torch.where(at.part > 0, at.part - 1, at.row).where(at.column >= 0, none)
            return at.column, row
        if self.rows in OF_ROWS:
            counts = at.part == OF_ROWS[self.rows]
            row = torch.where(counts, at.column, torch.where(at.part == 0, at.row, none))
            return torch.where(counts, none, at.column), row
        return at.column + (at.part > 0), none
