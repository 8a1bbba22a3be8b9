"""Where the rows and keys of one attention call stand."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from abc_calib.geometry.lines import Site
from abc_calib.nn.padding import EVERY, Unpadded


@dataclass(frozen=True)
class Grid:
    """Where queries stand in an output of several rows.

    ``row`` and ``column``, ``(b, i)`` each; ``opens (b, n)``: positions of the tokens that open
    each row of an output so far.
    """

    row: Tensor
    column: Tensor
    opens: Tensor

    def opened(self, most: int) -> Tensor:
        """Where the row of each query opened, and the ``most`` rows above: ``(b, i, 1 + most)``.

        Above the first row is nothing but what opens it.
        """
        above = torch.arange(most + 1, device=self.row.device)
        number = (self.row[..., None] - above).clamp(min=0)
        return self.opens.gather(1, number.flatten(1)).view(number.shape)


@dataclass(frozen=True)
class Frame:
    """Where the rows and keys of one attention call stand.

    ``rows``: ``(i,)`` positions of the queries. ``keys``: number of keys. ``lengths``: ``(b,)``
    valid keys of each sample, padding left out. ``delimiters``: ``(b, c)`` positions of the
    source's delimiters, ascending, from SOS to EOS (cross-attention and encoder).
    ``b`` may be 1 where all samples are laid out alike. ``period``: what a scheme is told of
    positions, modulo this (cyclic position indexing), counted on from ``start``; lines and masks
    count as ever. ``left_out``: from which key on, and how many, the cache does not hold
    (``abc_calib.nn.transformer.cache``). ``grid``: where the queries stand in an output of several
    rows, by which lines count. ``kept`` and ``kept_keys``: which rows and keys of a batch are
    there, where those of padding are left out.
    """

    site: Site
    rows: Tensor
    keys: int
    lengths: Tensor
    delimiters: Tensor | None = None
    period: int | None = None
    start: int = 0
    left_out: tuple[int, int] = (0, 0)
    grid: Grid | None = None
    kept: Unpadded = EVERY
    kept_keys: Unpadded = EVERY

    @property
    def scheme_site(self) -> Site:
        """The site that a scheme is told."""
        return self.site

    @property
    def is_windowed(self) -> bool:
        """Are keys left out, so that only lines find theirs?"""
        return self.left_out[1] > 0

    def stored(self, key: Tensor) -> Tensor:
        """Where keys, given by their positions, stand among those that are held."""
        first, count = self.left_out
        return torch.where(key < first, key, key - count) if count else key

    @property
    def row_positions(self) -> Tensor:
        """Positions of the queries for the scheme: ``(i,)``, or ``(b, i)`` if they differ."""
        if self.site == "encoder":
            return self.key_positions
        return self.rows if self.period is None else (self.rows + self.start) % self.period

    @property
    def key_positions(self) -> Tensor:
        """Positions of the keys for the scheme: ``(j,)``, or ``(b, j)`` if they differ.

        Cyclic positions of a source are counted from its last token, as answers are written
        from the last digit on. In the paper's sources, all of one length, it does not matter
        from where (appendix A.4); in sources of any length the digit that a row needs is in
        step with the row only so.
        """
        keys = torch.arange(self.keys, device=self.rows.device)
        if self.period is None:
            return keys
        if self.site != "self":
            keys = self.lengths[:, None] - 1 - keys
        return (keys + self.start) % self.period

    def mask(self) -> Tensor:
        """Which keys exist for a row: ``(b, 1, i|1, j)`` bool (padding, causality)."""
        keys = torch.arange(self.keys, device=self.rows.device)
        if self.site == "self":
            return (keys <= self.rows[:, None])[None, None]
        return (keys < self.lengths[:, None])[:, None, None]
