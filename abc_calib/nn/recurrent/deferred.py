"""Steps whose large gradients are computed once, after the last of them.

A decoder multiplies the same matrices at every step. Left to autograd, each step makes a
gradient of the whole matrix and adds it to the one before, and this is most of what a training
step costs. Here a step only keeps its two factors; all of them are multiplied at once when the
last step has gone backwards.

An *anchor* sees to the order: a tensor of one element that depends on the matrices and on which
every step depends, so that its own backward runs after those of all steps.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from abc_calib.nn.recurrent.gru import sigmoid_backward, tanh_backward


class Deferred:
    """What several steps share: matrices, and the factors of their gradients."""

    def __init__(self, *shared: Tensor):
        self.factors: list[tuple[Tensor, ...]] = []
        self.anchor: Tensor = _Anchor.apply(self, *shared)

    def collected(self) -> list[Tensor]:
        """The factors of all steps, each stacked as ``(b, t, ...)``; they are forgotten."""
        columns = zip(*self.factors, strict=True)
        stacked = [torch.stack(column, 1) for column in columns]
        self.factors = []
        return stacked

    def gradients(self) -> tuple[Tensor | None, ...]:
        """The gradient of each shared tensor."""
        raise NotImplementedError


class _Anchor(Function):
    @staticmethod
    def forward(ctx: Any, owner: Deferred, *shared: Tensor) -> Tensor:
        ctx.owner = owner
        return shared[0].new_zeros(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor | None, ...]:
        return (None, *ctx.owner.gradients())


class Product(Deferred):
    """``constant + matrix x`` for many ``x (b, k)``, with ``matrix (b, n, k)``."""

    def __init__(self, matrix: Tensor):
        self.matrix = matrix.detach()
        super().__init__(matrix)

    def __call__(self, x: Tensor, constant: Tensor) -> Tensor:
        """``(b, n)`` for ``x (b, k)`` and ``constant (b, n)``."""
        return _Multiply.apply(x, constant, self.anchor, self)

    def gradients(self) -> tuple[Tensor | None, ...]:
        grads, inputs = self.collected()
        return (grads.transpose(1, 2) @ inputs,)


class _Multiply(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, constant: Tensor, anchor: Tensor, owner: Product) -> Tensor:
        ctx.owner = owner
        ctx.save_for_backward(x, anchor)
        return (owner.matrix * x[:, None]).sum(2).add_(constant)  # faster than bmm by a column

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, anchor = ctx.saved_tensors
        ctx.owner.factors.append((grad, x))
        to_x = torch.bmm(grad[:, None], ctx.owner.matrix)[:, 0]
        return to_x, grad, torch.zeros_like(anchor), None


class GruSteps(Deferred):
    """Steps of a GRU (Cho et al. 2014, as in PyTorch) that reads a mixture of source places.

    ``values (b, s, e)`` of the places, which ``maps (3d, e)`` takes to the gates; ``weight
    (3d, d)`` and ``bias (3d,)``: the recurrent half. Gates are in the order reset, update, new.
    """

    def __init__(self, values: Tensor, maps: Tensor, weight: Tensor, bias: Tensor):
        shared = (values, maps, weight, bias)
        self.values, self.maps, self.weight, self.bias = (x.detach() for x in shared)
        super().__init__(*shared)

    def __call__(self, weights: Tensor, read: Tensor, state: Tensor) -> Tensor:
        """The next state ``(b, d)`` from attention weights ``(b, s)``, and from ``read (b, 3d)``,
        what the token gives to the gates."""
        return _Step.apply(weights, read, state, self.anchor, self)

    def gradients(self) -> tuple[Tensor | None, ...]:
        to_mixed, weights, *rest = self.collected()
        to_given, mixed, to_recurrent, states = (x.flatten(0, 1) for x in rest)
        to_values = weights.transpose(1, 2) @ to_mixed
        return to_values, to_given.T @ mixed, to_recurrent.T @ states, to_recurrent.sum(0)


class _Step(Function):
    @staticmethod
    def forward(
        ctx: Any, weights: Tensor, read: Tensor, state: Tensor, anchor: Tensor, owner: GruSteps
    ) -> Tensor:
        mixed = torch.bmm(weights[:, None], owner.values)[:, 0]
        given = torch.addmm(read, mixed, owner.maps.T)
        after, *kept = _gated(given, torch.addmm(owner.bias, state, owner.weight.T), state)
        ctx.owner = owner
        ctx.save_for_backward(weights, mixed, anchor, state, *kept)
        return after

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weights, mixed, anchor, state, *kept = ctx.saved_tensors
        owner = ctx.owner
        to_given, to_recurrent, held = _to_gates(grad, state, *kept)
        to_mixed = to_given @ owner.maps
        owner.factors.append((to_mixed, weights, to_given, mixed, to_recurrent, state))
        to_weights = (owner.values * to_mixed[:, None]).sum(2)
        to_state = torch.addmm(held, to_recurrent, owner.weight)
        return to_weights, to_given, to_state, torch.zeros_like(anchor), None


class CellSteps(Deferred):
    """Steps of a GRU cell that reads the state of the layer below it.

    Its parameters in PyTorch's order: ``reads (3d, e)`` and ``weight (3d, d)``, their biases.
    """

    def __init__(self, reads: Tensor, weight: Tensor, reads_bias: Tensor, bias: Tensor):
        shared = (reads, weight, reads_bias, bias)
        self.reads, self.weight, self.reads_bias, self.bias = (x.detach() for x in shared)
        super().__init__(*shared)

    def __call__(self, below: Tensor, state: Tensor) -> Tensor:
        """The next state ``(b, d)`` from that of the layer below, ``(b, e)``."""
        return _CellStep.apply(below, state, self.anchor, self)

    def gradients(self) -> tuple[Tensor | None, ...]:
        given, belows, recurrent, states = (x.flatten(0, 1) for x in self.collected())
        return given.T @ belows, recurrent.T @ states, given.sum(0), recurrent.sum(0)


class _CellStep(Function):
    @staticmethod
    def forward(ctx: Any, below: Tensor, state: Tensor, anchor: Tensor, owner: CellSteps) -> Tensor:
        given = torch.addmm(owner.reads_bias, below, owner.reads.T)
        after, *kept = _gated(given, torch.addmm(owner.bias, state, owner.weight.T), state)
        ctx.owner = owner
        ctx.save_for_backward(below, anchor, state, *kept)
        return after

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        below, anchor, state, *kept = ctx.saved_tensors
        owner = ctx.owner
        to_given, to_recurrent, held = _to_gates(grad, state, *kept)
        owner.factors.append((to_given, below, to_recurrent, state))
        to_state = torch.addmm(held, to_recurrent, owner.weight)
        return to_given @ owner.reads, to_state, torch.zeros_like(anchor), None


def _gated(given: Tensor, recurrent: Tensor, state: Tensor) -> tuple[Tensor, ...]:
    """The next state ``(b, d)`` from both halves of the gates ``(b, 3d)``, and what its gradient
    needs: reset and update gate ``(b, 2d)``, what the new gate remembers, the new gate."""
    width = state.shape[1]
    gates = (given[:, : 2 * width] + recurrent[:, : 2 * width]).sigmoid_()
    reset, update = gates[:, :width], gates[:, width:]
    remembered = recurrent[:, 2 * width :]
    new = torch.addcmul(given[:, 2 * width :], reset, remembered).tanh_()
    return torch.lerp(new, state, update), gates, remembered, new


def _to_gates(
    grad: Tensor, state: Tensor, gates: Tensor, remembered: Tensor, new: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """From the gradient ``(b, d)`` of the next state: those of both halves of the gates
    ``(b, 3d)``, and the part of the state's own that does not go through the gates."""
    width = state.shape[1]
    held = grad * gates[:, width:]
    to_new = tanh_backward(grad - held, new)
    to_both = torch.cat([to_new * remembered, grad * (state - new)], 1)
    to_both = sigmoid_backward(to_both, gates)
    to_given = torch.cat([to_both, to_new], 1)
    to_recurrent = torch.cat([to_both, to_new * gates[:, :width]], 1)
    return to_given, to_recurrent, held
