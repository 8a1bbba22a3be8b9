"""Optimisers by name: the model's own, or Muon for its matrices beside it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from abc_calib.config import TrainOptions
from abc_calib.errors import OptionError
from abc_calib.nn.base import Model
from abc_calib.training.muon import Muon

FACTOR = 8.0
"""Muon's rate, by the other weights' one: its updates have singular values of about 1."""
MOMENTUM, DECAY = 0.9, 0.01


def optimizer_of(model: Model, name: str) -> AnyOptimizer:
    """``adam``: the model's own. ``muon``: that for vectors, embeddings and the output alone.

    Muon (Jordan et al. 2024) orthogonalises the update of each of ``model.matrices``.
    """
    own = model.optimizer()
    if name == "adam":
        return own
    matrices = model.matrices
    taken = {id(weight) for weight in matrices}
    for group in own.param_groups:
        group["params"] = [weight for weight in group["params"] if id(weight) not in taken]
    return Together(own, Muon(matrices, MOMENTUM, DECAY, factor=FACTOR))


def check_optimizer(kind: type[Model], options: TrainOptions) -> None:
    """``OptionError`` for an optimiser that a kind of model does not take."""
    if options.optimizer not in kind.optimizers:
        rule = f"this model takes {' or '.join(kind.optimizers)}"
        raise OptionError("optimizer", options.optimizer, rule)


class Together:
    """Several optimisers as one; the state of each is numbered on from that of the one before."""

    def __init__(self, *parts: torch.optim.Optimizer):
        self.parts = parts
        self.param_groups = [group for part in parts for group in part.param_groups]

    def zero_grad(self, set_to_none: bool = True) -> None:
        for part in self.parts:
            part.zero_grad(set_to_none)

    def step(self) -> None:
        for part in self.parts:
            part.step()

    def state_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {"state": {}, "param_groups": []}
        for part, first in zip(self.parts, self._firsts(), strict=True):
            mine = part.state_dict()
            found["state"] |= {first + index: state for index, state in mine["state"].items()}
            found["param_groups"] += mine["param_groups"]
        return found

    def load_state_dict(self, given: dict[str, Any]) -> None:
        groups = iter(given["param_groups"])
        states = []
        for part, first in zip(self.parts, self._firsts(), strict=True):
            last = first + _weights(part.param_groups)
            states.append({i - first: s for i, s in given["state"].items() if first <= i < last})
        if any(states) and not all(states):
            raise ValueError("it lacks what one of the optimisers keeps")
        for part, state in zip(self.parts, states, strict=True):
            own = [next(groups) for _ in part.param_groups]
            part.load_state_dict({"state": state, "param_groups": own})
        self.param_groups = [group for part in self.parts for group in part.param_groups]

    def _firsts(self) -> Iterable[int]:
        first = 0
        for part in self.parts:
            yield first
            first += _weights(part.param_groups)


AnyOptimizer = torch.optim.Optimizer | Together


def _weights(groups: Iterable[dict[str, Any]]) -> int:
    return sum(len(group["params"]) for group in groups)
