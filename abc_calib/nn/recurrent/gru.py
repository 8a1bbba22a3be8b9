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
    gru: nn.GRU, x: Tensor, lengths: Tensor, first: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """States ``(b, s, k d)`` and last states ``(layers k, b, d)`` for ``x (b, s, e)``.

    ``k`` is 2 for a bidirectional GRU: forwards, then backwards. ``first``: as the last states.
    States behind a row's length mean nothing.
    """
    names = ("", "_reverse") if gru.bidirectional else ("",)
    steps = torch.arange(x.shape[1], device=x.device)
    index = (lengths[:, None] - 1 - steps).clamp(min=0)  # (b, s)
    last = (lengths - 1)[:, None, None].expand(-1, 1, gru.hidden_size)
    finals: list[Tensor] = []
    for layer in range(gru.num_layers):
        given, weights, biases = [], [], []
        for name in names:
            end = f"l{layer}{name}"
            mapped = nn.functional.linear(
                x, getattr(gru, f"weight_ih_{end}"), getattr(gru, f"bias_ih_{end}")
            )
            given.append(_turned(mapped, index) if name else mapped)
            weights.append(getattr(gru, f"weight_hh_{end}"))
            biases.append(getattr(gru, f"bias_hh_{end}"))
        part = slice(layer * len(names), (layer + 1) * len(names))
        start = x.new_zeros(len(names), len(x), gru.hidden_size) if first is None else first[part]
        stacked = torch.stack(given).permute(2, 0, 1, 3)  # (s, k, b, 3d)
        states = GruSequence.apply(stacked, torch.stack(weights), torch.stack(biases), start)
        outs = [states[:, k].transpose(0, 1) for k in range(len(names))]  # (b, s, d) each
        finals += [out.gather(1, last)[:, 0] for out in outs]
        x = torch.cat([outs[0], *(_turned(out, index) for out in outs[1:])], 2)
    return x, torch.stack(finals)


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


def _turned(x: Tensor, index: Tensor) -> Tensor:
    """``x (b, s, e)`` with its places in the order of ``index (b, s)``."""
    return x.gather(1, index[:, :, None].expand(-1, -1, x.shape[2]))


class GruSequence(Function):
    """All steps of ``k`` GRUs side by side.

    ``given (t, k, b, 3d)``: the input half of the gates (reset, update, new); ``weight
    (k, 3d, d)`` and ``bias (k, 3d)``: the recurrent half; ``first (k, b, d)``. Gives the states
    ``(t, k, b, d)``.
    """

    @staticmethod
    def forward(ctx: Any, given: Tensor, weight: Tensor, bias: Tensor, first: Tensor) -> Tensor:
        d = first.shape[2]
        maps, offset = weight.transpose(1, 2), bias[:, None]
        states = [first]
        gates, remembered, news = [], [], []
        for step in given.unbind(0):
            recurrent = torch.baddbmm(offset, states[-1], maps)
            gate = (step[:, :, : 2 * d] + recurrent[:, :, : 2 * d]).sigmoid_()
            kept = recurrent[:, :, 2 * d :]
            new = torch.addcmul(step[:, :, 2 * d :], gate[:, :, :d], kept).tanh_()
            states.append(torch.lerp(new, states[-1], gate[:, :, d:]))
            gates.append(gate)
            remembered.append(kept)
            news.append(new)
        every = torch.stack(states)
        if any(ctx.needs_input_grad):
            kept, new, gate = (torch.stack(part) for part in (remembered, news, gates))
            ctx.save_for_backward(weight, every, gate, kept, new)
        return every[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grads: Tensor) -> tuple[Tensor, ...]:
        weight, states, gates, remembered, new = ctx.saved_tensors
        d = new.shape[3]
        before = states[:-1]
        reset, update = gates[..., :d], gates[..., d:]
        # what does not depend on later steps, for all steps at once
        to_new = (1 - update) * (1 - new * new)
        slope = gates * (1 - gates)
        to_reset = to_new * remembered * slope[..., :d]
        to_update = (before - new) * slope[..., d:]
        factors = torch.cat([to_reset, to_update, to_new], 3)  # of the gradient, by gate
        recurrent = torch.cat([to_reset, to_update, to_new * reset], 3)
        carried = torch.zeros_like(before[0])
        totals = [carried] * len(grads)
        for t in range(len(grads) - 1, -1, -1):
            totals[t] = grads[t] + carried
            tripled = totals[t].repeat(1, 1, 3)
            carried = torch.baddbmm(totals[t] * update[t], tripled * recurrent[t], weight)
        total = torch.stack(totals).repeat(1, 1, 1, 3)
        to_recurrent = (total * recurrent).transpose(0, 1).flatten(1, 2)  # (k, t b, 3d)
        to_weight = to_recurrent.transpose(1, 2) @ before.transpose(0, 1).flatten(1, 2)
        return total * factors, to_weight, to_recurrent.sum(1), carried
