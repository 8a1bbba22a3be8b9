"""The lines of one attention as keys and biases: for our layers and for models of ``transformers``.

Shapes: ``b`` batch, ``h`` head, ``i`` query, ``j`` key, ``k`` lines a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from abc_calib.errors import UsageError
from abc_calib.geometry.coords import AttentionView
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
from abc_calib.nn.attend import MASKED, Gathered

NOWHERE = Formula(LAST, 0, 0, LAST, LAST, False)
"""Stands where a head has no line at a site, masked; it names a key that every cache holds."""
LEAVES = Formula._fields.index("leaves")


class LineGather:
    """The lines of one attention's heads: at one site, or in a stream at two, with one softmax.

    The tensors are made when first used, on the device of the call: they follow from the lines,
    which the model's configuration holds, and are never saved or loaded. ``off_line_bias``: what is
    added to the scores of keys off the lines; None masks them.
    """

    def __init__(self, heads: dict[Site, Heads], off_line_bias: float | None = None):
        self.heads = heads
        #: all lines of each head, of every site
        self.every = tuple(tuple(chain(*each)) for each in zip(*heads.values(), strict=True))
        self.off_line_bias = MASKED if off_line_bias is None else off_line_bias
        corners = any(line.segment == CORNER for head in self.every for line in head)
        #: every head has a line, so that each query reads a few keys only
        self.restricted = all(self.every) and off_line_bias is None
        #: every head has exactly one key for every query
        self.single = self.restricted and not corners and all(len(x) == 1 for x in self.every)
        self._tensors: dict[tuple[Site, torch.device], _Tensors] = {}

    def at(self, site: Site, device: torch.device) -> _Tensors:
        """The formulas of the lines at a site."""
        if (site, device) not in self._tensors:
            self._tensors[site, device] = _build(self.heads[site], site, device)
        return self._tensors[site, device]

    def positions(self, view: AttentionView) -> tuple[Tensor, Tensor]:
        """The key of each line for each query, and whether the line has left the matrix there.

        Both ``(b, h, i, k)``; where it has left, the key is the nearest one inside.
        """
        lines, queries = self.at(view.site, view.queries.position.device), view.queries
        anchors = view.anchors(lines.anchors)  # (b, i|1, a)
        if lines.anchors > anchors.shape[2]:
            raise UsageError(
                f"the bias counts from segment {lines.anchors - DELIMITERS - 1} of the source, "
                f"which has {anchors.shape[2] - DELIMITERS - 1}: use the bias of the same task, "
                "and whole sources"
            )
        column = queries.position if view.site == "encoder" else queries.column
        origin, slope, shift, low, high, leaves, down, step = lines.formulas
        row = queries.row[:, None, :, None]

        def anchor(number: Tensor) -> Tensor:  # (h, 1, k) -> (b, h, i|1, k)
            if not lines.steps:
                return anchors[:, :, number[:, 0]].permute(0, 2, 1, 3)
            stepped = (number + step * row).maximum(number.clamp(max=DELIMITERS))
            stepped = stepped.clamp(max=anchors.shape[2] - 1)
            b = max(stepped.shape[0], anchors.shape[0])
            origins = anchors[:, :1, None].expand(b, *stepped.shape[1:3], -1)
            return origins.gather(3, stepped.expand(b, -1, -1, -1))

        ends = anchor(low), anchor(high)
        column = column[:, None, :, None]
        return located(anchor(origin), slope, shift + down * row, *ends, leaves, column)

    def biased(self, views: Sequence[AttentionView]) -> tuple[Tensor, Tensor]:
        """The key of each line at all sites and the bias on it, ``(b, h, i, k)`` each.

        Without a key its bias is ``MASKED``.
        """
        keys, biases = list[Tensor](), list[Tensor]()
        for view in views:
            key, outside = self.positions(view)
            value = self.at(view.site, key.device).value[:, None]
            keys.append(key + view.first if view.first else key)
            biases.append(value.expand(key.shape).masked_fill(outside, MASKED))
        return side_by_side(keys), side_by_side(biases)

    def gathered(self, views: Sequence[AttentionView]) -> Gathered:
        """The keys that each query looks at; only if every head is restricted.

        All but the highest of several lines that meet on one key are ``MASKED``.
        """
        return mask_duplicate_keys(*self.biased(views))

    def dense(self, views: Sequence[AttentionView]) -> Tensor:
        """The bias as a matrix over all keys, ``(b, h, i, j)``; transparent heads are 0."""
        keys = sum(view.keys.size for view in views)
        matrix = self.scattered(*self.biased(views), keys)
        return matrix.masked_fill_(self.transparent(matrix.device), 0.0)

    def scattered(self, key: Tensor, bias: Tensor, keys: int) -> Tensor:
        """A bias on some keys ``(b, h, i, k)`` as a matrix over all."""
        matrix = bias.new_full((*key.shape[:3], keys), self.off_line_bias)
        return matrix.scatter_reduce_(3, key, bias, "amax")

    def transparent(self, device: torch.device) -> Tensor:
        """Which heads have no line, ``(h, 1, 1)``."""
        return torch.tensor([len(x) == 0 for x in self.every], device=device)[:, None, None]


def mask_duplicate_keys(key: Tensor, bias: Tensor) -> Gathered:
    """``bias (b, h, i, k)``, in place: of lines that meet on one key the highest counts, once."""
    for k in range(1, key.shape[-1]):
        for earlier in range(k):
            same = key[..., k] == key[..., earlier]
            lower = bias[..., k] <= bias[..., earlier]
            bias[..., k].masked_fill_(same & lower, MASKED)
            bias[..., earlier].masked_fill_(same & ~lower, MASKED)
    return Gathered(key, bias)


def side_by_side(parts: Sequence[Tensor]) -> Tensor:
    """``(b|1, h, i|1, k)`` each, as one; those of one query stand for all."""
    if len(parts) == 1:
        return parts[0]
    b, i = (max(part.shape[at] for part in parts) for at in (0, 2))
    return torch.cat([part.expand(b, -1, i, -1) for part in parts], 3)


@dataclass(frozen=True)
class _Tensors:
    """The fields of the ``formulas`` of the lines at a site, ``(h, 1, k)`` each.

    ``value (h, k)``: of each line.

    A head with fewer lines than others is filled up with its last one again, which meets itself and
    counts once; one without any with ``NOWHERE``, masked. ``has_lines (h,)``: which heads have one.
    ``anchors``: how many the lines count from. ``steps``: does any line go on by parts, from row to
    row of an output?
    """

    formulas: Sequence[Tensor]
    value: Tensor
    has_lines: Tensor
    anchors: int
    steps: bool


def _build(heads: Heads, site: Site, device: torch.device) -> _Tensors:
    most = max(1, *map(len, heads))
    lines = [[(formula(line, site), line.value) for line in head] for head in heads]
    lines = [head or [(NOWHERE, MASKED)] for head in lines]
    filled = [pair for head in lines for pair in [*head, *[head[-1]] * (most - len(head))]]
    formulas = [line_formula for line_formula, _ in filled]
    numbers = torch.tensor(formulas, device=device).long().view(len(heads), 1, most, -1)
    fields = [column.contiguous() for column in numbers.unbind(-1)]
    fields[LEAVES] = fields[LEAVES].bool()
    return _Tensors(
        fields,
        value=torch.tensor([value for _, value in filled], device=device).float().view(-1, most),
        has_lines=torch.tensor([len(head) > 0 for head in heads], device=device),
        anchors=1 + max(max(line.origin, line.low, line.high) for line in formulas),
        steps=any(line.step for line in formulas),
    )
