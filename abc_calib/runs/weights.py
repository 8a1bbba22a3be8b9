"""The folder ``model`` of a run: the weights, and what ``transformers`` needs to read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from abc_calib.errors import AbcError
from abc_calib.files import read_json, write_atomically
from abc_calib.nn.base import Model
from abc_calib.nn.saved import WEIGHTS, hub_files, not_finite, read_weights


def save_weights(folder: Path, model: Model) -> None:
    """Write the folder; ``AbcError`` if a weight is not finite."""
    weights = {name: value.contiguous() for name, value in model.state_dict().items()}
    if name := not_finite(weights):
        raise AbcError(f"{folder} is not written: {name} of the model is not finite; train again")

    def write(made: Path) -> None:
        made.mkdir()
        if model.write_folder(made):
            return
        save_file(weights, made / WEIGHTS, metadata={"format": "pt"})
        for name, content in hub_files(model).items():
            (made / name).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")

    write_atomically(folder, write)


def load_weights(folder: Path, model: Model, force: bool = False) -> Model:
    """``model`` with the weights of a folder, in evaluation mode.

    ``AbcError`` if they are missing, damaged, not finite or those of another model; with ``force``
    what stands beside the weights is not looked at.
    """
    weights = read_weights(folder / WEIGHTS)
    try:
        if model.read_weights(weights):
            return model.eval()
    except (AbcError, RuntimeError) as error:
        problem = " ".join(str(error).split()[:20])
        raise AbcError(f"{folder} is damaged ({problem}): calibrate again") from None
    if not force:
        _check_beside(folder, model)
        if name := not_finite(weights):
            raise AbcError(f"{folder / WEIGHTS} is damaged ({name} is not finite): train again")
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        problem = " ".join(str(error).split()[:20])
        raise AbcError(f"{folder} is damaged ({problem}): train again") from None
    return model.eval()


def _check_beside(folder: Path, model: Model) -> None:
    """``AbcError`` unless the files beside the weights say what the model is, in everything."""
    for name, content in hub_files(model).items():
        try:
            found = read_json(folder / name)
        except (OSError, ValueError) as error:
            raise AbcError(f"{folder} is damaged ({error}): train again") from None
        if differing := _differing(found, json.loads(json.dumps(content))):
            raise AbcError(
                f"{folder / name} says another {differing} than {folder.parent}/config.json: one "
                "of them was changed; train again"
            )


def _differing(found: Any, expected: dict[str, Any]) -> str:
    """The first name whose value is another one, if any."""
    if not isinstance(found, dict):
        return "kind of content"
    missing = object()
    names = [*expected, *found]
    return next((n for n in names if found.get(n, missing) != expected.get(n, missing)), "")
