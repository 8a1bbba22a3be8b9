"""The folder of a saved model: two small files, and weights in ``model.safetensors`` alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save_file
from torch import Tensor

from abc_calib.data.vocabulary import Vocabulary
from abc_calib.errors import AbcError
from abc_calib.files import check_regular, read_json, write_atomically
from abc_calib.nn.base import Model, not_finite
from abc_calib.nn.tokenizer import FILES as TOKENIZER
from abc_calib.nn.tokenizer import tokenizer_files
from abc_calib.plugins import check_model

CONFIG, GENERATION, WEIGHTS = "config.json", "generation_config.json", "model.safetensors"
OURS = (CONFIG, GENERATION, WEIGHTS)
IDS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
ABOUT = ("model_type", "architectures", "is_encoder_decoder", "dtype", "transformers_version")
"""Keys of every ``config.json``; the others are what shapes the model."""


def hub_files(model: Model) -> dict[str, dict[str, Any]]:
    """What ``transformers`` reads next to the weights: ``abc_calib.nn.hub``."""
    kind, name = model.hub_names
    ids = dict(zip(IDS, (model.pad, model.sos, model.eos, model.sos), strict=True))
    about = {"model_type": kind, "architectures": [name], "is_encoder_decoder": True}
    return {CONFIG: {**about, "dtype": "float32", **ids, **model.hub_config()}, GENERATION: ids}


def read_weights(path: Path) -> tuple[dict[str, Tensor], str]:
    """The tensors in a safetensors file, and the SHA-256 of the bytes that they were read from.

    ``AbcError`` if it is damaged.
    """
    try:
        check_regular(path)
        content = path.read_bytes()
        return load(content), hashlib.sha256(content).hexdigest()
    except (OSError, SafetensorError, ValueError) as error:
        raise AbcError(f"{path.parent} is damaged ({error}): train again") from None


def read_folder(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The configuration and the weights, whatever else is there; ``AbcError`` without them."""
    try:
        described = read_json(folder / CONFIG)
    except (OSError, ValueError) as error:
        raise AbcError(f"{folder} is not a saved model ({error}): name another folder") from None
    if not isinstance(described, dict):
        raise AbcError(f"{folder / CONFIG} holds no table: save the model again")
    weights, _ = read_weights(folder / WEIGHTS)
    if name := not_finite(weights):
        raise AbcError(f"{folder / WEIGHTS} is damaged ({name} is not finite): train again")
    return described, weights


def check_keys(keys: Collection[str], known_keys: Collection[str]) -> None:
    """``AbcError`` for a key that no configuration of the model has."""
    if strange := sorted({*keys} - {*known_keys, *ABOUT}):
        raise AbcError(
            f"unknown key {strange[0]!r} in the configuration of a model: remove it; known are "
            f"{', '.join(sorted(known_keys))}"
        )


def save_weights(folder: Path, model: Model, vocabulary: Vocabulary) -> None:
    """Write the folder, with a tokenizer; ``AbcError`` if a weight is not finite."""
    weights = {name: value.contiguous() for name, value in model.state_dict().items()}
    if name := not_finite(weights):
        raise AbcError(f"{folder} is not written: {name} of the model is not finite; train again")

    def write(temporary: Path) -> None:
        temporary.mkdir()
        if model.write_folder(temporary):
            return
        save_file(weights, temporary / WEIGHTS, metadata={"format": "pt"})
        for name, content in (hub_files(model) | tokenizer_files(vocabulary)).items():
            (temporary / name).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")

    write_atomically(folder, write)
    model.weights_sha256 = None


def load_weights(folder: Path, model: Model, vocabulary: Vocabulary) -> Model:
    """``model`` with the weights of a folder, in evaluation mode; ``vocabulary``: of its tokenizer.

    ``AbcError`` if they are missing, damaged, not finite or those of another model.
    """
    weights, model.weights_sha256 = read_weights(folder / WEIGHTS)
    try:
        if not model.read_weights(weights):
            _check_beside(folder, hub_files(model) | tokenizer_files(vocabulary))
            if name := not_finite(weights):
                raise AbcError(f"{name} of {WEIGHTS} is not finite")
            model.load_state_dict(weights)
    except (AbcError, RuntimeError) as error:
        problem = " ".join(str(error).split()[:30])
        raise AbcError(f"{folder} is damaged ({problem}): train or calibrate again") from None
    return model.eval()


def _check_beside(folder: Path, files: Mapping[str, Any]) -> None:
    """``AbcError`` unless the files next to the weights say what the model is, in everything."""
    for name, content in files.items():
        try:
            stored = read_json(folder / name)
        except (OSError, ValueError) as error:
            raise AbcError(f"{name}: {error}") from None
        expected, missing = json.loads(json.dumps(content)), object()
        if not isinstance(stored, dict):
            raise AbcError(f"{name} is not a table")
        recorded, here = stored.get("plugins"), expected.get("plugins")
        if recorded and here and {*recorded} == {*here}:
            check_model(stored)  # of the same code, in whatever file
            expected["plugins"] = recorded
        for key in [*expected, *stored]:
            if stored.get(key, missing) != expected.get(key, missing):
                where = f"{name} says another {key} than {folder.parent}/config.json"
                order = "the task's symbols have to be the same, in one order (in no set)"
                raise AbcError(f"{where}; {order}" if name in TOKENIZER else where)
