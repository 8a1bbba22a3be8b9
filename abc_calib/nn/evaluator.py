"""A model as it is evaluated: by a table of windows where it has one, else through all layers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import suppress

import torch
from torch import Tensor

from abc_calib.errors import AbcError
from abc_calib.memory import lacking
from abc_calib.nn.base import Decoded, Model, in_float64
from abc_calib.nn.transformer.model import Transformer
from abc_calib.nn.transformer.rows import Full
from abc_calib.nn.transformer.windows import Windows, window_period

BYTES_PER_TOKEN = 120
"""What looking up a token takes at its peak, with where it stands and the numbers of its states."""
LOOKED_UP_AT_ONCE = 2**19
"""Tokens of sources and outputs that are looked up at once."""


class Evaluator:
    """A model with its weights and lines as they are now.

    Where every head follows lines, a row is given by the few states that it reads. Then each
    different row is computed once, in float64 on the CPU, and looked up from then on. If ``dense``,
    or where rows are not given so, all rows go through all layers of the model itself. A table that
    does not pay is given up, and the rows go through all layers of its float64 copy.
    """

    def __init__(self, model: Model, dense: bool = False):
        self.model: Model = model
        self.table: Windows | None = None
        if not isinstance(model, Transformer) or isinstance(period := window_period(model), str):
            return
        self.model = in_float64(model)  # in which it is certified
        if not dense and model.path == "auto":
            with suppress(Full):
                self.table = Windows(copy.deepcopy(self.model).cpu(), period)
                self.model = self.table.model

    @property
    def device(self) -> torch.device:
        return self.model.device

    def logits(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits ``(b, t, v)`` of each token of ``target``, the right ones before it given."""
        return self._answer(
            lambda table: table.logits(source, target),
            lambda rows: self.model(source[rows], target[rows]),
            *(source, target.shape[1]),
        )

    def best(self, source: Tensor, target: Tensor) -> Tensor:
        """The most likely token ``(b, t)`` in each place of ``target``, the right ones given."""
        return self._answer(
            lambda table: table.best(source, target),
            lambda rows: self.model(source[rows], target[rows]).argmax(-1),
            *(source, target.shape[1]),
        )

    @torch.inference_mode()
    def decode(
        self, source: Tensor, steps: int, attention: bool = False, draft: Tensor | None = None
    ) -> Decoded:
        """Write greedily, at most ``steps`` tokens; with ``attention`` say what was looked at.

        ``draft (b, t)`` is what may be written, and a matter of speed alone.
        """
        if self.model.has_attender:
            return self.model.decode(source, steps, attention)
        draft = source[:, :0] if draft is None else draft
        ids = self._answer(
            lambda table: table.decode(source.cpu(), steps, draft.cpu()),
            lambda rows: self.model.decode(source[rows], steps).ids,
            *(source, steps),
        )
        return Decoded(ids.to(source.device))

    def _answer(
        self,
        look_up: Callable[[Windows], Tensor],
        compute: Callable[[Tensor], Tensor],
        source: Tensor,
        steps: int,
    ) -> Tensor:
        """What the table says, or all layers compute of some rows at once: fewer than it takes.

        ``AbcError`` where the one way does not pay and the other does not fit the memory.
        """
        keys = source.shape[1]
        if (table := self.table) is not None:
            try:
                return look_up(table)
            except Full as full:
                self.table = None
                if shortage := lacking(self.model.memory_needed(1, keys, steps)):
                    raise AbcError(
                        f"{full}, too many to keep, and a source of {keys} tokens through all "
                        f"layers needs {shortage}: use a shorter one"
                    ) from None
        rows = torch.arange(len(source))
        chunks = [*self.chunks(rows, keys + steps)] or [rows]
        return torch.cat([compute(chunk) for chunk in chunks])

    def chunks(self, rows: Tensor, tokens: int) -> Iterator[Tensor]:
        """``rows`` of this many tokens, in chunks that are evaluated together."""
        at_once = LOOKED_UP_AT_ONCE if self.table is not None else self.model.tokens_at_once
        yield from rows.split(max(1, at_once // max(1, tokens))) if len(rows) else ()

    def memory_needed(self, batch: int, keys: int, steps: int) -> int:
        """Bytes that one pass over ``batch`` sources of ``keys`` tokens may take, roughly."""
        if self.table is not None:
            return BYTES_PER_TOKEN * batch * (keys + steps)
        return self.model.memory_needed(batch, keys, steps)


def evaluator_of(model: Model | Evaluator, dense: bool = False) -> Evaluator:
    """The evaluator of a model; one that there is already stays as it is."""
    return model if isinstance(model, Evaluator) else Evaluator(model, dense)
