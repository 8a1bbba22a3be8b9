"""The ``transformers`` face of our models: save and load through the Auto classes, ``generate()``.

Importing this package registers every kind; no other package imports it, since importing
``transformers`` takes longer than most commands. A run's folder ``model`` is read by ``load`` or
``AutoModelForSeq2SeqLM.from_pretrained``, and its weights have the same names here and there.
"""

from pathlib import Path

from transformers import AutoConfig, AutoModelForSeq2SeqLM

from abc_calib.errors import AbcError
from abc_calib.nn.base import Model
from abc_calib.nn.hub.faces import (
    AbcConfig,
    AbcDecoder,
    AbcDecoderConfig,
    AbcRecurrent,
    AbcRecurrentConfig,
    AbcTransformer,
    HubModel,
)
from abc_calib.nn.recurrent.model import Recurrent
from abc_calib.nn.saved import GENERATION, hub_files, read_folder
from abc_calib.nn.transformer.decoder import DecoderOnly
from abc_calib.nn.transformer.model import Transformer

FACES: dict[type[Model], type[HubModel]] = {
    Transformer: AbcTransformer,
    DecoderOnly: AbcDecoder,
    Recurrent: AbcRecurrent,
}
"""The face of each kind of model."""

for _face in FACES.values():
    AutoConfig.register(_face.config_class.model_type, _face.config_class)
    AutoModelForSeq2SeqLM.register(_face.config_class, _face)


def load(folder: Path | str) -> HubModel:
    """The model in a run's folder ``model``, in evaluation mode."""
    described, _ = read_folder(Path(folder))
    faces = {face.config_class.model_type: face for face in FACES.values()}
    if described.get("model_type") not in faces:
        raise AbcError(f"{folder} is not a model of this program: name another folder")
    return faces[described["model_type"]].from_pretrained(folder)


def wrapped(model: Model) -> HubModel:
    """A copy of one of our models with its ``transformers`` face."""
    face = FACES[type(model)]
    hub_model = face(face.config_class(**model.hub_config(), **hub_files(model)[GENERATION]))
    hub_model.load_state_dict(model.state_dict())
    return hub_model.train(model.training)
