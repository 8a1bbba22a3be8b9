"""Attenders that move, and mixtures of one with a content attender.

A Gaussian on the places of the source, relative to where it was before.

The source is scaled to [0, 1], so that a step to the neighbour is ``1 / (s - 1)``. Each row of a
batch has its own scale. The reference is the mean place of the attention before, 0 at first.
RC is Ray Chowdhury & Caragea (2023), sections 4.3 and 5, and their public code where the two
disagree (steepness of the step's sigmoid, which centres are clamped, what mixing weighs).
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.init import xavier_uniform_

from abc_calib.nn.recurrent.attenders.base import (
    Attender,
    AttenderShape,
    Carry,
    Memory,
    draw_closed,
    linear,
)
from abc_calib.nn.recurrent.attenders.content import Content, Prepared, Scored

NARROWEST = 0.27
"""Width of the Gaussian at its narrowest, in places of the source (DU, section 4)."""
STEEP = 5.0
"""Slope of the sigmoid of a step."""


def softstair(x: Tensor) -> Tensor:
    """The nearest whole number below, with a steep but smooth rise half-way to the next."""
    floor = x.detach().floor()
    return floor + torch.sigmoid(20 * (x - floor - 0.5))


def leaky_clamp(x: Tensor) -> Tensor:
    """``x`` within [0, 1], beyond it with a slope of 0.01."""
    return torch.maximum(0.01 * x, torch.minimum(1 + 0.01 * x, x))


class Moving(Attender):
    """Base of all attenders that move: a step from the reference, and a Gaussian there."""

    def prepare(self, memory: Memory, steps: int) -> Memory:
        return memory

    def begin(self, memory: Memory) -> Carry:
        return {"reference": torch.zeros_like(memory.stride)}

    def gaussian(self, memory: Memory, centre: Tensor, width: Tensor) -> Tensor:
        """Weights ``(b, s)`` of a Gaussian, from ``centre`` and ``width``, ``(b, 1)`` each.

        ``width`` is in units of the scaled source. Normalised in log space: however far beyond
        the end the centre is, the last place has the most weight.
        """
        scores = memory.closed - 0.5 * ((memory.places - centre) / width).square()
        if self.shape.legacy:
            density = scores.exp()
            return density / (density.sum(1, keepdim=True) + 1e-20)
        return scores.softmax(1)

    def strides(self, x: Tensor) -> Tensor:
        """How many places to go, from the number ``x (b, 1)``."""
        return torch.sigmoid(STEEP * x)

    def centre(self, numbers: Tensor, stepped: Tensor, reference: Tensor, t: int) -> Tensor:
        """``(b, 1)``: where the Gaussian stands after a step of ``stepped``."""
        return reference + stepped

    def numbers(self, query: Tensor, carry: Carry) -> tuple[Tensor, Carry]:
        """The numbers of a step: width, step, and what ``centre`` takes; and what goes on."""
        raise NotImplementedError

    def located(self, query: Tensor, memory: Memory, carry: Carry, t: int) -> tuple[Tensor, Carry]:
        """The weights and the variables of the step, the new reference left out."""
        numbers, after = self.numbers(query, carry)
        width = (numbers[:, :1].relu() + NARROWEST) / memory.size
        step = self.strides(numbers[:, 1:2])
        centre = self.centre(numbers, step * memory.stride, carry["reference"], t)
        weights = self.gaussian(memory, centre, width)
        return weights, {"centre": centre, "width": width, "step": step, **after}

    def step(self, query: Tensor, memory: Memory, carry: Carry, t: int) -> tuple[Tensor, Carry]:
        weights, after = self.located(query, memory, carry, t)
        return weights, {**after, "reference": memory.mean(weights)}


class Location(Moving):
    """Base of RC's family: the numbers are linear in a linear map of the query."""

    #: how many numbers a step and its reference take, the width left out
    extra = 1

    def __init__(self, shape: AttenderShape):
        super().__init__(shape)
        self.shared = linear(shape.width, shape.width)
        self.numbers_of = nn.Linear(shape.width, 1 + self.extra, bias=False)
        # as in RC's code, where Xavier's bound is that of tensors (1, width, numbers)
        drawn = [xavier_uniform_(torch.empty(1, shape.width, n)) for n in (1, self.extra)]
        self.numbers_of.weight.data.copy_(torch.cat(drawn, 2)[0].T)

    def numbers(self, query: Tensor, carry: Carry) -> tuple[Tensor, Carry]:
        return self.numbers_of(self.shared(query)), {}


class OneStep(Location):
    """At most one place forward, on a source that a gate may turn around (RC, section 5.3)."""

    directed = True


class RMono(OneStep):
    """Any number of places forward: the step is a ReLU (RC, section 5.4, without its gate)."""

    def strides(self, x: Tensor) -> Tensor:
        return x.relu()


class Mono(OneStep):
    """Forward by a learned mixture of both: ``(1 - g) ReLU + g sigmoid`` (RC, equation 19).

    ``g`` is a sigmoid of one parameter that starts at 0.
    """

    start = 0.0

    def __init__(self, shape: AttenderShape):
        super().__init__(shape)
        self.gate = nn.Parameter(torch.full((1,), self.start))

    def strides(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.gate)
        return (1 - gate) * x.relu() + gate * super().strides(x)


