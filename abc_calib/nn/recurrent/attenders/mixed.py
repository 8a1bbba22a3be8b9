"""Mixtures of a location attender and a content attender, weighed by a gate on the query.

``m location + (1 - m) content`` with ``m`` a sigmoid, as in both papers' code (RC, equations 15
and 16, name the weights the other way round and add a slope). The next reference is the mean
place of the mixture; with ``location_reference`` (PR in RC, appendix C) that of the location
part alone. The content part reads the source as the location part does, turned around or not.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from abc_calib.nn.recurrent.attenders.base import Attender, AttenderShape, Carry, Memory, linear
from abc_calib.nn.recurrent.attenders.content import Content, Prepared, Scored
from abc_calib.nn.recurrent.attenders.location import Moving


class Mixed(Attender):
    """Base of the mixtures: ``mixture`` names their parts."""

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

    class Mixture(Mixed):
        backbone = location.backbone
        location_type = location
        content_type = content
        location_reference = follow_location

    return Mixture
