"""Attenders: how a recurrent decoder looks at its source, one class each.

To add one, write a subclass of ``Attender`` and name it in ``ATTENDERS``.
"""

from __future__ import annotations

from abc_calib.errors import UsageError
from abc_calib.nn.recurrent.attenders import content, location
from abc_calib.nn.recurrent.attenders.base import Attender, AttenderShape, Carry, Memory
from abc_calib.nn.recurrent.attenders.location import mixture
from tasks.base import unknown

ATTENDERS: dict[str, type[Attender]] = {
    "additive": content.Additive,
    "bahdanau": content.Bahdanau,
    "multiplicative": content.Multiplicative,
    "general": content.General,
    "dot": content.Dot,
    "scaled_dot": content.ScaledDot,
    "transformer": content.Transformer,
    "transformer_xl": content.TransformerXL,
    "location": location.DuboisLocation,
    "mix": mixture(location.DuboisLocation, content.ScaledDot),
    "content": content.Content,
    "relative": content.Relative,
    "loc": location.Loc,
    "loc_s": location.LocS,
    "bi_relative": content.BiRelative,
    "bi_rope": content.BiRope,
    "one_step": location.OneStep,
    "mono": location.Mono,
    "r_mono": location.RMono,
    "no_step2": location.NoStep2,
    "no_step3": location.NoStep3,
    "no_sigmoid": location.NoSigmoid,
    "mix_loc": mixture(location.Loc),
    "mix_loc_s": mixture(location.LocS),
    "mix_loc_s_pr": mixture(location.LocS, follow_location=True),
    "mix_one_step": mixture(location.OneStep),
    "mix_one_step_pr": mixture(location.OneStep, follow_location=True),
    "mix_mono": mixture(location.Mono),
    "mix_mono_pr": mixture(location.Mono, follow_location=True),
    "mix_r_mono": mixture(location.RMono),
    "mix_r_mono_pr": mixture(location.RMono, follow_location=True),
}


def attender_type(name: str) -> type[Attender]:
    """The attender of that name; ``UsageError`` names the known ones."""
    if name not in ATTENDERS:
        raise UsageError(unknown("attender", name, ATTENDERS))
    return ATTENDERS[name]
