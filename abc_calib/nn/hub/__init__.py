"""The ``transformers`` face of our models: save and load through the Auto classes, ``generate()``.

Importing this package registers every kind; no other package imports it, since importing
``transformers`` takes longer than most commands. A run's folder ``model`` is read by ``load`` or
``AutoModelForSeq2SeqLM.from_pretrained``, and its weights have the same names here and there.
"""

from pathlib import Path

from transformers import AutoConfig, AutoModelForSeq2SeqLM

from abc_calib.errors import AbcError
from abc_calib.nn.base import Model
from abc_calib.nn.hub.faces import AbcDecoder, AbcRecurrent, AbcTransformer, HubModel
from abc_calib.nn.saved import GENERATION, hub_files, read_folder

FACES: dict[str, type[HubModel]] = {
    face.config_class.model_type: face for face in (AbcTransformer, AbcDecoder, AbcRecurrent)
}
"""The face of each kind of model, by ``model_type``."""

for _face in FACES.values():
    AutoConfig.register(_face.config_class.model_type, _face.config_class)
    AutoModelForSeq2SeqLM.register(_face.config_class, _face)


def load(folder: Path | str) -> HubModel:
    """The model in a run's folder ``model``, in evaluation mode."""
    described, _ = read_folder(Path(folder))
    if described.get("model_type") not in FACES:
        raise AbcError(f"{folder} is not a model of this program: name another folder")
    return FACES[described["model_type"]].from_pretrained(folder)


def wrapped(model: Model) -> HubModel:
    """A copy of one of our models with its ``transformers`` face."""
    face = FACES[model.hub_names[0]]
    hub_model = face(face.config_class(**model.hub_config(), **hub_files(model)[GENERATION]))
    hub_model.load_state_dict(model.state_dict())
    return hub_model.train(model.training)
