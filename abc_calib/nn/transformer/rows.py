"""Where the rows of an output open, found from the delimiters that were written."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from abc_calib.nn.frames import Grid


@dataclass(frozen=True)
class Opened:
    """The rows so far: ``opens (b, n)``, positions of what opened them, and ``count (b,)``.

    Where a sample has fewer rows than others, what stands behind its own is of no meaning.
    """

    opens: Tensor
    count: Tensor

    @classmethod
    def none(cls, samples: int, device: torch.device) -> Opened:
        empty = torch.zeros(samples, 0, dtype=torch.long, device=device)
        return cls(empty, empty.sum(1))

    def read(self, tokens: Tensor, past: int, closes: int) -> Grid:
        """Where ``tokens (b, i)`` stand that are read after ``past`` others.

        A row opens with the first token of all, and with each one that ``closes`` another row.
        """
        position = past + torch.arange(tokens.shape[1], device=tokens.device)
        opening = tokens.eq(closes) | (position == 0)
        row = self.count[:, None] + opening.cumsum(1) - 1
        more = int(row.max()) + 1 - self.opens.shape[1] if row.numel() else 0
        opens = torch.nn.functional.pad(self.opens, (0, max(more, 0) + 1))
        behind = opens.shape[1] - 1  # where it does not matter
        opens = opens.scatter(
            1, row.where(opening, torch.tensor(behind)), position.expand(row.shape)
        )
        opens = opens[:, :behind]
        return Grid(row, position - opens.gather(1, row), opens)

    def until(self, grid: Grid, final: int) -> Opened:
        """The rows after the first ``final`` tokens that were read."""
        if not final:
            return self
        count = grid.row[:, final - 1] + 1
        return Opened(grid.opens[:, : int(count.max())], count)


def alike(grid: Grid) -> Grid:
    """The same for one sample, where all stand alike."""
    same = all(bool((x == x[:1]).all()) for x in (grid.row, grid.column))
    return Grid(grid.row[:1], grid.column[:1], grid.opens[:1]) if same else grid
