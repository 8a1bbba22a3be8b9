"""One step on one batch, and a few of them without files."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from abc_calib.config import RETRAIN, TrainOptions
from abc_calib.data import Batch, Data
from abc_calib.nn.base import Model
from abc_calib.training.schedule import learning_rate


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
        group["lr"] = rate
    source, target = batch.source.to(model.device), batch.target.to(model.device)
    loss = model.loss(source, target, teacher_forcing)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    optimizer.step()
    return loss.detach()


def fit_steps(model: Model, options: TrainOptions, batch: Callable[[int], Batch]) -> None:
    """Train in place for the steps of ``options``, on ``batch(step)``, keeping no files."""
    optimizer = model.optimizer()
    model.train()
    for step in range(options.steps):
        optimise(model, optimizer, batch(step), learning_rate(options, step))
    model.eval()


def fit_briefly(model: Model, data: Data, steps: int) -> None:
    """``fit_steps`` with the default retraining options."""
    options = RETRAIN.model_copy(update={"steps": steps})
    fit_steps(model, options, lambda step: data.training(step, options.batch))
