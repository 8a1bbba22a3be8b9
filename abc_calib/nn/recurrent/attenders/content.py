"""Attenders that score every place of the source: softmax over what query and key have in common.

DU is Dubois et al. (2020), RC is Ray Chowdhury & Caragea (2023).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from abc_calib.nn.positions.absolute import angles, waves
from abc_calib.nn.positions.relative import turned
from abc_calib.nn.recurrent.attenders.base import Attender, AttenderShape, Carry, Memory, linear


class Prepared(NamedTuple):
    """``keys (b, s, e)``, and 0 at valid places, minus infinity at the others ``(b, s)``.

    ``distances (r, e)``: of attenders that score those too, from the farthest before on.
    """

    keys: Tensor
    closed: Tensor
    distances: Tensor | None = None


class Scored(Attender):
    """Softmax over the scores of all places: products of a key and what is asked."""

    def scale(self) -> float:
        """What products are divided by."""
        return 1.0

    def keys(self, states: Tensor) -> Tensor:
        """``(b, s, e)`` of ``states (b, s, d)``."""
        return states

    def projected(self, query: Tensor, t: int) -> Tensor:
        """``(b, e)`` of the ``query (b, d)`` of step ``t``."""
        return query

    def prepare(self, memory: Memory, steps: int) -> Prepared:
        return Prepared(self.keys(memory.states) / self.scale(), memory.closed)

    def scores(self, query: Tensor, prepared: Prepared, t: int) -> Tensor:
        """``(b, s)``, minus infinity at padding."""
        return compared(prepared.keys, self.projected(query, t)) + prepared.closed

    def step(self, query: Tensor, prepared: Prepared, carry: Carry, t: int) -> tuple[Tensor, Carry]:
        scores = self.scores(query, prepared, t)
        return scores.softmax(1), {"scores": scores}


def compared(keys: Tensor, query: Tensor) -> Tensor:
    """Products ``(b, s)`` of ``keys (b, s, d)`` and ``query (b, d)``."""
    return (keys @ query[:, :, None])[:, :, 0]


class Dot(Scored):
    """The inner product of query and state (Luong et al. 2015, ``dot``)."""

    backbone = "dubois"


class ScaledDot(Dot):
    """The inner product over the root of the width (DU, table 3)."""

    def scale(self) -> float:
        return math.sqrt(self.shape.width)


class Multiplicative(Scored):
    """``e (W h + b)``, DU, section 3."""

    backbone = "dubois"
    bias = True

    def __init__(self, shape: AttenderShape):
        super().__init__(shape)
        self.query = linear(shape.width, shape.width, bias=self.bias)

    def projected(self, query: Tensor, t: int) -> Tensor:
        return self.query(query)


class General(Multiplicative):
    """A bilinear form ``h W e`` (Luong et al. 2015, ``general``)."""

    bias = False


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

    def keys(self, states: Tensor) -> Tensor:
        return self.state(states)

    def scores(self, query: Tensor, prepared: Prepared, t: int) -> Tensor:
        hidden = (prepared.keys + self.query(query)[:, None]).tanh()
        return self.energy(hidden)[:, :, 0] + prepared.closed


class Bahdanau(Additive):
    """The same with 64 hidden units and no biases: ``v tanh(W1 h + W2 e)``."""

    hidden = 64
    biases = False


class Content(Scored):
    """Scaled dot products of projections without biases (RC, equation 1)."""

    bias = False

    def __init__(self, shape: AttenderShape):
        super().__init__(shape)
        self.query = linear(shape.width, self.head, bias=self.bias)
        self.key = linear(shape.width, self.head, bias=self.bias)

    @property
    def head(self) -> int:
        """The width of projected queries and keys."""
        return self.shape.head

    def scale(self) -> float:
        return math.sqrt(self.head)

    def keys(self, states: Tensor) -> Tensor:
        return self.key(states)

    def projected(self, query: Tensor, t: int) -> Tensor:
        return self.query(query)


class Transformer(Content):
    """Scaled dot products of projections, sinusoids added to states and queries (DU, section 3).

    As in the public code: both sides are projected to half their width, with biases.
    """

    backbone = "dubois"
    bias = True

    @property
    def head(self) -> int:
        return self.shape.width // 2

    def keys(self, states: Tensor) -> Tensor:
        at = torch.arange(states.shape[1], device=states.device)
        return self.key(states + waves(at, self.shape.width).to(states.dtype))

    def projected(self, query: Tensor, t: int) -> Tensor:
        at = torch.tensor([t], device=query.device)
        return self.query(query + waves(at, self.shape.width).to(query.dtype))


class Relative(Content):
    """Content and distance, each with a bias for the query (RC, equation 3; Dai et al. 2019).

    ``((q + b1) k + (q + b2) W_R p_(i-t)) / sqrt(d)``.
    """

    shared_bias = False

    def __init__(self, shape: AttenderShape):
        super().__init__(shape)
        self.distance = linear(shape.width, shape.head, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(shape.head))
        if not self.shared_bias:
            self.distance_bias = nn.Parameter(torch.zeros(shape.head))

    def prepare(self, memory: Memory, steps: int) -> Prepared:
        places = memory.states.shape[1]
        at = torch.arange(1 - steps, places, device=memory.states.device)
        waved = waves(at, self.shape.width).to(memory.states.dtype)
        distances = self.distance(waved) / self.scale()
        return super().prepare(memory, steps)._replace(distances=distances)

    def scores(self, query: Tensor, prepared: Prepared, t: int) -> Tensor:
        keys, closed, distances = prepared
        assert distances is not None
        last = len(distances) - t  # the last place is as far behind as that of this step
        near = distances[last - keys.shape[1] : last]
        options = self.query(query)
        bias = self.content_bias if self.shared_bias else self.distance_bias
        return compared(keys, options + self.content_bias) + (options + bias) @ near.T + closed


class TransformerXL(Relative):
    """``(W_k e + W_p p_(i-t)) (W_q h + b) / sqrt(d)``, DU, section 3."""

    backbone = "dubois"
    shared_bias = True


class BiRelative(Relative):
    """Relative attention on a source that a gate may turn around (RC, section 5.2)."""

    directed = True


class BiRope(Content):
    """Projected queries and keys rotated by their positions, the source perhaps turned around
    (RC, appendix C; Su et al. 2021). Pairs of neighbouring features turn together."""

    directed = True

    def keys(self, states: Tensor) -> Tensor:
        at = torch.arange(states.shape[1], device=states.device)
        return turned(self.key(states), angles(at, self.head))

    def projected(self, query: Tensor, t: int) -> Tensor:
        at = torch.tensor([t], device=query.device)
        return turned(self.query(query), angles(at, self.head))
