"""Which modules of a model of ``transformers`` attend where, and which hold its positions.

Both are found, not listed by families: a model is run once with a function that notes who calls it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from abc_calib.errors import UsageError
from abc_calib.geometry import Site
from abc_calib.nn.foreign.attention import HELD, NAME, register

SOURCE, OUTPUT = 7, 5
"""Tokens of a probe: numbers that no other size of the call has."""
LEARNED = ("wpe", "embed_positions", "position_embeddings", "pos_embed")
DEPTHS = (
    *("num_decoder_layers", "decoder_layers", "num_hidden_layers"),
    *("n_layer", "num_layers", "encoder_layers"),
)
"""Where configurations say how many layers there are, those that write first."""
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
    positions: dict[str, list[str]]

    @property
    def layers(self) -> dict[Site, int]:
        return {site: len(names) for site, names in self.modules.items()}


def find_sites(model: Any) -> Sites:
    """The sites of a model of ``transformers``; ``UsageError`` if its attention is its own."""
    name = type(model).__name__
    with in_one_line(f"{name} takes no attention function of transformers", f"take {TESTED}"):
        calls, features = _probe(model)
    for feature, words in OWN_WAYS.items():
        if feature in features:
            raise UsageError(f"{name} has layers that {words}")
    names = {module: name for name, module in model.named_modules()}
    stream = not model.config.is_encoder_decoder
    inside = set() if stream else set(model.get_encoder().modules())
    modules: dict[Site, list[str]] = {}
    for module, keys, _ in calls:
        site: Site = "encoder" if module in inside else "cross" if keys == SOURCE else "self"
        sites: tuple[Site, ...] = ("self", "cross") if stream else (site,)
        for line_site in sites:
            modules.setdefault(line_site, []).append(names[module])
    heads = {count for *_, count in calls}
    configs = model.config, model.config.get_text_config()
    counts = (getattr(config, depth, None) for config in configs for depth in DEPTHS)
    layers, expected = len(modules.get("self", [])), next(filter(None, counts), 0)
    if len(heads) != 1 or layers != expected:
        numbers = " and ".join(map(str, sorted(heads))) or "no"
        raise UsageError(
            f"{name} takes no attention function of transformers ({layers} of its {expected} "
            f"layers call it, with {numbers} heads; all have to, with as many): take {TESTED}"
        )
    return Sites(modules, heads.pop(), stream, find_positions(model))


def _probe(model: Any) -> tuple[list[tuple[nn.Module, int, int]], set[str]]:
    """Run a model once with an attention function that notes who calls it.

    Gives each module that attends with its keys and heads, and what is asked of ``OWN_WAYS``. Every
    query mixes the mean of all values.
    """
    from transformers import DynamicCache

    register()
    calls, features = list[tuple[nn.Module, int, int]](), set[str]()

    def attend(module: Any, query: Tensor, key: Tensor, value: Tensor, *_: Any, **how: Any) -> Any:
        features.update(name for name in OWN_WAYS if how.get(name) is not None)
        calls.append((module, key.shape[2], query.shape[1]))
        mixed = value.repeat_interleave(query.shape[1] // value.shape[1], 1).mean(2, keepdim=True)
        return mixed.expand(-1, -1, query.shape[2], -1).transpose(1, 2).contiguous(), None

    before, training = model.config._attn_implementation, model.training
    ids = torch.zeros(1, SOURCE, dtype=torch.long, device=model.device)
    how: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if model.config.is_encoder_decoder:
        how["decoder_input_ids"] = ids[:, :OUTPUT]
    for module in model.modules():
        module.__dict__[HELD] = attend
    try:
        model.set_attn_implementation(NAME)
        with torch.no_grad():
            model.eval()(**how, use_cache=False)
        cache = DynamicCache(config=model.config.get_text_config(decoder=True))
    finally:
        for module in model.modules():
            module.__dict__.pop(HELD)
        model.set_attn_implementation(before)
        model.train(training)
    if any(getattr(layer, "is_sliding", False) for layer in cache.layers):
        features.add("sliding_window")
    return calls, features


def check_model(model: Any) -> None:
    """``UsageError`` unless it is a model of ``transformers``."""
    if not hasattr(model, "set_attn_implementation"):
        raise UsageError(f"{type(model).__name__} is not a model of transformers")


@contextmanager
def in_one_line(what: str, then: str) -> Iterator[None]:
    """Turn what external code raises into a ``UsageError``: what fails, why, and what to do."""
    try:
        yield
    except UsageError:
        raise
    except Exception as error:  # whatever its code raises
        raise UsageError(f"{what} ({explain(error)}): {then}") from None


def explain(error: Exception) -> str:
    """An error of external code, in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:160]


def find_positions(model: nn.Module) -> dict[str, list[str]]:
    """The modules that hold positions: ``rotary``, ``learned`` and ``relative``."""
    positions: dict[str, list[str]] = {}
    for name, module in model.named_modules():
        last, kind = name.rpartition(".")[2], type(module).__name__
        if kind.endswith("RotaryEmbedding"):
            positions.setdefault("rotary", []).append(name)
        elif last in LEARNED or kind.endswith("PositionalEmbedding"):
            positions.setdefault("learned", []).append(name)
        elif last == "relative_attention_bias":
            positions.setdefault("relative", []).append(name)
    return positions
