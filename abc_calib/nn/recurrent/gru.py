"""A GRU over whole sequences, all directions at once, with a gradient written by hand.

The same numbers as ``nn.GRU`` on packed sequences, from its parameters. Rows start together and
pads come last, so that a direction that reads backwards reads each row from its own end.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable


def run_gru(
    gru: nn.GRU, x: Tensor, ids: Tensor, lengths: Tensor, first: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """States ``(b, s, k d)`` and last states ``(layers k, b, d)`` for the rows ``ids (b, s)`` of
    ``x (n, e)``, which are mapped once, however often they are read.

    ``k`` is 2 for a bidirectional GRU: forwards, then backwards. ``first``: as the last states.
    States behind a row's length mean nothing.
    """
    names = ("", "_reverse") if gru.bidirectional else ("",)
    k, d, (b, s) = len(names), gru.hidden_size, ids.shape
    rows, places = torch.arange(b, device=x.device), torch.arange(s, device=x.device)
    back = (lengths[:, None] - 1 - places).clamp(min=0)  # (b, s)
    order = torch.stack([places.expand(b, -1), back])[:k]  # (k, b, s)
    base = torch.arange(k, device=x.device)[:, None, None] * (s + 1)
    read = ((base + 1 + order) * b + rows[:, None]).permute(1, 2, 0).flatten()  # (b s k,)
    last = ((base[:, 0] + lengths) * b + rows).flatten()  # (k b,)
    finals: list[Tensor] = []
    for layer in range(gru.num_layers):
        parts = [
            [getattr(gru, f"{part}_l{layer}{name}") for name in names]
            for part in ("weight_ih", "bias_ih", "weight_hh", "bias_hh")
        ]
        mapped = nn.functional.linear(x, torch.cat(parts[0]), torch.cat(parts[1]))
        turned = torch.stack([ids.gather(1, each) * k + i for i, each in enumerate(order)])
        at = turned.transpose(1, 2).flatten()
        given = mapped.view(-1, 3 * d).index_select(0, at).view(k, s, b, 3 * d)
        part = slice(layer * k, (layer + 1) * k)
        start = x.new_zeros(k, b, d) if first is None else first[part]
        states = GruSequence.apply(given, torch.stack(parts[2]), torch.stack(parts[3]), start)
        flat = states.view(-1, d)
        finals.append(flat.index_select(0, last).view(k, b, d))
        x = flat.index_select(0, read).view(b * s, k * d)
        ids = torch.arange(b * s, device=x.device).view(b, s)
    return x.view(b, s, k * d), torch.cat(finals)


def draw_closed(gru: nn.GRU | nn.GRUCell) -> None:
    """Draw the weights of a GRU with closed reset gates, as the code of Dubois et al. (2020) does.

    Gate by gate, Xavier-uniform maps of the input and orthogonal ones of the state; both biases
    of the reset gate are -1, all others stay as PyTorch draws them.
    """
    for name, parameter in gru.named_parameters():
        gates = parameter.chunk(3)
        if "bias" in name:
            nn.init.constant_(gates[0], -1.0)
        else:
            draw = nn.init.orthogonal_ if "hh" in name else nn.init.xavier_uniform_
            for gate in gates:
                draw(gate)


sigmoid_backward, tanh_backward = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward
"""Of a gradient and what the function gave."""


class GruSequence(Function):
    """All steps of ``k`` GRUs side by side.

    ``given (k, t, b, 3d)``: the input half of the gates (reset, update, new); ``weight
    (k, 3d, d)`` and ``bias (k, 3d)``: the recurrent half; ``first (k, b, d)``. Gives the states
    ``(k, 1 + t, b, d)``, the first one too.
    """

    @staticmethod
    def forward(ctx: Any, given: Tensor, weight: Tensor, bias: Tensor, first: Tensor) -> Tensor:
        k, t, b, _ = given.shape
        d = first.shape[2]
        maps, offset = weight.transpose(1, 2), bias[:, None]
        states = given.new_empty(k, t + 1, b, d)
        gates, new = given.new_empty(k, t, b, 2 * d), given.new_empty(k, t, b, d)
        recurrent = torch.empty_like(given)
        states[:, 0] = first
        before, *after = states.unbind(1)
        halves = (x.split((2 * d, d), 3) for x in (given, recurrent))
        (read, fresh), (both, kept) = ([x.unbind(1) for x in pair] for pair in halves)
        made, reset, update = (x.unbind(1) for x in (gates, *gates.chunk(2, 3)))
        for i, (whole, tried, state) in enumerate(
            zip(recurrent.unbind(1), new.unbind(1), after, strict=True)
        ):
            torch.baddbmm(offset, before, maps, out=whole)
            torch.add(read[i], both[i], out=made[i]).sigmoid_()
            torch.addcmul(fresh[i], reset[i], kept[i], out=tried).tanh_()
            before = torch.lerp(tried, before, update[i], out=state)
        ctx.save_for_backward(weight, states, gates, recurrent[..., 2 * d :], new)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grads: Tensor) -> tuple[Tensor, ...]:
        weight, states, gates, remembered, new = ctx.saved_tensors
        k, t, b, d = new.shape
        before = states[:, :-1]
        given, recurrent = slopes(before, gates, remembered, new)
        update = gates[..., d:].unbind(1)
        totals, to_recurrent = torch.empty_like(new), torch.empty_like(recurrent)
        outs = to_recurrent.unbind(1), to_recurrent.flatten(3).unbind(1), totals.unbind(1)
        carried, factors, own = torch.zeros_like(new[:, 0]), recurrent.unbind(1), grads.unbind(1)
        for i in range(t - 1, -1, -1):
            total = torch.add(own[i + 1], carried, out=outs[2][i])
            torch.mul(factors[i], total[:, :, None], out=outs[0][i])
            carried = torch.baddbmm(total * update[i], outs[1][i], weight)
        flat = to_recurrent.view(k, t * b, 3 * d)
        to_weight = flat.transpose(1, 2) @ before.flatten(1, 2)
        to_given = given.mul_(totals[..., None, :]).flatten(3)
        return to_given, to_weight, flat.sum(1), carried + own[0]


def slopes(before: Tensor, gates: Tensor, remembered: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
    """What a state's gradient is multiplied with to be that of both halves of its gates.

    ``(..., 3, d)`` each, of the half that is read and of the recurrent one, in the order reset,
    update, new; from the state ``before``, the ``gates`` reset and update, what the new gate
    remembers, and the ``new`` gate.
    """
    reset, update = gates.chunk(2, -1)
    given = new.new_empty(*new.shape[:-1], 3, new.shape[-1])
    to_reset, to_update, to_new = given.unbind(-2)
    to_new.copy_(tanh_backward(1 - update, new))
    torch.mul(to_new, remembered, out=to_reset)
    torch.sub(before, new, out=to_update)
    both = given[..., :2, :]
    both.copy_(sigmoid_backward(both, gates.unflatten(-1, (2, -1))))
    recurrent = given.clone()
    recurrent[..., 2, :] *= reset
    return given, recurrent
