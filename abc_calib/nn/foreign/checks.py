"""What is tried on a model of transformers before anything is made of it."""

from __future__ import annotations

import torch
from torch import Tensor

from abc_calib.errors import UsageError
from abc_calib.geometry import Line, LineBias, Site
from abc_calib.nn.base import in_float64
from abc_calib.nn.foreign.inject import put
from abc_calib.nn.foreign.model import Foreign
from abc_calib.nn.foreign.sites import TESTED, in_one_line

LOGITS, WEIGHTS = 1e-5, 1e-6
"""What a bias of zeros may change: of logits, and of attention."""
TRIED: dict[Site, tuple[Line, ...]] = {
    "encoder": (Line("diag", 0, 0),),
    "self": (Line("diag", 0, -1),),
    "cross": (Line("anti", 1, 0),),
}
"""The lines of every head in a step of training: along an operand, and what was written before."""


def try_out(model: Foreign, source: Tensor, target: Tensor) -> float:
    """Put a bias of zeros into a model, generate, and train a step of it on lines.

    Gives what the bias of zeros changes of a logit at most. ``UsageError`` says what the model
    cannot do. In float64: in float32 the rounding of a trained model alone may change logits by
    1e-4.
    """
    name = type(model.network).__name__
    with in_one_line(f"{name} does not do what a calibration needs", f"take {TESTED}"):
        tried = in_float64(model)
        change = check_neutral(tried, source, target)
        heads, layers = tried.sites.heads, tried.attention_layers
        lines = {site: ((head,) * heads,) * layers[site] for site, head in TRIED.items()}
        put(tried.network, LineBias(lines), tried.marks, tried.sites, neutral=True)
        tried.train().loss(source, target).backward()
        check_cache(tried.eval(), source[:2], target.shape[1])
    return change


@torch.no_grad()
def check_neutral(model: Foreign, source: Tensor, target: Tensor) -> float:
    """Put a bias of zeros into a model; ``UsageError`` if that is felt.

    Attention is compared in sources without padding, whose rows in float64 eager attention makes
    no numbers of.
    """
    written, longest = target != model.pad, source.ne(model.pad).all(1)

    def computed() -> list[Tensor]:
        weights = model.attention(source[longest], target[longest]).weights
        return [model(source, target)[written], *weights["self"], *weights["cross"]]

    before = computed()
    put(model.network, LineBias({}), model.marks, model.sites)
    changes = [float((x - y).abs().max()) for x, y in zip(before, computed(), strict=True)]
    check_cache(model, source[:2], target.shape[1])
    change, attention = changes[0], max(changes[1:])
    if not (change <= LOGITS and all(weight <= WEIGHTS for weight in changes[1:])):
        raise UsageError(
            f"{type(model.network).__name__} does not attend as its eager attention says: a bias "
            f"of zeros changes its logits by {change:.1g} and its attention by {attention:.1g}"
        )
    return change


@torch.no_grad()
def check_cache(model: Foreign, source: Tensor, steps: int) -> None:
    """``UsageError`` unless a model writes the same with its cache as without."""
    written = model.decode(source, steps).ids
    again = model(source, written.masked_fill(written == model.pad, model.eos)).argmax(-1)
    if not bool(((written == again) | (written == model.pad)).all()):
        name = type(model.network).__name__
        raise UsageError(f"{name} generates with its cache what it does not write without")
