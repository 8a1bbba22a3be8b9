"""The folder ``model`` of a run: the weights, and what ``transformers`` needs to read them."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.torch import save_file

from abc_calib.data.vocabulary import Vocabulary
from abc_calib.errors import AbcError
from abc_calib.files import read_json, write_atomically
from abc_calib.nn.base import Model
from abc_calib.nn.saved import WEIGHTS, hub_files, not_finite, read_weights
from abc_calib.nn.tokenizer import tokenizer_files


def save_weights(folder: Path, model: Model, vocabulary: Vocabulary) -> None:
    """Write the folder, with a tokenizer; ``AbcError`` if a weight is not finite."""
    weights = {name: value.contiguous() for name, value in model.state_dict().items()}
    if name := not_finite(weights):
        raise AbcError(f"{folder} is not written: {name} of the model is not finite; train again")

    def write(made: Path) -> None:
        made.mkdir()
        if model.write_folder(made):
            return
        save_file(weights, made / WEIGHTS, metadata={"format": "pt"})
        for name, content in (hub_files(model) | tokenizer_files(vocabulary)).items():
            (made / name).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")

    write_atomically(folder, write)


def load_weights(folder: Path, model: Model, force: bool = False) -> Model:
    """``model`` with the weights of a folder, in evaluation mode.

    ``AbcError`` if they are missing, damaged, not finite or those of another model; with ``force``
    other files in the folder are not looked at.
    """
    weights = read_weights(folder / WEIGHTS)
    try:
        if not model.read_weights(weights):
            if not force:
                _check_beside(folder, model)
                if name := not_finite(weights):
                    raise AbcError(f"{name} of {WEIGHTS} is not finite")
            model.load_state_dict(weights)
    except (AbcError, RuntimeError) as error:
        problem = " ".join(str(error).split()[:30])
        raise AbcError(f"{folder} is damaged ({problem}): train or calibrate again") from None
    return model.eval()


def _check_beside(folder: Path, model: Model) -> None:
    """``AbcError`` unless the files next to the weights say what the model is, in everything."""
    for name, content in hub_files(model).items():
        try:
            found = read_json(folder / name)
        except (OSError, ValueError) as error:
            raise AbcError(f"{name}: {error}") from None
        expected, missing = json.loads(json.dumps(content)), object()
        if not isinstance(found, dict):
            raise AbcError(f"{name} is not a table")
        for key in [*expected, *found]:
            if found.get(key, missing) != expected.get(key, missing):
                raise AbcError(f"{name} says another {key} than {folder.parent}/config.json")
