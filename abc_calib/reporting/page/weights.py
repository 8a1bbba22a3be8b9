"""The weights of a model as text, for the page that runs it."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from abc_calib.errors import UsageError
from abc_calib.geometry import CORNER, Heads, LineBias, Site
from abc_calib.nn.base import Model

RUNS = ("abc_transformer", "abc_decoder")
"""The kinds of models that the page's JavaScript computes."""
SHAPE = ("d_model", "heads", "encoder_layers", "decoder_layers")
COMPARES = (".query.", ".key.")
"""In the names of weights that a layer with one key a head and row does without."""


def embedded(model: Model) -> dict[str, Any]:
    """The model as plain data; ``UsageError`` says why the page cannot run it."""
    config = model.hub_config()
    if model.hub_names[0] not in RUNS:
        raise UsageError("the page computes Transformers, and this model is none")
    if config["scheme"] != "none" or config.get("own_schemes") or config.get("cyclic"):
        raise UsageError(
            f"the page computes models without positions, and this one has {config['scheme']}"
        )
    tokens = model.tokens
    unused = _unused(model.lines)
    tensors = {
        name: {"shape": list(weight.shape), "data": as_text(weight.numpy(force=True))}
        for name, weight in model.state_dict().items()
        if not any(name.startswith(layer) and part in name for layer in unused for part in COMPARES)
    }
    lines = model.lines.to_dict() if model.lines is not None else None
    return {
        **{name: config.get(name, 0) for name in SHAPE},
        "stream": model.stream,
        **{"sos": tokens.sos, "eos": tokens.eos, "row": tokens.row},
        **{"delimiters": list(tokens.delimiters)},
        **{"lines": lines, "tensors": tensors},
    }


def as_text(array: np.ndarray) -> str:
    """An array in base64: float32, or as it is if its elements are bytes."""
    if array.dtype != np.uint8:
        array = array.astype("<f4")
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")


def _unused(lines: LineBias | None) -> list[str]:
    """Names of the attention layers in which no key is ever compared with another."""
    if lines is None or lines.off_line_bias is not None:
        return []
    names = {
        "encoder": "encoder.layers.{}.attention",
        "self": "layers.{}.self_attention",
        "cross": "layers.{}.cross_attention",
    }
    if lines.stream:  # the queries of a source are no others than those of its output
        names = {"self": "layers.{}.attention"}
    return [
        names[site].format(number)
        for site, layers in lines.sites.items()
        if site in names
        for number, heads in enumerate(layers)
        if all(len(head) == 1 and head[0].segment != CORNER for head in _every(lines, site, number))
    ]


def _every(lines: LineBias, site: Site, layer: int) -> Heads:
    """The lines of each head, at a stream's other site too."""
    heads, other = lines.heads(site, layer) or (), lines.elsewhere(site, layer)
    return heads if other is None else tuple(map(tuple.__add__, heads, other))
