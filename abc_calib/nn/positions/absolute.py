"""Added to the embeddings: absolute positions, fixed, learned or drawn at random; and columns.

Columns of numbers are those of Abacus, and of position coupling.
"""

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
    """Fixed sines and cosines added to the embeddings (Vaswani et al. 2017, section 3.5).

    Computed in float32 at least: in half precision thousands of neighbouring places are equal.
    """

    def embed(self, x: Tensor, at: Coords) -> Tensor:
        dtype = torch.promote_types(x.dtype, torch.float32)
        return x + waves(at.place, self.shape.width, dtype).to(x.dtype)


class Tabled(Scheme):
    """Base of those that have a learned ``table (..., size, d)``.

    It is unit-normal at first, like the embeddings of the tokens.
    """

    def __init__(self, shape: Shape, options: Options, *size: int):
        super().__init__(shape, options)
        self.table = nn.Parameter(torch.empty(*size, shape.width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.table)


class LearnedOptions(Options):
    """``size``: rows of the table."""

    size: int = Field(128, ge=1)


class Learned(Tabled):
    """A learned vector a position, added to the embeddings (Gehring et al. 2017, section 3.1).

    One table for source and output.
    Positions beyond it are those of its last row: sequences of any length run, though rows
    beyond the training lengths were never trained.
    """

    options_type = LearnedOptions

    def __init__(self, shape: Shape, options: LearnedOptions):
        super().__init__(shape, options, options.size)

    def embed(self, x: Tensor, at: Coords) -> Tensor:
        return x + self.table[at.place.clamp(max=len(self.table) - 1)]


class RandomizedOptions(Options):
    """``max``: how many positions there are to draw from."""

    max: int = Field(2048, ge=2)


class Randomized(Sinusoidal):
    """An ordered random subset of ``0 .. max-1`` in place of ``0 .. n-1`` (Ruoss et al. 2023).

    Section 3.1 of their paper: drawn without replacement and sorted, anew for every sequence and
    step of training, and in evaluation too, where it is the same for every sequence of a length,
    so that an evaluation can be repeated and a cache stays valid. Source and output each have a
    subset of their own, of as many positions as the source has tokens: an output's length is not
    known while it is written, and no answer is longer than its source.
    """

    options_type = RandomizedOptions

    def __init__(self, shape: Shape, options: RandomizedOptions):
        super().__init__(shape, options)
        self.max = options.max

    def renumber(self, places: Tensor, lengths: Tensor) -> Tensor:
        """The drawn position of each place: ``(b, i)``. Past a subset they go on by one."""
        longest = int(lengths.max())
        if longest > self.max:
            raise UsageError(
                f"scheme randomized: a source of {longest} tokens, and max = {self.max}: train "
                "with a larger max"
            )
        drawn = self.drawn(lengths[:, 0].tolist(), longest, places.device)  # (b, longest)
        indices = places.expand(len(drawn), -1)
        last = lengths - 1
        beyond = (indices - last).clamp(min=0)
        return drawn.gather(1, indices.minimum(last).clamp(min=0)) + beyond

    def drawn(self, lengths: list[int], width: int, device: torch.device) -> Tensor:
        """For each length a sorted subset, ``(b, width)``, filled up with ``max``."""
        if self.training:
            order = torch.rand(len(lengths), self.max, device=device).argsort(1)[:, :width]
        else:
            seeded = (torch.Generator().manual_seed(n) for n in lengths)
            orders = [torch.randperm(self.max, generator=generator)[:width] for generator in seeded]
            order = torch.stack(orders).to(device)
        column = torch.arange(width, device=device)
        sizes = torch.tensor(lengths, device=device)[:, None]
        return order.masked_fill(column >= sizes, self.max).sort(1).values


class AbacusOptions(Options):
    """``size``: rows of the table. ``offset``: by how much places are moved on at most."""

    size: int = Field(1024, ge=3)
    offset: int = Field(99, ge=0)


class Abacus(Tabled):
    """A learned vector a place within a number, added to the embeddings (McLeish et al. 2024).

    Places are counted from 1 on, from the last digit of a number: the authors write operands
    backwards and count from the first one (arXiv 2405.17399, section 3). A token that is no
    digit has place 0. In every step of training all places are moved on by one number that is
    drawn, so that longer numbers find places that were trained. Beyond the table they are its
    last row.
    """

    options_type = AbacusOptions
    by_columns = True

    def __init__(self, shape: Shape, options: AbacusOptions):
        super().__init__(shape, options, options.size)
        if options.offset >= options.size - 1:
            raise UsageError(
                f"scheme abacus: offset = {options.offset} moves places beyond size = "
                f"{options.size}: give a larger size"
            )
        self.offset = options.offset

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

    size: int = Field(16, ge=4)
    rows: Literal["none", "operands", "first", "second", "own"] = "none"


OF_ROWS = {"first": 1, "second": 2, "own": -1}
"""The part of a source whose digits belong to rows."""


class Coupled(Tabled):
    """A learned vector for each column, and one for each row, added to the embeddings.

    Position coupling (Cho et al. 2024, arXiv 2405.20671; of several levels: arXiv 2410.15787):
    digits of one significance share an id in source and output. In training ids begin anywhere in
    the table, drawn for every sample; else at 1. Beyond the table they are those of its last row.

    With ``rows=none`` ids are those of the authors' code: the operator, and what precedes the
    answer, have the first id, the last digit of a number the second one, what begins the source
    0. With rows, delimiters have id 0, and an output the ids of what it writes next.
    """

    options_type = CoupledOptions
    by_columns = True

    def __init__(self, shape: Shape, options: CoupledOptions):
        super().__init__(shape, options, 1 if options.rows == "none" else 2, 1 + options.size)
        self.rows = options.rows

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
