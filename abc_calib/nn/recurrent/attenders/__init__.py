"""Attenders: how a recurrent decoder looks at its source, one class each.

To add one, write a subclass of ``Attender`` and name it in ``ATTENDERS``.
"""

from __future__ import annotations

import difflib

from abc_calib.errors import UsageError
from abc_calib.nn.recurrent.attenders.base import Attender, AttenderShape, Carry, Memory
from abc_calib.nn.recurrent.attenders.content import (
    Additive,
    Bahdanau,
    BiRelative,
    BiRope,
    Content,
    Dot,
    General,
    Multiplicative,
    Relative,
    ScaledDot,
    Transformer,
    TransformerXL,
)
from abc_calib.nn.recurrent.attenders.location import (
    DuboisLocation,
    Loc,
    LocS,
    Mono,
    MonoReleased,
    NoSigmoid,
    NoStep2,
    NoStep3,
    OneStep,
    RMono,
)
from abc_calib.nn.recurrent.attenders.mixed import (
    DuboisMix,
    MixLoc,
    MixLocS,
    MixLocSPR,
    MixMono,
    MixMonoPR,
    MixOneStep,
    MixOneStepPR,
    MixRMono,
    MixRMonoPR,
)

__all__ = ["ATTENDERS", "Attender", "AttenderShape", "Carry", "Memory", "attender_type"]

ATTENDERS: dict[str, type[Attender]] = {
    "additive": Additive,
    "bahdanau": Bahdanau,
    "multiplicative": Multiplicative,
    "general": General,
    "dot": Dot,
    "scaled_dot": ScaledDot,
    "transformer": Transformer,
    "transformer_xl": TransformerXL,
    "location": DuboisLocation,
    "mix": DuboisMix,
    "content": Content,
    "relative": Relative,
    "loc": Loc,
    "loc_s": LocS,
    "bi_relative": BiRelative,
    "bi_rope": BiRope,
    "one_step": OneStep,
    "mono": Mono,
    "mono_released": MonoReleased,
    "r_mono": RMono,
    "no_step2": NoStep2,
    "no_step3": NoStep3,
    "no_sigmoid": NoSigmoid,
    "mix_loc": MixLoc,
    "mix_loc_s": MixLocS,
    "mix_loc_s_pr": MixLocSPR,
    "mix_one_step": MixOneStep,
    "mix_one_step_pr": MixOneStepPR,
    "mix_mono": MixMono,
    "mix_mono_pr": MixMonoPR,
    "mix_r_mono": MixRMono,
    "mix_r_mono_pr": MixRMonoPR,
}


def attender_type(name: str) -> type[Attender]:
    """The attender of that name; ``UsageError`` names the known ones."""
    if name not in ATTENDERS:
        near = difflib.get_close_matches(name, ATTENDERS, 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise UsageError(f"unknown attender {name!r}{hint}: choose one of {', '.join(ATTENDERS)}")
    return ATTENDERS[name]
