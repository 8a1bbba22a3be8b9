"""A model that looks rows up where they are given by what they read: when, and how many at once."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, Self

import torch
from torch import Tensor

from abc_calib.errors import AbcError
from abc_calib.geometry import LineBias
from abc_calib.memory import lacking
from abc_calib.nn.transformer.known import window_period
from abc_calib.nn.transformer.lines import AlongLines
from abc_calib.nn.transformer.windows import Full, Windows

BYTES_PER_TOKEN = 80
"""What looking up a token takes at its peak, with where it stands and the numbers of its states."""
TABLED_AT_ONCE = 2**19
"""Tokens of sources and outputs that are looked up at once."""


class Tabled(AlongLines):
    """Base of the Transformer. ``windows``: of a model that is ``frozen``, all rows it has met."""

    windows: Windows | None = None

    def set_lines(self, lines: LineBias | None) -> None:
        self.windows = None
        super().set_lines(lines)

    def frozen(self, dense: bool = False) -> Self:
        if dense:
            self.set_path("layers")
        period = window_period(self)
        if isinstance(period, str) or self.path != "auto" or self.windows is not None:
            return self
        made = self.exact()
        made = (copy.deepcopy(made) if made is self else made).cpu()
        try:
            made.windows = Windows(made, period)
        except Full:
            return self
        return made

    @property
    def tabled(self) -> bool:
        """Are rows looked up?"""
        return self.windows is not None and self.windows.open and self.path == "auto"

    def _by_table(self, look: Callable[[Windows], Tensor], keys: int, steps: int) -> Tensor | None:
        """What ``look`` finds in the table of windows; None without one, or where it is given up.

        ``AbcError`` where the one way does not pay and the other does not fit the memory.
        """
        if self.windows is None or not self.tabled:
            return None
        try:
            return look(self.windows)
        except Full as full:
            if found := lacking(self.memory_needed(1, keys, steps)):
                raise AbcError(
                    f"{full}, too many to keep, and a source of {keys} tokens through all layers "
                    f"needs {found}: use a shorter one"
                ) from None
            return None

    def memory_needed(self, batch: int, keys: int, steps: int, training: bool = False) -> int:
        if self.tabled:
            return BYTES_PER_TOKEN * batch * (keys + steps)
        return super().memory_needed(batch, keys, steps, training)

    def chunks(self, rows: Tensor, tokens: int) -> Iterator[Tensor]:
        at_once = TABLED_AT_ONCE if self.tabled else self.tokens_at_once
        yield from rows.split(max(1, at_once // max(1, tokens))) if len(rows) else ()

    def _parts(self, source: Tensor, steps: int) -> list[Any]:
        """Samples to put through all layers together: where a table is given up, fewer than came.

        A table takes more of them at once.
        """
        if self.windows is None or len(source) < 2:
            return [slice(None)]
        return [*self.chunks(torch.arange(len(source)), source.shape[1] + steps)]

    def best(self, source: Tensor, target: Tensor) -> Tensor:
        sizes = source.shape[1], target.shape[1]
        found = self._by_table(lambda table: table.best(source, target), *sizes)
        return super().best(source, target) if found is None else found
