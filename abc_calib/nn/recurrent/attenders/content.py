"""Attenders that score every place of the source: softmax over what query and key have in common.

DU is Dubois et al. (2020), RC is Ray Chowdhury & Caragea (2023). Where scores are bilinear, the
map of the query is multiplied into the keys beforehand, so that a step is one product.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from abc_calib.nn.positions.absolute import angles, waves
from abc_calib.nn.positions.relative import turned
from abc_calib.nn.recurrent.attenders.base import Attender, AttenderShape, Carry, Memory, linear


class Prepared:
    """Bilinear scores: ``constant[t] (b, s) + keys (b, s, d) query``.

    ``constant`` has one entry for all steps or one for each.
    """

    def __init__(self, keys: Tensor, *constant: Tensor):
        self.keys, self.constant = keys, constant

    def scores(self, query: Tensor, t: int) -> Tensor:
        """``(b, s)``, minus infinity at padding."""
        return compared(self.keys, query) + self.constant[t if len(self.constant) > 1 else 0]


def compared(keys: Tensor, query: Tensor) -> Tensor:
    """Products ``(b, s)`` of ``keys (b, s, d)`` and ``query (b, d)``."""
    return (keys @ query[:, :, None])[:, :, 0]


class Scored(Attender):
    """Softmax over the scores of all places."""

    def scores(self, query: Tensor, prepared: Any, t: int) -> Tensor:
        """``(b, s)``, minus infinity at padding."""
        return prepared.scores(query, t)

    def step(self, query: Tensor, prepared: Any, carry: Carry, t: int) -> tuple[Tensor, Carry]:
        scores = self.scores(query, prepared, t)
        return scores.softmax(1), {"scores": scores}


class Dot(Scored):
    """The inner product of query and state (Luong et al. 2015, ``dot``)."""

    backbone = "dubois"
    scale = False

    def prepare(self, memory: Memory, steps: int) -> Prepared:
        keys = memory.states / math.sqrt(self.shape.width) if self.scale else memory.states
        return Prepared(keys, memory.closed)


class ScaledDot(Dot):
    """The inner product over the root of the width (DU, table 3)."""

    scale = True


class General(Scored):
    """A bilinear form ``h W e`` (Luong et al. 2015, ``general``)."""

    backbone = "dubois"

    def __init__(self, shape: AttenderShape):
        super().__init__(shape)
        self.query = linear(shape.width, shape.width, bias=False)

    def prepare(self, memory: Memory, steps: int) -> Prepared:
        keys = memory.states @ self.query.weight
        return Prepared(keys, memory.closed)


class Multiplicative(Scored):
    """``e (W h + b)``, DU, section 3."""

    backbone = "dubois"

    def __init__(self, shape: AttenderShape):
        super().__init__(shape)
        self.query = linear(shape.width, shape.width)

    def prepare(self, memory: Memory, steps: int) -> Prepared:
        constant = memory.states @ self.query.bias + memory.closed
        return Prepared(memory.states @ self.query.weight, constant)


class Additive(Scored):
    """``u tanh(W [e; h] + b) + c`` with 32 hidden units (Bahdanau et al. 2015; DU, equation 3)."""

    backbone = "dubois"
    hidden = 32
    biases = True

    def __init__(self, shape: AttenderShape):
        super().__init__(shape)
        self.state = linear(shape.width, self.hidden, bias=self.biases)
        self.query = linear(shape.width, self.hidden, bias=False)
        self.energy = linear(self.hidden, 1, bias=self.biases)

    def prepare(self, memory: Memory, steps: int) -> tuple[Tensor, Tensor]:
        return self.state(memory.states), memory.closed

    def scores(self, query: Tensor, prepared: tuple[Tensor, Tensor], t: int) -> Tensor:
        states, closed = prepared
        return self.energy((states + self.query(query)[:, None]).tanh())[:, :, 0] + closed


class Bahdanau(Additive):
    """The same with 64 hidden units and no biases: ``v tanh(W1 h + W2 e)``."""

    hidden = 64
    biases = False


class Transformer(Scored):
    """Scaled dot products of projections, sinusoids added to states and queries (DU, section 3).

    As in the public code: both sides are projected to half their width, with biases.
    """

    backbone = "dubois"

    def __init__(self, shape: AttenderShape):
        super().__init__(shape)
        self.head = shape.width // 2
        self.query = linear(shape.width, self.head)
        self.key = linear(shape.width, self.head)

    def prepare(self, memory: Memory, steps: int) -> Prepared:
        states = memory.states
        at = torch.arange(max(states.shape[1], steps), device=states.device)
        positions = waves(at, self.shape.width).to(states.dtype)
        keys = self.key(states + positions[: states.shape[1]]) / math.sqrt(self.head)
        constant = keys @ self.query(positions[:steps]).T + memory.closed[:, :, None]
        return Prepared(keys @ self.query.weight, *constant.unbind(2))


class Relative(Scored):
    """Content and distance, each with a bias for the query (RC, equation 3; Dai et al. 2019).

    ``((q + b1) k + (q + b2) W_R p_(i-t)) / sqrt(d)``.
    """

    shared_bias = False

    def __init__(self, shape: AttenderShape):
        super().__init__(shape)
        self.query = linear(shape.width, shape.head, bias=False)
        self.key = linear(shape.width, shape.head, bias=False)
        self.distance = linear(shape.width, shape.head, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(shape.head))
        if not self.shared_bias:
            self.distance_bias = nn.Parameter(torch.zeros(shape.head))

    def prepare(self, memory: Memory, steps: int) -> Any:
        states = memory.states
        scale = 1 / math.sqrt(self.shape.head)
        keys = self.key(states) * scale
        constant = keys @ self.content_bias + memory.closed  # (b, s)
        at = torch.arange(1 - steps, states.shape[1], device=states.device)
        positions = waves(at, self.shape.width).to(states.dtype)
        distances = self.distance(positions) * scale  # (r, e)
        bias = self.content_bias if self.shared_bias else self.distance_bias
        return Distances(
            keys @ self.query.weight,
            constant,
            (distances @ self.query.weight).T,
            distances @ bias,
            steps,
        )


@dataclass
class Distances:
    """Bilinear scores, and others by distance: a window of ``table (d, r)`` for each step."""

    keys: Tensor
    constant: Tensor
    table: Tensor
    bias: Tensor
    steps: int

    def scores(self, query: Tensor, t: int) -> Tensor:
        first = self.steps - 1 - t
        window = slice(first, first + self.constant.shape[1])
        near = torch.addmm(self.bias[window], query, self.table[:, window])
        return compared(self.keys, query) + self.constant + near


class TransformerXL(Relative):
    """``(W_k e + W_p p_(i-t)) (W_q h + b) / sqrt(d)``, DU, section 3."""

    backbone = "dubois"
    shared_bias = True


class BiRelative(Relative):
    """Relative attention on a source that a gate may turn around (RC, section 5.2)."""

    directed = True


class Content(Scored):
    """Scaled dot products of projections without biases (RC, equation 1)."""

    def __init__(self, shape: AttenderShape):
        super().__init__(shape)
        self.query = linear(shape.width, shape.head, bias=False)
        self.key = linear(shape.width, shape.head, bias=False)

    def prepare(self, memory: Memory, steps: int) -> Prepared:
        maps = self.key.weight.T @ (self.query.weight / math.sqrt(self.shape.head))
        keys = memory.states @ maps
        return Prepared(keys, memory.closed)


class BiRope(Scored):
    """Projected queries and keys rotated by their positions, the source perhaps turned around
    (RC, appendix C; Su et al. 2021). Pairs of neighbouring features turn together."""

    directed = True

    def __init__(self, shape: AttenderShape):
        super().__init__(shape)
        self.query = linear(shape.width, shape.head, bias=False)
        self.key = linear(shape.width, shape.head, bias=False)

    def prepare(self, memory: Memory, steps: int) -> tuple[Tensor, Tensor, Tensor]:
        states = memory.states
        at = torch.arange(max(states.shape[1], steps), device=states.device)
        keys = rotated(self.key(states) / math.sqrt(self.shape.head), at[: states.shape[1]])
        maps = rotated(self.query.weight.T, at[:steps, None])  # one a step: (t, d, e)
        return keys, maps, memory.closed

    def scores(self, query: Tensor, prepared: tuple[Tensor, Tensor, Tensor], t: int) -> Tensor:
        keys, maps, closed = prepared
        return compared(keys, query @ maps[t]) + closed


def rotated(x: Tensor, positions: Tensor) -> Tensor:
    """``x (..., e)`` with its pairs of features turned by ``positions``, which broadcast."""
    return turned(x, angles(positions, x.shape[-1]))