class NoStep3(OneStep):
    """The ablation without the third step: a softstair in place of the sigmoid (RC, table 4)."""

    def strides(self, x: Tensor) -> Tensor:
        return softstair(x)


class NoSigmoid(OneStep):
    """The ablation without an activation: any step, backwards too (RC, table 4)."""

    def strides(self, x: Tensor) -> Tensor:
        return x


class Gated(Moving):
    """Whole steps from a gated reference, and a bias."""

    def strides(self, x: Tensor) -> Tensor:
        return softstair(x)

    def centre(self, numbers: Tensor, stepped: Tensor, reference: Tensor, t: int) -> Tensor:
        gates = torch.sigmoid(numbers[:, 2:])
        return leaky_clamp(torch.addcmul(stepped, gates[:, :1], reference) + gates[:, 1:])


class Loc(Gated, Location):
    """Location attention after DU: a gated reference, a bias and whole steps (RC, section 4.3)."""

    extra = 3


class NoStep2(Loc):
    """The ablation without the second step: one step, but LocAttn's gates (RC, table 4)."""

    directed = True

    def strides(self, x: Tensor) -> Tensor:
        return torch.sigmoid(STEEP * x)


class LocS(Location):
    """The simpler location attention: a bias at the first step only (RC, appendix C)."""

    extra = 2

    def strides(self, x: Tensor) -> Tensor:
        return softstair(x)

    def centre(self, numbers: Tensor, stepped: Tensor, reference: Tensor, t: int) -> Tensor:
        position = reference + stepped
        return leaky_clamp(position + torch.sigmoid(numbers[:, 2:]) if t == 0 else position)


class DuboisLocation(Gated):
    """The location attender of Dubois et al. (2020), section 4.

    A GRU of its own reads the query; width, steps, gate and bias are linear in its state. The
    paper does not say where they start. Here the gate of the reference starts open and the bias
    off: with both half-way, the bias counts places as shares of the source and the steps undo it.
    """

    backbone = "dubois"
    hidden = 64
    #: of width, step, gate and bias, before their activations
    start = (0.0, 0.0, 3.0, -3.0)

    def __init__(self, shape: AttenderShape):
        super().__init__(shape)
        self.resize = linear(shape.width, self.hidden)
        self.cell = nn.GRUCell(self.hidden, self.hidden)
        draw_closed(self.cell)
        self.first = nn.Parameter(torch.empty(1, self.hidden).uniform_(-0.05, 0.05))
        self.numbers_of = linear(self.hidden, 4)
        self.numbers_of.bias.data.copy_(torch.tensor(self.start))

    def begin(self, memory: Memory) -> Carry:
        state = self.first.expand(len(memory.lengths), -1)
        return {**super().begin(memory), "state": state}

    def numbers(self, query: Tensor, carry: Carry) -> tuple[Tensor, Carry]:
        state = self.cell(self.resize(query).relu(), carry["state"])
        numbers = self.numbers_of(state)
        gate, bias = torch.sigmoid(numbers[:, 2:]).split(1, 1)
        return numbers, {"state": state, "gate": gate, "bias": bias}


class Mixed(Attender):
    """Base of the mixtures of both kinds, weighed by a gate on the query; ``mixture`` names parts.

    ``m location + (1 - m) content`` with ``m`` a sigmoid, as in both papers' code (RC, equations 15
    and 16, name the weights the other way round and add a slope). The next reference is the mean
    place of the mixture; with ``location_reference`` (PR in RC, appendix C) that of the location
    part alone. The content part reads the source as the location part does, turned around or not.
    """

    location_type: ClassVar[type[Moving]]
    content_type: ClassVar[type[Scored]]
    #: follow the location part alone, not the mixture
    location_reference: ClassVar[bool]

    def __init__(self, shape: AttenderShape):
        super().__init__(shape)
        self.location = self.location_type(shape)
        self.content = self.content_type(shape)
        self.mix = linear(shape.width, 1)

    def forwards(self, memory: Memory) -> Tensor | None:
        return self.location.forwards(memory)

    def prepare(self, memory: Memory, steps: int) -> tuple[Memory, Prepared]:
        return memory, self.content.prepare(memory, steps)

    def begin(self, memory: Memory) -> Carry:
        return self.location.begin(memory)

    def step(
        self, query: Tensor, prepared: tuple[Memory, Prepared], carry: Carry, t: int
    ) -> tuple[Tensor, Carry]:
        memory, content = prepared
        located, after = self.location.located(query, memory, carry, t)
        scores = self.content.scores(query, content, t)
        mix = torch.sigmoid(self.mix(query))
        weights = torch.lerp(scores.softmax(1), located, mix)
        reference = memory.mean(located if self.location_reference else weights)
        return weights, {**after, "mix": mix, "scores": scores, "reference": reference}


def mixture(
    location: type[Moving], content: type[Scored] = Content, follow_location: bool = False
) -> type[Mixed]:
    """The mixture of two attenders, on the backbone of its location part.

    ``follow_location``: the next reference is the mean place of that part alone.
    """
    parts = {"location_type": location, "content_type": content, "backbone": location.backbone}
    return type("Mixture", (Mixed,), {**parts, "location_reference": follow_location})
