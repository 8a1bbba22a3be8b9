"""ALiBi: attention falls with distance."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from abc_calib.config import Options
from abc_calib.geometry.coords import View
from abc_calib.nn.positions.base import Scheme, Shape


def slopes(heads: int) -> list[float]:
    """The slope of each head, as published (Press et al. 2022, section 3, and their code).

    For a power of two the geometric sequence that starts at its own ratio ``2^(-8/h)``; for
    another number the sequence of the power of two below it, then every other slope of the
    next one.
    """
    power = 2 ** int(math.log2(heads))
    first = [2 ** (-8 * k / power) for k in range(1, power + 1)]
    between = [2 ** (-8 * k / (2 * power)) for k in range(1, 2 * power, 2)]
    return (first + between)[:heads]


class AlibiOptions(Options):
    """``cross``: the end of the source from which cross-attention counts its keys."""

    cross: Literal["start", "end"] = "start"


class Alibi(Scheme):
    """A penalty a head that is linear in distance (Press et al. 2022, section 3): ``-m |i - j|``.

    The paper has decoder self-attention only, where ``j <= i``. In the encoder the distance is
    symmetric. In cross-attention row ``i`` is as far from key ``j`` as their positions are
    apart; with ``cross=end`` keys are counted backwards from the last token of the source,
    ``|i - (s - 1 - j)|``, as an answer is written from its last digit on. Nothing is learned.
    """

    options_type = AlibiOptions
    has_score_bias = True

    def __init__(self, shape: Shape, options: AlibiOptions):
        super().__init__(shape, options)
        self.cross = options.cross

    def score_bias(self, queries: Tensor, keys: Tensor, view: View) -> Tensor:
        if view.site == "cross" and self.cross == "end":
            place = view.keys.length - 1 - view.keys.place  # (b, j)
            distance = (place[:, None] - view.queries.place[..., None])[:, None]  # (b, 1, i, j)
        else:
            distance = view.offsets()
        slope = torch.tensor(slopes(self.shape.heads), device=queries.device)
        return -slope[:, None, None] * distance.abs()
