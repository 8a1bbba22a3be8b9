"""Mixtures of a location attender and a content attender, weighed by a gate on the query.

``m location + (1 - m) content`` with ``m`` a sigmoid, as in both papers' code (RC, equations 15
and 16, name the weights the other way round and add a slope). The next reference is the mean
place of the mixture; with ``location_reference`` (PR in RC, appendix C) that of the location
part alone. The content part reads the source as the location part does, turned around or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from abc_calib.nn.recurrent.attenders.base import Attender, AttenderShape, Carry, Memory, linear
from abc_calib.nn.recurrent.attenders.content import Content, ScaledDot, Scored
from abc_calib.nn.recurrent.attenders.location import (
    DuboisLocation,
    Loc,
    Location,
    LocS,
    Mono,
    OneStep,
    Places,
    RMono,
)


@dataclass
class Both:
    """What the two parts have prepared."""

    places: Places
    content: Any


class Mixed(Attender):
    """Base of the mixtures: subclasses name their parts."""

    location_type: ClassVar[type[Location] | type[DuboisLocation]]
    content_type: ClassVar[type[Scored]] = Content
    location_reference: ClassVar[bool] = False

    def __init__(self, shape: AttenderShape):
        super().__init__(shape)
        self.location = self.location_type(shape)
        self.content = self.content_type(shape)
        self.mix = linear(shape.width, 1)

    def forwards(self, memory: Memory) -> Tensor | None:
        return self.location.forwards(memory)

    def prepare(self, memory: Memory, steps: int) -> Both:
        return Both(self.location.prepare(memory, steps), self.content.prepare(memory, steps))

    def begin(self, memory: Memory) -> Carry:
        return self.location.begin(memory)

    def step(self, query: Tensor, prepared: Both, carry: Carry, t: int) -> tuple[Tensor, Carry]:
        located, after = self.location.located(query, prepared.places, carry, t)
        scores = self.content.scores(query, prepared.content, t)
        mix = torch.sigmoid(self.mix(query))
        weights = torch.lerp(scores.softmax(1), located, mix)
        followed = located if self.location_reference else weights
        after["reference"] = prepared.places.mean(followed)
        return weights, {**after, "mix": mix, "scores": scores}


class DuboisMix(Mixed):
    """DU, section 4: location and scaled dot."""

    backbone = "dubois"
    location_type = DuboisLocation
    content_type = ScaledDot


class MixLoc(Mixed):
    """``loc`` and content."""

    location_type = Loc


class MixLocS(Mixed):
    """``loc_s`` and content."""

    location_type = LocS


class MixLocSPR(MixLocS):
    """``loc_s`` and content, following its own location."""

    location_reference = True


class MixOneStep(Mixed):
    """``one_step`` and content."""

    location_type = OneStep


class MixOneStepPR(MixOneStep):
    """``one_step`` and content, following its own location."""

    location_reference = True


class MixMono(Mixed):
    """``mono`` and content."""

    location_type = Mono


class MixMonoPR(MixMono):
    """``mono`` and content, following its own location."""

    location_reference = True


class MixRMono(Mixed):
    """``r_mono`` and content."""

    location_type = RMono


class MixRMonoPR(MixRMono):
    """``r_mono`` and content, following its own location."""

    location_reference = True
