"""The folder ``model`` of a run: the weights, and what ``transformers`` needs to read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from abc_calib.errors import AbcError
from abc_calib.files import check_regular, read_json, write_atomically
from abc_calib.nn.base import Model

WEIGHTS = "model.safetensors"


def save_weights(folder: Path, model: Model) -> None:
    """Write the folder; ``AbcError`` if a weight is not finite."""
    weights = {name: value.contiguous() for name, value in model.state_dict().items()}
    if name := not_finite(weights):
        raise AbcError(f"{folder} is not written: {name} of the model is not finite; train again")

    def write(made: Path) -> None:
        made.mkdir()
        save_file(weights, made / WEIGHTS, metadata={"format": "pt"})
        for name, content in hub_files(model).items():
            (made / name).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")

    write_atomically(folder, write)


def load_weights(folder: Path, model: Model, force: bool = False) -> Model:
    """``model`` with the weights of a folder, in evaluation mode.

    ``AbcError`` if they are missing, damaged, not finite or those of another model; with ``force``
    what stands beside the weights is not looked at.
    """
    try:
        check_regular(folder / WEIGHTS)
        weights = load_file(folder / WEIGHTS)
        described = {} if force else {name: read_json(folder / name) for name in hub_files(model)}
    except (OSError, SafetensorError, ValueError) as error:
        raise AbcError(f"{folder} is damaged ({error}): train again") from None
    for name, content in described.items():
        if differing := _differing(content, json.loads(json.dumps(hub_files(model)[name]))):
            raise AbcError(
                f"{folder / name} says another {differing} than {folder.parent}/config.json: one "
                "of them was changed; train again"
            )
    if not force and (name := not_finite(weights)):
        raise AbcError(f"{folder / WEIGHTS} is damaged ({name} is not finite): train again")
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        problem = " ".join(str(error).split()[:20])
        raise AbcError(f"{folder} is damaged ({problem}): train again") from None
    return model.eval()


def not_finite(tensors: dict[str, Tensor]) -> str:
    """The name of a tensor with a number that is not finite, if there is one."""
    return next((name for name, value in tensors.items() if not torch.isfinite(value).all()), "")


def hub_files(model: Model) -> dict[str, dict[str, Any]]:
    """What ``transformers`` reads beside the weights: ``abc_calib.nn.hub``."""
    kind, name = model.hub_names
    ids = {
        "pad_token_id": model.pad,
        "bos_token_id": model.sos,
        "eos_token_id": model.eos,
        "decoder_start_token_id": model.sos,
    }
    about = {"model_type": kind, "architectures": [name], "is_encoder_decoder": True}
    return {
        "config.json": {**about, "dtype": "float32", **ids, **model.hub_config()},
        "generation_config.json": ids,
    }


def _differing(found: Any, expected: dict[str, Any]) -> str:
    """The first name whose value is another one, if any."""
    if not isinstance(found, dict):
        return "kind of content"
    missing = object()
    names = [*expected, *found]
    return next((n for n in names if found.get(n, missing) != expected.get(n, missing)), "")
