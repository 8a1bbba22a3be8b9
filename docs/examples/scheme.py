"""A position scheme: explained in CONTRIBUTING.md, executed by a test."""

import torch
from torch import nn
from torch.nn.functional import softplus

from abc_calib.nn.positions import SCHEMES, Scheme


class Recency(Scheme):
    """Each head prefers what was just written, by a strength that it learns."""

    def __init__(self, shape, options):
        super().__init__(shape, options)
        self.strength = nn.Parameter(torch.empty(shape.heads))
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.zeros_(self.strength)

    def score_bias(self, queries, keys, view):
        if view.site != "self":
            return None
        return -softplus(self.strength)[None, :, None, None] * view.offsets().abs()


SCHEMES["recency"] = Recency
