"""Lines in a model of ``transformers``: put in, and taken out.

What was put in is an entry of the model's configuration, so that ``save_pretrained`` writes it and
``load`` finds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from abc_calib.errors import UsageError
from abc_calib.geometry import Heads, LineBias, Site
from abc_calib.nn.foreign.attention import (
    HELD,
    NAME,
    RECORD,
    Marks,
    ModuleLines,
    State,
    register,
)
from abc_calib.nn.foreign.sites import TESTED, Sites, check_model, find_sites

HOOKS = "abc_hooks"
"""The attribute of a model that holds what removes our hooks."""
SITES = "abc_sites"
"""The attribute of a model with lines that holds its sites."""
MARKS = "abc_marks"
"""The attribute of a model that holds by what its sources are read."""


def inject(
    model: Any,
    bias: LineBias | None,
    delimiters: Sequence[int] | None = None,
    neutral: bool = False,
    *,
    prefix: int = 0,
) -> Any:
    """Let a model of ``transformers`` attend along lines; gives the model.

    ``delimiters`` and ``prefix``: as of ``capture``, by default those that it was captured with.
    ``neutral``: without the model's own positions, as a model is retrained. ``UsageError`` leaves
    the model as it was.
    """
    check_model(model)
    marks = model.__dict__.get(MARKS) if delimiters is None else Marks(delimiters, prefix)
    if marks is None:
        raise UsageError("inject does not know the delimiters: capture first, or give delimiters")
    sites = model.__dict__.get(SITES) or find_sites(model)
    put(model, bias or LineBias({}), marks, sites, neutral)
    return model


def put(model: Any, lines: LineBias, marks: Marks, sites: Sites, neutral: bool = False) -> None:
    """Put lines into a model's modules, and what is needed to find them into its configuration.

    ``UsageError`` if they do not fit.
    """
    lines.check({"encoder": 0, **sites.layers}, sites.heads)
    if sites.stream and any(line.segment < 0 for line in lines.every()):
        raise UsageError(
            "a decoder-only model has no corners of its own between source and output: choose the "
            "fit nnls"
        )
    if neutral and not sites.positions:
        raise UsageError(
            f"{type(model).__name__} has no positions that this program can remove, and its lines "
            f"would be added to them: take {TESTED}"
        )
    detach(model)
    register()
    state, modules, restricted = State(marks, sites.stream), dict(model.named_modules()), True
    none: Heads = ((),) * sites.heads
    for site, names in sites.modules.items():
        of_site: tuple[Site, ...] = ("cross", "self") if sites.stream else (site,)
        for layer, name in enumerate(names):
            heads = {s: lines.heads(s, layer) or none for s in of_site}
            module_lines = ModuleLines(state, heads, lines.off_line_bias)
            modules[name].__dict__[HELD] = module_lines
            restricted &= module_lines.restricted
    hooks = state.hooks(model) + (silence(modules, sites.positions) if neutral else [])
    model.__dict__ |= {HOOKS: hooks, SITES: sites, MARKS: marks}
    model.set_attn_implementation(NAME)
    record = {
        "lines": lines.to_dict(),
        "delimiters": list(marks.delimiters),
        "prefix": marks.prefix,
        "neutral": neutral,
        "restricted": restricted,
    }
    for config in configurations(model):
        config.abc_calib = record
    # so that a program that does not import this one cannot load the model
    model.config.attn_implementation = NAME
    model.config.architectures = [type(model).__name__]


def record_of(model: Any) -> dict[str, Any] | None:
    """What the configuration says of the lines in a model."""
    return getattr(model.config, RECORD, None)


def detach(model: Any) -> None:
    """Take everything out again that ``put`` put in."""
    for hook in model.__dict__.pop(HOOKS, []):
        hook.remove()
    model.__dict__.pop(SITES, None)
    for module in model.modules():
        module.__dict__.pop(HELD, None)
        if module.__dict__.get("forward") is nothing:
            del module.__dict__["forward"]
    for config in configurations(model):
        config.__dict__.pop(RECORD, None)
    saved = model.config.__dict__.pop("attn_implementation", None)
    if saved or model.config._attn_implementation == NAME:
        model.set_attn_implementation("sdpa" if model._supports_sdpa else "eager")


def configurations(model: Any) -> list[Any]:
    """The configurations of a model and of its parts."""
    configs = (getattr(module, "config", None) for module in model.modules())
    return [config for config in configs if config is not None]


def silence(modules: Mapping[str, nn.Module], positions: Mapping[str, list[str]]) -> list[Any]:
    """Make positions neutral: the same wherever a token stands, or nothing at all.

    Relative biases are zero for good. What a table adds at position 0 may be trained; classes that
    look up positions in ways of their own add zeros.
    """
    hooks: list[Any] = []
    for kind, names in positions.items():
        for module in (modules[name] for name in names):
            if kind == "relative":
                table: Any = module
                nn.init.zeros_(table.weight).requires_grad_(False)
            elif kind == "rotary" or type(module) is nn.Embedding:
                hooks.append(module.register_forward_pre_hook(at_first, with_kwargs=True))
            else:
                module.__dict__["forward"] = nothing
    return hooks


def nothing(*_: Any, **__: Any) -> Tensor:
    """Zero, which can be added to hidden states of any shape, type and device."""
    return torch.zeros(())


def at_first(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
    """What holds positions is asked for position 0 alone, whichever it was given."""
    at, name = (0, "input") if type(module) is nn.Embedding else (1, "position_ids")
    if name in kwargs:
        return args, {**kwargs, name: torch.zeros_like(kwargs[name])}
    return (*args[:at], torch.zeros_like(args[at]), *args[at + 1 :]), kwargs
