"""Muon (Jordan et al. 2024): a step is the momentum, with all its singular values near 1.

``torch.optim.Muon`` takes one matrix at a time, in bfloat16: on processors without instructions
for that, several times what the rest of a training step costs. Here matrices of one shape are
taken at once, in their own precision; up to rounding the steps are the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

LINEAR, CUBIC, QUINTIC = 3.4445, -4.7750, 2.0315
"""Of the polynomial that takes singular values between 0 and 1 to about 1 (Jordan et al.)."""
TIMES = 5


class Muon(torch.optim.Optimizer):
    """For matrices alone, with Nesterov's momentum and decoupled weight decay.

    The rate of a matrix with more rows than columns is higher by the root of their ratio.
    """

    def __init__(
        self, matrices: Iterable[Tensor], momentum: float, weight_decay: float, **group: float
    ):
        usual = {"lr": 1e-3, "momentum": momentum, "weight_decay": weight_decay, **group}
        super().__init__(list(matrices), usual)

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        by_shape: dict[torch.Size, list[tuple[Tensor, Tensor, dict[str, Any]]]] = {}
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    update = wide(self.update(weight, group["momentum"]))
                    by_shape.setdefault(update.shape, []).append((weight, update, group))
        for some in by_shape.values():
            weights, updates, groups = zip(*some, strict=True)
            made = orthogonal(torch.stack(updates))
            for weight, change, group in zip(weights, made, groups, strict=True):
                tall = max(1.0, weight.shape[0] / weight.shape[1])
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                wide(weight).add_(change, alpha=-group["lr"] * math.sqrt(tall))

    def update(self, weight: Tensor, momentum: float) -> Tensor:
        """What the momentum and the gradient of a matrix say together."""
        state, gradient = self.state[weight], weight.grad
        assert gradient is not None
        if not state:
            state["momentum_buffer"] = torch.zeros_like(weight)
        mean = state["momentum_buffer"].lerp_(gradient, 1 - momentum)
        return gradient.lerp(mean, momentum)


def wide(matrix: Tensor) -> Tensor:
    """``(r, c)``, or its transpose where it has more rows than columns."""
    return matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T


def orthogonal(matrices: Tensor) -> Tensor:
    """``(n, r, c)``, ``r <= c``: the same singular vectors, with values near 1.

    A step multiplies from the left by a polynomial of ``x x^T``; where that is much smaller than
    ``x``, the steps are made there alone, and ``x`` is multiplied once.
    """
    x = matrices / matrices.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    narrow = 2 * x.shape[1] > x.shape[2]
    gram, product = x @ x.mT, None
    for time in range(TIMES):
        factor = torch.baddbmm(gram, gram, gram, beta=CUBIC, alpha=QUINTIC)
        factor.diagonal(dim1=1, dim2=2).add_(LINEAR)
        if narrow:
            x = factor @ x
        else:
            product = factor if product is None else factor @ product
        if time + 1 < TIMES:
            gram = x @ x.mT if narrow else factor @ gram @ factor
    return x if product is None else product @ x
