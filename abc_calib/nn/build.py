"""The kinds of models, and from a run's options to a model."""

from __future__ import annotations

import torch

from abc_calib.config import ModelOptions
from abc_calib.data.base import Data
from abc_calib.errors import UsageError
from abc_calib.nn.base import Model
from abc_calib.nn.foreign.model import Foreign
from abc_calib.nn.recurrent.model import Recurrent
from abc_calib.nn.transformer.decoder import DecoderOnly
from abc_calib.nn.transformer.model import Transformer

MODELS: dict[str, type[Model]] = {
    "transformer": Transformer,
    "decoder": DecoderOnly,
    "gru": Recurrent,
}
"""By the name that ``--model`` takes. The options of each are in ``config.MODEL_OPTIONS``."""

FOREIGN = "foreign"
"""An external model: it comes from a folder and has no name to choose it by."""


def model_type(kind: str) -> type[Model]:
    """The class of a kind; ``UsageError`` names the known ones."""
    if kind == FOREIGN:
        return Foreign
    if kind not in MODELS:
        raise UsageError(f"unknown model {kind!r}: choose {' or '.join(MODELS)}")
    return MODELS[kind]


def build_model(kind: str, options: ModelOptions, data: Data, seed: int) -> Model:
    """A model with fresh weights drawn from ``seed``, its own lines in place."""
    model_class = model_type(kind)
    resolved = model_class.resolve_defaults(options, data)
    torch.manual_seed(seed)
    model = model_class(resolved, data.vocabulary.tokens)
    model.set_lines(model.own_lines(data))
    return model
