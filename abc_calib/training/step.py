"""One step on one batch, and a few of them without files."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from abc_calib.config import TrainOptions
from abc_calib.data import Batch
from abc_calib.nn.base import Model
from abc_calib.training.optimizers import optimizer_of
from abc_calib.training.schedule import NEARLY, learning_rate


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
