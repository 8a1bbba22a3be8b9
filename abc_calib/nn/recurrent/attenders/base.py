"""What an attender is: at each step of a decoder it turns a query into weights over the source.

Everything that does not depend on the previous step (projected keys, position scores) is
computed once by ``prepare``; ``step`` does the rest. Shapes: ``b`` batch, ``s`` source, ``d``
width of states and queries, ``t`` steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

Carry = dict[str, Tensor]
"""What one step leaves to the next, and shows: each ``(b, 1)`` but ``scores (b, s)``."""


@dataclass(frozen=True)
class Memory:
    """The encoded source: ``states (b, s, d)``, ``lengths (b,)``, ``summary (b, d)``.

    Valid places come first; what stands behind them is never looked at.
    """

    states: Tensor
    lengths: Tensor
    summary: Tensor

    @cached_property
    def mask(self) -> Tensor:
        """``(b, s)`` bool: the valid places."""
        places = torch.arange(self.states.shape[1], device=self.states.device)
        return places < self.lengths[:, None]

    @cached_property
    def closed(self) -> Tensor:
        """``(b, s)``: 0 at valid places, minus infinity at the others."""
        zeros = torch.zeros(self.mask.shape, device=self.states.device, dtype=self.states.dtype)
        return zeros.masked_fill_(~self.mask, -math.inf)

    @cached_property
    def size(self) -> Tensor:
        """``(b, 1)``: valid places."""
        return self.lengths[:, None].to(self.states.dtype)

    @cached_property
    def stride(self) -> Tensor:
        """``(b, 1)``: the distance of neighbours where the source is scaled to [0, 1]."""
        return 1 / (self.size - 1).clamp(min=1)

    @cached_property
    def places(self) -> Tensor:
        """``(b, s)``: where each place stands in the source scaled to [0, 1]."""
        index = torch.arange(self.states.shape[1], device=self.states.device)
        return index * self.stride

    def mean(self, weights: Tensor) -> Tensor:
        """``(b, 1)``: the mean place of ``weights (b, s)``."""
        return (weights * self.places).sum(1, keepdim=True)

    def with_states(self, states: Tensor) -> Memory:
        return replace(self, states=states)

    def backwards(self, x: Tensor) -> Tensor:
        """``x (b, s, e)`` from the last valid place of each row to its first."""
        index = torch.arange(x.shape[1], device=x.device)
        index = (self.lengths[:, None] - 1 - index).clamp(min=0)
        return x.gather(1, index[:, :, None].expand(-1, -1, x.shape[2]))


@dataclass(frozen=True)
class AttenderShape:
    """``width`` of states and queries, ``head`` of projected ones.

    ``legacy``: normalise location weights as the public code of Ray Chowdhury & Caragea does,
    not in log space; a step beyond the end then wraps around to the start.
    """

    width: int
    head: int
    legacy: bool = False


class Attender(nn.Module):
    """Base of all attenders. Subclasses are listed in ``ATTENDERS``."""

    #: a gate may turn the source around before anything is read (RC, section 5.2)
    directed: ClassVar[bool] = False
    #: numbers of a step that are places of the source scaled to [0, 1], and shares of it
    places: ClassVar[tuple[str, ...]] = ("centre", "reference")
    shares: ClassVar[tuple[str, ...]] = ("width",)
    #: the backbone that its paper uses it with
    backbone: ClassVar[str] = "ray_chowdhury"

    def __init__(self, shape: AttenderShape):
        super().__init__()
        self.shape = shape
        if self.directed:
            self.direction = nn.Linear(shape.width, 1)

    def forwards(self, memory: Memory) -> Tensor | None:
        """``(b, 1)``: how far each source is read forwards, 1, or backwards, 0; None if it always
        is. RC, equation 8: a sigmoid of slope 5 on the summary."""
        return torch.sigmoid(5 * self.direction(memory.summary)) if self.directed else None

    def turned(self, x: Tensor, memory: Memory) -> Tensor:
        """``x (b, s, e)`` forwards, backwards or between: ``g x + (1 - g) backwards(x)``."""
        gate = self.forwards(memory)
        if gate is None:
            return x
        return gate[:, :, None] * x + (1 - gate[:, :, None]) * memory.backwards(x)

    def over_source(self, weights: Tensor, memory: Memory) -> Tensor:
        """``weights (b, t, s)`` of places as they were read, over the source as it was given.

        A place of a turned source is ``g`` of one place and ``1 - g`` of its mirror image.
        """
        unturned = self.turned(weights.transpose(1, 2), memory).transpose(1, 2)
        return unturned.masked_fill(~memory.mask[:, None], 0)

    def prepare(self, memory: Memory, steps: int) -> Any:
        """All that ``step`` needs of the source, for at most ``steps`` steps."""
        raise NotImplementedError

    def begin(self, memory: Memory) -> Carry:
        """What the first step finds."""
        return {}

    def step(self, query: Tensor, prepared: Any, carry: Carry, t: int) -> tuple[Tensor, Carry]:
        """Weights ``(b, s)`` of step ``t`` for ``query (b, d)``, and what the next step finds."""
        raise NotImplementedError


def xavier(*layers: nn.Linear) -> None:
    """Xavier-uniform weights; biases stay as PyTorch draws them, as in both papers' code."""
    for layer in layers:
        nn.init.xavier_uniform_(layer.weight)


def linear(width_in: int, width_out: int, bias: bool = True) -> nn.Linear:
    """A linear map with Xavier-uniform weights, as both papers' code has for attention."""
    layer = nn.Linear(width_in, width_out, bias=bias)
    xavier(layer)
    return layer


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
