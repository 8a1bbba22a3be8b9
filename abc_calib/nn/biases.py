"""Additive attention biases: what each row may look at, and how much it is drawn there.

Everything that restricts or shifts attention (padding, causality, calibrated lines, and the
schemes' own terms) is added to the scores before softmax. Shapes: ``b`` batch, ``h`` head,
``i`` query, ``j`` key, ``k`` lines a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from abc_calib.errors import UsageError
from abc_calib.geometry.lines import (
    CORNER,
    DELIMITERS,
    LAST,
    Formula,
    Heads,
    Site,
    formula,
    located,
)
from abc_calib.nn.frames import Frame

MASKED = -1e9
"""Added where a row may not look. Finite: a row that is masked everywhere stays a number."""


@dataclass(frozen=True)
class Gathered:
    """The keys that each row looks at: ``index (b, h, i, k)`` and the bias on them, alike."""

    index: Tensor
    bias: Tensor


class LayerBias:
    """The lines of one layer and site as index arithmetic on tensors.

    The tensors are made when first used, on the device of the call: they follow from the lines,
    which the model's configuration holds, and are never saved or loaded. ``elsewhere``: lines that
    the same heads have at another site, with one softmax over the keys of both.
    """

    def __init__(
        self,
        heads: Heads,
        site: Site,
        off_line_bias: float | None = None,
        elsewhere: Heads | None = None,
    ):
        self.site = site
        self.heads = heads
        #: all lines of each head, those ``elsewhere`` included
        self.every = heads if elsewhere is None else tuple(map(tuple.__add__, heads, elsewhere))
        #: what is added to the scores of keys off the lines
        self.off_line_bias = MASKED if off_line_bias is None else off_line_bias
        #: every head has a line, so that each row looks at a few keys only
        self.restricted = all(self.every) and off_line_bias is None
        #: a corner line may leave the matrix, and its row without a key
        self.may_mask_rows = off_line_bias is None and any(
            line.segment == CORNER for head in self.every for line in head
        )
        #: every head has exactly one key in every row
        self.single = (
            self.restricted
            and all(len(head) == 1 for head in self.every)
            and not self.may_mask_rows
        )
        self._tensors: _Tensors | None = None

    def tensors(self, device: torch.device) -> _Tensors:
        if self._tensors is None or self._tensors.value.device != device:
            self._tensors = _build(self, device)
        return self._tensors

    def positions(self, frame: Frame) -> tuple[Tensor, Tensor]:
        """The key of each line in each row, and whether the line has left the matrix there.

        Both ``(b, h, i, k)``; where it has left, the key is the nearest one inside.
        """
        lines, grid = self.tensors(frame.rows.device), frame.grid
        anchors = _anchors(frame, lines.anchors)  # (b, i|1, a)
        if lines.anchors > anchors.shape[2]:
            raise UsageError(
                f"the bias counts from segment {lines.anchors - DELIMITERS - 1} of the source, "
                f"which has {anchors.shape[2] - DELIMITERS - 1}: use the bias of the same task"
            )
        column = frame.rows if grid is None else grid.column[:, None]  # (b, 1, i)
        shift, step = lines.shift[:, None], lines.step[:, None]
        if grid is not None:
            shift = shift + lines.down[:, None] * grid.row[:, None, :, None]
        moves = grid is not None and bool(lines.step.any())

        def at(places: Tensor) -> Tensor:  # (h, k) -> (b, h, i|1, k)
            if not moves:
                return anchors[:, :, places].permute(0, 2, 1, 3)
            assert grid is not None
            number = places[:, None] + step * grid.row[:, None, :, None]  # (b, h, i, k)
            low = places[:, None].clamp(max=DELIMITERS)
            number = number.maximum(low).clamp(max=anchors.shape[2] - 1)
            b = max(len(number), len(anchors))
            every = anchors[:, :1, None].expand(b, *number.shape[1:3], -1)
            return every.gather(3, number.expand(b, -1, -1, -1))

        return located(
            at(lines.origin),
            lines.slope[:, None],
            shift,
            at(lines.low),
            at(lines.high),
            lines.leaves[:, None],
            column[..., None],
        )

    def keys(self, frame: Frame) -> tuple[Tensor, Tensor]:
        """The key of each line in each row and the bias on it, ``(b, h, i, k)`` each.

        A line without a key in a row, and all but the highest of several lines that meet on
        one key, have the bias ``MASKED``.
        """
        key, outside = self.positions(frame)
        value = self.tensors(key.device).value
        bias = value[:, None].expand(key.shape).masked_fill(outside, MASKED)
        return key, met(key, bias)

    def dense(self, frame: Frame) -> Tensor:
        """The bias as a matrix, ``(b, h, i, j)``; transparent heads are 0."""
        key, bias = self.keys(frame)
        matrix = torch.full((*key.shape[:3], frame.keys), self.off_line_bias, device=key.device)
        matrix.scatter_reduce_(3, key, bias, "amax")
        return matrix.masked_fill_(self.tensors(key.device).transparent[:, None, None], 0.0)

    def gathered(self, frame: Frame) -> Gathered:
        """The same bias as a list of keys a row; only if every head is restricted."""
        assert self.restricted
        key, bias = self.keys(frame)
        return Gathered(frame.stored(key), bias)


def met(key: Tensor, bias: Tensor) -> Tensor:
    """``bias (b, h, i, k)``, in place: of lines that meet on one key the highest counts, once."""
    for k in range(1, key.shape[-1]):
        for other in range(k):
            same = key[..., k] == key[..., other]
            lower = bias[..., k] <= bias[..., other]
            bias[..., k].masked_fill_(same & lower, MASKED)
            bias[..., other].masked_fill_(same & ~lower, MASKED)
    return bias


def side_by_side(parts: Sequence[Tensor]) -> Tensor:
    """``(b|1, h, i|1, k)`` each, as one; those of one row stand for all."""
    b, i = (max(part.shape[at] for part in parts) for at in (0, 2))
    return torch.cat([part.expand(b, -1, i, -1) for part in parts], 3)


@dataclass(frozen=True)
class _Tensors:
    """The formulas of all lines, ``(h, k)`` each; ``transparent (h,)``, heads without any line.

    A head with fewer lines than others is filled up with masked ones. ``there (h,)``: which have
    a line at this site. ``anchors``: how many the lines count from.
    """

    origin: Tensor
    slope: Tensor
    shift: Tensor
    low: Tensor
    high: Tensor
    leaves: Tensor
    down: Tensor
    step: Tensor
    value: Tensor
    transparent: Tensor
    there: Tensor
    anchors: int


def _build(bias: LayerBias, device: torch.device) -> _Tensors:
    heads = bias.heads
    most = max(1, *(len(head) for head in heads))
    formulas = [[formula(line, bias.site) for line in head] for head in heads]
    filled = [head + [_NOWHERE] * (most - len(head)) for head in formulas]
    numbers = torch.tensor(filled, dtype=torch.long, device=device)
    origin, slope, shift, low, high, leaves, down, step = numbers.unbind(-1)
    value = [[x.value for x in h] + [MASKED] * (most - len(h)) for h in heads]
    return _Tensors(
        *(origin, slope, shift, low, high),
        leaves=leaves.bool(),
        down=down,
        step=step,
        value=torch.tensor(value, dtype=torch.float32, device=device),
        transparent=torch.tensor([not head for head in bias.every], device=device),
        there=torch.tensor([bool(head) for head in heads], device=device),
        anchors=1 + int(torch.stack([origin, low, high]).max()),
    )


_NOWHERE = Formula(LAST, 0, 0, LAST, LAST, False)
"""A masked line; it names a key that every cache holds, in self-attention the row's own."""


def _anchors(frame: Frame, wanted: int) -> Tensor:
    """Positions that lines are counted from, ``(b, i|1, 2 + c)``; at least ``wanted`` of rows."""
    if frame.site == "self":
        if frame.grid is not None:
            opened = frame.grid.opened(max(wanted - DELIMITERS - 1, 0))
            own = frame.rows[None, :, None].expand(len(opened), -1, 1)
            return torch.cat([opened[..., :1], own, opened], dim=2)
        last = frame.rows[None, :, None]
        return torch.cat([torch.zeros_like(last), last], dim=2)
    last = frame.lengths[:, None, None] - 1
    places = [torch.zeros_like(last), last]
    if frame.delimiters is not None:
        places.append(frame.delimiters[:, None])
    return torch.cat(places, dim=2)
