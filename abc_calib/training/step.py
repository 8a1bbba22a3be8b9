"""One step on one batch: its learning rate, its optimiser, and a few steps without files.

Muon (Jordan et al. 2024): a step is the momentum, with all its singular values near 1.
``torch.optim.Muon`` takes one matrix at a time, in bfloat16: on processors without instructions
for that, several times what the rest of a training step costs. Here matrices of one shape are
taken at once, in their own precision; up to rounding the steps are the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from abc_calib.config import TrainOptions
from abc_calib.data import Batch
from abc_calib.nn.base import Model

NEARLY = 0.8
"""Exact match from which the learning rate cools down."""
PLATEAU = 4
"""Validations without an improvement after which the rate is halved, in both papers' code."""
THRESHOLD = 1e-4
"""What counts as an improvement there, relative to the best (as in PyTorch's scheduler)."""
TIE = 1e-3
"""Accuracies this close are alike, and the later of them counts (Ray Chowdhury & Caragea)."""
FACTOR = 8.0
"""Muon's rate, by the other weights' one: its updates have singular values of about 1."""
MOMENTUM, DECAY = 0.9, 0.01
LINEAR, CUBIC, QUINTIC = 3.4445, -4.7750, 2.0315
"""Of the polynomial that takes singular values between 0 and 1 to about 1 (Jordan et al.)."""
TIMES = 5


def optimise(
    model: Model,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    rate: float,
    max_grad_norm: float = 1.0,
    teacher_forcing: bool = True,
) -> Tensor:
    """One step on one batch at a learning rate; gives the loss."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("factor", 1.0)
    source, target = batch.source.to(model.device), batch.target.to(model.device)
    loss = model.loss(source, target, teacher_forcing)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    optimizer.step()
    return loss.detach()


def fit_steps(
    model: Model,
    options: TrainOptions,
    batch: Callable[[int], Batch],
    judge: Callable[[int], tuple[float, bool]] = lambda _: (0.0, False),
) -> None:
    """Train in place for the steps of ``options``, on ``batch(step)``, keeping no files.

    ``judge``: the exact match after a number of steps (0 where it was not measured), and whether
    the training is over.
    """
    optimizer = optimizer_of(model, options.optimizer)
    cooling_from: int | None = None
    for step in range(options.steps):
        model.train()
        optimise(model, optimizer, batch(step), learning_rate(options, step, cooling_from))
        accuracy, over = judge(step + 1)
        if cooling_from is None and accuracy >= NEARLY:
            cooling_from = step + 1
        if over:
            break
    model.eval()


# The learning rate


def learning_rate(options: TrainOptions, step: int, cooling_from: int | None = None) -> float:
    """Linear warm-up, a cosine to zero at the last step, and the cooldown.

    A model that has just found the algorithm is right four times in five, and at the full rate
    stays there for a long time; so from then on (``cooling_from``) the rate falls linearly to a
    twentieth within ``cooldown`` steps. With the schedule ``plateau`` only the warm-up is left.
    """
    warm = min(1.0, (step + 1) / max(options.warmup, 1))
    if options.schedule == "plateau":
        return options.learning_rate * warm
    cosine = 0.5 * (1 + math.cos(math.pi * step / options.steps))
    cool = 1.0
    if cooling_from is not None and options.cooldown:
        cool = max(0.05, 1 - (step - cooling_from) / options.cooldown)
    return options.learning_rate * warm * cosine * cool


@dataclass(frozen=True)
class PlateauState:
    """Where a training stands after its validations.

    ``factor`` of the learning rate; ``impatience``: validations since the best; ``best``: is the
    last one (with what is as good) the best?
    """

    factor: float = 1.0
    impatience: int = 0
    best: bool = True


def plateau_state(scores: Iterable[float], tie: float = 0.0) -> PlateauState:
    """What follows from the ``scores`` of all validations so far, the higher the better.

    The same for the same scores, so that an interrupted training needs no memory of it. ``tie``:
    scores that are this much lower than the best are as good.
    """
    factor, waited, impatience = 1.0, 0, 0
    highest, top, best = -math.inf, -math.inf, True
    for score in scores:
        if highest == -math.inf or score > highest + THRESHOLD * abs(highest):
            highest, waited = score, 0
        else:
            waited += 1
        if waited > PLATEAU:
            factor, waited = factor / 2, 0
        best = score > top - tie if tie else score > top
        impatience = 0 if best else impatience + 1
        top = max(top, score)
    return PlateauState(factor, impatience, best)


# Optimisers


def optimizer_of(model: Model, name: str) -> torch.optim.Optimizer:
    """``adam``: the model's own. ``muon``: that for vectors, embeddings and the output alone.

    Muon orthogonalises the update of each of ``model.matrices``.
    """
    optimizer = model.optimizer()
    return optimizer if name == "adam" else Muon(optimizer, model.matrices)


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
                state, gradient = self.state[weight], weight.grad
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(weight)
                mean = state["momentum_buffer"].lerp_(gradient, 1 - muon_group["momentum"])
                update = wide(gradient.lerp(mean, muon_group["momentum"]))
                by_shape.setdefault(update.shape, []).append((weight, update))
        for group in by_shape.values():
            changes = orthogonal(torch.stack([update for _, update in group]))
            for (weight, _), change in zip(group, changes, strict=True):
                tall = max(1.0, weight.shape[0] / weight.shape[1])
                weight.mul_(1 - muon_group["lr"] * muon_group["weight_decay"])
                wide(weight).add_(change, alpha=-muon_group["lr"] * math.sqrt(tall))


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
