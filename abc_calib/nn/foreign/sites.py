"""Which modules of a foreign model attend where, and which hold its positions.

Both are found, not listed by families: a model is run once with a function that notes who calls it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from abc_calib.errors import UsageError
from abc_calib.geometry import Site

PROBE = "abc_probe"
SOURCE, OUTPUT = 7, 5
"""Tokens of a probe: numbers that no other size of the call has."""
LEARNED = ("wpe", "embed_positions", "position_embeddings", "pos_embed")
DEPTHS = (
    *("num_decoder_layers", "decoder_layers", "num_hidden_layers"),
    *("n_layer", "num_layers", "encoder_layers"),
)
"""Where configurations say how many layers there are, those that write first."""
RELATIVE = "relative_attention_bias"
TESTED = "Llama, GPT-2, GPT-NeoX, Qwen, T5 or BART"
"""Classes for whoever has one that cannot be taken."""
OWN_WAYS = {
    "s_aux": "have attention sinks, which attention along lines does not have",
    "softcap": "cap their scores, which attention along lines does not do",
    "sliding_window": "see the last tokens only, and its cache drops the others, which lines may "
    "name: in its config.json set sliding_window to null, or where it has layer_types, each of "
    'these to "full_attention"',
}
"""Arguments of attention functions that change what a head sees, and what to say of them."""


@dataclass(frozen=True)
class Sites:
    """The names of the attention modules of each site, layer by layer, and how many heads each has.

    A ``stream`` has the same modules at both sites, ``self`` and ``cross``. ``positions``: the
    modules that hold positions, by how they are made neutral.
    """

    modules: dict[Site, list[str]]
    heads: int
    stream: bool
    positions: dict[str, list[str]] = field(default_factory=dict)

    @property
    def layers(self) -> dict[Site, int]:
        return {site: len(names) for site, names in self.modules.items()}


def find_sites(model: Any) -> Sites:
    """The sites of a model of ``transformers``; ``UsageError`` if its attention is its own."""
    check_model(model)
    seen = probed(model)
    names = {module: name for name, module in model.named_modules()}
    stream = not model.config.is_encoder_decoder
    inside = set() if stream else set(model.get_encoder().modules())
    modules: dict[Site, list[str]] = {}
    for module, keys, _ in seen:
        site: Site = "encoder" if module in inside else "cross" if keys == SOURCE else "self"
        sites: tuple[Site, ...] = ("self", "cross") if stream else (site,)
        for line_site in sites:
            modules.setdefault(line_site, []).append(names[module])
    heads = {count for *_, count in seen}
    if len(heads) > 1:
        raise UsageError(
            f"{type(model).__name__} has layers of {' and '.join(map(str, sorted(heads)))} heads: "
            "lines are found for models whose layers are alike"
        )
    configs = model.config, model.config.get_text_config()
    counts = (getattr(config, name, None) for config in configs for name in DEPTHS)
    if len(modules.get("self", [])) != next((count for count in counts if count), 0):
        raise no_backend(model, f"{len(modules.get('self', []))} of its layers call it")
    return Sites(modules, heads.pop(), stream, find_positions(model))


def check_model(model: Any) -> None:
    """``UsageError`` unless it is a model of ``transformers``."""
    if not hasattr(model, "set_attn_implementation"):
        raise UsageError(f"{type(model).__name__} is not a model of transformers")


def probed(model: Any) -> list[tuple[nn.Module, int, int]]:
    """The attention modules in the order in which they are called, with their keys and heads."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    seen: list[tuple[nn.Module, int, int]] = []
    features: set[str] = set()

    def note(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *_: Any, **how: Any
    ) -> Any:
        features.update(name for name in OWN_WAYS if how.get(name) is not None)
        seen.append((module, key.shape[2], query.shape[1]))
        groups = query.shape[1] // value.shape[1]
        mixed = value.repeat_interleave(groups, 1).mean(2, keepdim=True)
        mixed = mixed.expand(-1, -1, query.shape[2], -1).transpose(1, 2).contiguous()
        return mixed, None

    AttentionInterface.register(PROBE, note)
    AttentionMaskInterface.register(PROBE, eager_mask)
    before, training = model.config._attn_implementation, model.training
    ids = torch.zeros(1, SOURCE, dtype=torch.long, device=model.device)
    how: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if model.config.is_encoder_decoder:
        how["decoder_input_ids"] = ids[:, :OUTPUT]
    try:
        model.set_attn_implementation(PROBE)
        with torch.no_grad():
            model.eval()(**how, use_cache=False)
        if drops_keys(model):
            features.add("sliding_window")
    except Exception as error:  # whatever its code raises
        raise no_backend(model, explain(error)) from None
    finally:
        model.set_attn_implementation(before)
        model.train(training)
    for name in OWN_WAYS:
        if name in features:
            raise UsageError(f"{type(model).__name__} has layers that {OWN_WAYS[name]}")
    if not seen:
        raise no_backend(model, "none of its layers calls it")
    return seen


def drops_keys(model: Any) -> bool:
    """Does the cache that the configuration asks for keep the last keys only?"""
    from transformers import DynamicCache

    layers = DynamicCache(config=model.config.get_text_config(decoder=True)).layers
    return any(getattr(layer, "is_sliding", False) for layer in layers)


def no_backend(model: Any, why: str) -> UsageError:
    """What to say of a model whose attention takes no function from outside."""
    flag = getattr(model, "_supports_attention_backend", False)
    return UsageError(
        f"{type(model).__name__} takes no attention function of transformers ({why}; its "
        f"_supports_attention_backend is {flag}): take a model that does, such as {TESTED}"
    )


def explain(error: Exception) -> str:
    """An error of external code, in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:160]


def find_positions(model: nn.Module) -> dict[str, list[str]]:
    """The modules that hold positions: ``rotary``, ``learned`` and ``relative``."""
    positions: dict[str, list[str]] = {"rotary": [], "learned": [], "relative": []}
    for name, module in model.named_modules():
        last = name.rpartition(".")[2]
        if type(module).__name__.endswith("RotaryEmbedding"):
            positions["rotary"].append(name)
        elif last in LEARNED or type(module).__name__.endswith("PositionalEmbedding"):
            positions["learned"].append(name)
        elif last == RELATIVE:
            positions["relative"].append(name)
    return {kind: names for kind, names in positions.items() if names}
