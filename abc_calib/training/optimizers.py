"""Optimisers by name: the model's own, or Muon for its matrices with it.

Muon (Jordan et al. 2024): a step is the momentum, with all its singular values near 1.
``torch.optim.Muon`` takes one matrix at a time, in bfloat16: on processors without instructions
for that, several times what the rest of a training step costs. Here matrices of one shape are
taken at once, in their own precision; up to rounding the steps are the same.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from abc_calib.config import TrainOptions
from abc_calib.errors import OptionError
from abc_calib.nn.base import Model

FACTOR = 8.0
"""Muon's rate, by the other weights' one: its updates have singular values of about 1."""
MOMENTUM, DECAY = 0.9, 0.01
LINEAR, CUBIC, QUINTIC = 3.4445, -4.7750, 2.0315
"""Of the polynomial that takes singular values between 0 and 1 to about 1 (Jordan et al.)."""
TIMES = 5


def optimizer_of(model: Model, name: str) -> torch.optim.Optimizer:
    """``adam``: the model's own. ``muon``: that for vectors, embeddings and the output alone.

    Muon orthogonalises the update of each of ``model.matrices``.
    """
    optimizer = model.optimizer()
    return optimizer if name == "adam" else Muon(optimizer, model.matrices)


def check_optimizer(kind: type[Model], options: TrainOptions) -> None:
    """``OptionError`` for an optimiser that a kind of model does not take."""
    if options.optimizer not in kind.optimizers:
        rule = f"this model takes {' or '.join(kind.optimizers)}"
        raise OptionError("optimizer", options.optimizer, rule)


class Muon(torch.optim.Optimizer):
    """Muon for ``matrices``, with Nesterov's momentum and decoupled weight decay; else ``own``.

    The rate of a matrix with more rows than columns is higher by the root of their ratio. ``own``
    keeps the state of the other weights here, in the groups that it had.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, matrices: list[Tensor]):
        matrix_ids = {id(weight) for weight in matrices}
        groups = [
            {**g, "params": [w for w in g["params"] if id(w) not in matrix_ids]}
            for g in optimizer.param_groups
        ]
        settings = {"momentum": MOMENTUM, "weight_decay": DECAY, "factor": FACTOR}
        super().__init__([*groups, {"params": matrices, **settings}], {"lr": 1e-3})
        self.own = optimizer
        optimizer.state = self.state

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        *groups, muon_group = self.param_groups
        self.own.param_groups, self.own.state = groups, self.state
        self.own.step()
        by_shape: dict[torch.Size, list[tuple[Tensor, Tensor]]] = {}
        for weight in muon_group["params"]:
            if weight.grad is not None:
                update = wide(self.update(weight, muon_group["momentum"]))
                by_shape.setdefault(update.shape, []).append((weight, update))
        for group in by_shape.values():
            changes = orthogonal(torch.stack([update for _, update in group]))
            for (weight, _), change in zip(group, changes, strict=True):
                tall = max(1.0, weight.shape[0] / weight.shape[1])
                weight.mul_(1 - muon_group["lr"] * muon_group["weight_decay"])
                wide(weight).add_(change, alpha=-muon_group["lr"] * math.sqrt(tall))

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
