"""The weights of a model as text, for the page that runs it."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from abc_calib.errors import UsageError
from abc_calib.nn.base import Model

RUNS = ("abc_transformer", "abc_decoder")
"""The kinds of models that the page's JavaScript computes."""
SHAPE = ("d_model", "heads", "encoder_layers", "decoder_layers")


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
    tensors = {
        name: b64encode(weight.numpy(force=True).astype("<f4").tobytes()).decode("ascii")
        for name, weight in model.state_dict().items()
    }
    lines = model.lines.to_dict() if model.lines is not None else None
    return {
        **{name: config.get(name, 0) for name in SHAPE},
        "stream": model.stream,
        **{"sos": tokens.sos, "eos": tokens.eos, "row": tokens.row},
        **{"delimiters": list(tokens.delimiters)},
        **{"lines": lines, "tensors": tensors},
    }
