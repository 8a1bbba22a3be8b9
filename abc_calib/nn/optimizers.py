"""Adam as ``torch.optim`` has it, without the compiler that this imports, as large as torch."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor


class Optimizer:
    """What a training asks of a ``torch.optim.Optimizer``.

    ``state``: what is kept of each weight, by its number and a name of ``names``.
    """

    names: ClassVar[tuple[str, ...]]

    def __init__(self, weights: Iterable[Tensor], **group: float):
        self.param_groups: list[dict[str, Any]] = [{"params": list(weights), "lr": 1e-3, **group}]
        self.state: dict[int, dict[str, Tensor]] = {}

    def weights(self) -> Iterator[tuple[int, Tensor, dict[str, Any]]]:
        """Those that have a gradient, each with its number and its group."""
        every = ((weight, group) for group in self.param_groups for weight in group["params"])
        for number, (weight, group) in enumerate(every):
            if weight.grad is not None:
                yield number, weight, group

    @abstractmethod
    def step(self) -> None:
        """Change the weights by their gradients."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        for _, weight, _ in self.weights():
            if set_to_none:
                weight.grad = None
            else:
                weight.grad.zero_()  # type: ignore[union-attr]

    def state_dict(self) -> dict[str, Any]:
        numbers = iter(range(sum(len(group["params"]) for group in self.param_groups)))
        groups = [
            {**group, "params": [next(numbers) for _ in group["params"]]}
            for group in self.param_groups
        ]
        return {"state": dict(self.state), "param_groups": groups}

    def load_state_dict(self, given: Mapping[str, Any]) -> None:
        """``ValueError`` for the state of other weights."""
        every = [weight for group in self.param_groups for weight in group["params"]]
        for number, kept in given["state"].items():
            shapes = [every[number].shape, torch.Size()] if number < len(every) else []
            fits = all(value.shape in shapes for value in kept.values())
            if not fits or set(kept) != set(self.names):
                raise ValueError("the optimiser's state is of other weights")
        self.state = {
            number: {name: value.to(every[number].device) for name, value in kept.items()}
            for number, kept in given["state"].items()
        }
        for group, loaded in zip(self.param_groups, given["param_groups"], strict=True):
            group.update({name: value for name, value in loaded.items() if name != "params"})


class Adam(Optimizer):
    """Adam with decoupled weight decay (Kingma & Ba 2015, Loshchilov & Hutter 2019).

    All weights at once, by the operation behind ``torch.optim.AdamW(fused=True)``.
    """

    names = ("step", "exp_avg", "exp_avg_sq")
    eps = 1e-8

    def __init__(
        self,
        weights: Iterable[Tensor],
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 0.0,
    ):
        super().__init__(weights, weight_decay=weight_decay)
        self.betas = betas

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            mine = [(n, weight) for n, weight, own in self.weights() if own is group]
            if not mine:
                continue
            states = [self._state(number, weight) for number, weight in mine]
            steps, means, squares = ([state[name] for state in states] for name in self.names)
            for count in steps:
                count += 1
            torch._fused_adamw_(
                [weight for _, weight in mine],
                [weight.grad for _, weight in mine],  # type: ignore[misc]
                means,
                squares,
                [],
                steps,
                lr=group["lr"],
                beta1=self.betas[0],
                beta2=self.betas[1],
                weight_decay=group["weight_decay"],
                eps=self.eps,
                amsgrad=False,
                maximize=False,
            )

    def _state(self, number: int, weight: Tensor) -> dict[str, Tensor]:
        if number not in self.state:
            self.state[number] = {
                "step": torch.zeros((), device=weight.device),
                "exp_avg": torch.zeros_like(weight),
                "exp_avg_sq": torch.zeros_like(weight),
            }
        return self.state[number]
