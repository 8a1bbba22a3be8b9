"""Is a row of a Transformer given by what it reads?"""

from __future__ import annotations

from typing import Any

from abc_calib.geometry import LineBias
from abc_calib.nn.positions import Scheme
from abc_calib.plugins.registry import is_ours

HOOKS = {"forward", "embed", "rotate", "score_bias", "renumber", "starts"}
"""What a layer or a scheme has of its class, and not set on itself."""


def unknown_part(model: Any) -> str:
    """A layer or scheme that is not plainly ours or torch's, and may compute anything."""
    for name, module in model.named_modules():
        hooks = module._forward_hooks or module._forward_pre_hooks
        trusted = is_ours(type(module), ["abc_calib", "torch"])
        if not trusted or hooks or HOOKS & vars(module).keys():
            reason = "has a hook" if hooks else f"is a {type(module).__name__} of one's own"
            return f"{name or 'the model'} {reason}"
    return ""


def window_period(model: Any) -> int | str:
    """Modulo what positions are known, or why rows are not given by what they read."""
    lines = model.lines
    if lines is None or lines.off_line_bias is not None or lines.transparent():
        return "its attention is not restricted to lines"
    if part := unknown_part(model):
        return part
    if getattr(model.options, "post_norm", False):
        return "its blocks are post-norm"
    if any(n and site not in lines.sites for site, n in model.attention_layers.items()):
        return "its attention is not restricted to lines at every site"
    if any(line.anchor == "corner" for line in lines.every()):
        return "its lines count from corners of a matrix of fixed size"
    return scheme_period(model, lines)


def scheme_period(model: Any, lines: LineBias) -> int | str:
    """The same as far as it rests on position schemes."""
    scheme = model.positions
    if part := unknown_part(scheme):
        return part
    named = model.options.scheme
    if type(scheme).renumber is not Scheme.renumber:
        return "its positions are drawn anew for every length"
    absolute = type(scheme).embed is not Scheme.embed
    period = getattr(model, "period", None)
    if absolute and period is None:
        return f"its positions ({named}) are absolute and grow with length"
    rotates = type(scheme).rotate is not Scheme.rotate or scheme.has_score_bias
    if rotates and (model.stream or any(len(head) != 1 for *_, head in lines.each())):
        return f"its scores depend on positions ({named}) where a head has several lines"
    return period if absolute and period else 1
