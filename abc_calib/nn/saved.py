"""The folder of a saved model: two small files, and weights in ``model.safetensors`` alone.

Beside a tokenizer, a card and hidden files no other may be there: readers of other formats would
take it for weights, for an adapter or for code.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from abc_calib.errors import AbcError
from abc_calib.files import check_regular, read_json
from abc_calib.nn.base import Model

CONFIG, GENERATION, WEIGHTS = "config.json", "generation_config.json", "model.safetensors"
OURS = (CONFIG, GENERATION, WEIGHTS)
ALLOWED = {*OURS, "tokenizer.json", "tokenizer_config.json", "README.md", "certificate.json"}
IDS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
ABOUT = ("model_type", "architectures", "is_encoder_decoder", "dtype", "transformers_version")
"""Keys of every ``config.json``; the others are what shapes the model."""


def hub_files(model: Model) -> dict[str, dict[str, Any]]:
    """What ``transformers`` reads next to the weights: ``abc_calib.nn.hub``."""
    kind, name = model.hub_names
    ids = dict(zip(IDS, (model.pad, model.sos, model.eos, model.sos), strict=True))
    about = {"model_type": kind, "architectures": [name], "is_encoder_decoder": True}
    return {CONFIG: {**about, "dtype": "float32", **ids, **model.hub_config()}, GENERATION: ids}


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors in a safetensors file; ``AbcError`` if it is damaged."""
    try:
        check_regular(path)
        return load_file(path)
    except (OSError, SafetensorError, ValueError) as error:
        raise AbcError(f"{path.parent} is damaged ({error}): train again") from None


def not_finite(tensors: Mapping[str, Tensor]) -> str:
    """The name of a tensor with a number that is not finite, if there is one."""
    return next((name for name, value in tensors.items() if not torch.isfinite(value).all()), "")


def read_folder(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The configuration and the weights; ``AbcError`` for a folder that holds anything else."""
    try:
        there = os.listdir(folder)
        described = read_json(folder / CONFIG)
    except (OSError, ValueError) as error:
        raise AbcError(f"{folder} is not a saved model ({error}): name another folder") from None
    if strange := sorted(name for name in {*there} - ALLOWED if name[0] != "."):
        raise AbcError(f"{folder / strange[0]} is not a file of a saved model: remove it")
    if not isinstance(described, dict):
        raise AbcError(f"{folder / CONFIG} holds no table: save the model again")
    weights = read_weights(folder / WEIGHTS)
    if name := not_finite(weights):
        raise AbcError(f"{folder / WEIGHTS} is damaged ({name} is not finite): train again")
    return described, weights


def check_keys(given: Collection[str], known: Collection[str]) -> None:
    """``AbcError`` for a key that no configuration of the model has."""
    if strange := sorted({*given} - {*known, *ABOUT}):
        raise AbcError(
            f"unknown key {strange[0]!r} in the configuration of a model: remove it; known are "
            f"{', '.join(sorted(known))}"
        )
