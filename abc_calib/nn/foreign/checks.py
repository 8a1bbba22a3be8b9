"""What is tried on somebody else's model before anything is made of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from abc_calib.errors import UsageError
from abc_calib.geometry import LineBias
from abc_calib.nn.foreign.inject import detach, put
from abc_calib.nn.foreign.model import Foreign

LOGITS, WEIGHTS = 1e-5, 1e-6
"""What a bias of zeros may change: of logits, and of attention."""
PLACES = ((1, 10_007), (613, 0), (7, 10**6))
"""Between position ids, and before the first of them, where they must not matter."""
SIZES = ("position", "window", "chunk", "length", "ctx", "block", "context", "seq")
"""Parts of the names of sizes in configurations up to which a model may do otherwise."""
FARTHEST = 10_000
"""Tokens; of longer ones nothing is run."""
LAST = 16
"""Tokens that are written with a cache, behind what is written already."""


@dataclass(frozen=True)
class Neutrality:
    """What a bias of zeros changes at most: the ``logits``, and the ``attention`` captured."""

    logits: float
    attention: float


@torch.no_grad()
def check_neutral(model: Foreign, source: Tensor, target: Tensor) -> Neutrality:
    """Put a bias of zeros into a model and take it out again; ``UsageError`` if that is felt.

    In float64: in float32 the rounding of a trained model alone may change logits by 1e-4.
    """
    dtype = next(model.network.parameters()).dtype
    model.eval().double()
    try:
        found = _changed(model, source, target)
    finally:
        model.to(dtype)
    if found.logits > LOGITS or found.attention > WEIGHTS:
        raise UsageError(
            f"{type(model.network).__name__} does not attend as its eager attention says: a bias "
            f"of zeros changes its logits by {found.logits:.1g} and its attention by "
            f"{found.attention:.1g}"
        )
    return found


def _changed(model: Foreign, source: Tensor, target: Tensor) -> Neutrality:
    own = model(source, target)
    captured = model.attention(source, target).weights
    if any(layer is None for layers in captured.values() for layer in layers):
        name = type(model.network).__name__
        raise UsageError(f"{name} gives no attention weights with eager attention")
    put(model.network, LineBias({}), model.marks, model.sites)
    try:
        given = model._run(source, target, output_attentions=True)
    finally:
        detach(model.network)
        model.network.set_attn_implementation("sdpa")
    steps = target.shape[1]
    logits = own - given.logits[:, -steps:, : model.vocabulary]
    split = model._split(given, source != model.pad, steps)
    rows = (target != model.pad)[:, None, :, None]
    apart = [
        float((one - other).masked_fill(~rows, 0).abs().max())
        for site in ("self", "cross")
        for one, other in zip(captured[site], split[site], strict=True)
    ]
    return Neutrality(float(logits[target != model.pad].abs().max()), max(apart, default=0.0))


@torch.no_grad()
def check_cache(model: Foreign, source: Tensor, steps: int) -> None:
    """``UsageError`` unless a model writes the same with its cache as without."""
    name = type(model.network).__name__
    try:
        written = model.decode(source, steps).ids
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        said = " ".join(str(error).split())[:120]
        raise UsageError(f"{name} has no cache to write with ({said})") from None
    again = model(source, written.masked_fill(written == model.pad, model.eos)).argmax(-1)
    if not bool(((written == again) | (written == model.pad)).all()):
        raise UsageError(f"{name} writes with its cache what it does not write without")


@torch.no_grad()
def check_positions(model: Foreign, source: Tensor, target: Tensor) -> None:
    """``UsageError`` unless position ids, shifted and stretched, change nothing."""
    if not model.sites.stream:
        return
    plain = model._run(source, target).logits
    for step, first in PLACES:
        changed = float(
            (model._run(source, target, step=step, first=first).logits - plain).abs().max()
        )
        if not changed <= 1e-4:
            raise UsageError(
                f"{type(model.network).__name__} counts positions somewhere else, too: other "
                f"position ids change its logits by {changed:.2g}"
            )


def sizes(config: Any) -> list[int]:
    """The sizes in a configuration, in order, that may be those of a source."""
    found, every = set[int](), [config.to_dict()]
    while every:
        for name, value in every.pop().items():
            if isinstance(value, dict):
                every.append(value)
            elif type(value) is int and value > 0 and any(part in name for part in SIZES):
                found.add(value)
    return sorted(found)


@torch.no_grad()
def check_far(model: Foreign, source: Tensor, target: Tensor) -> None:
    """``UsageError`` unless a model goes on with its cache as without, far from its start."""
    begun = target[:, :-LAST]
    written = model.decode(source, LAST, begun=begun).ids
    whole = torch.cat([begun, written.masked_fill(written == model.pad, model.eos)], 1)
    again = model(source, whole)[:, -LAST:].argmax(-1)
    if not bool(((written == again) | (written == model.pad)).all()):
        raise UsageError(
            f"{type(model.network).__name__} writes with its cache what it does not write without, "
            f"behind {source.shape[1] + begun.shape[1]} tokens"
        )
