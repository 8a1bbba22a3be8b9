"""The options of a run: typed, frozen, complete. An unknown key is an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from abc_calib.errors import AbcError, UsageError

FORMAT_VERSION = 1
"""Version of the run folder: a folder of another version is refused."""


class Options(BaseModel):
    """Base of all option groups: frozen, strict about names, all numbers finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ModelOptions(Options):
    """The shape of the Transformer.

    ``scheme`` holds for all sites, unless ``encoder_scheme``, ``decoder_scheme`` or
    ``cross_scheme`` says otherwise. ``cyclic``: positions modulo this, from a
    random phase on in training. ``window``: attention only to so many keys beside the line that
    an answer is read along (paper, appendix A.4).
    """

    encoder_layers: int = Field(0, ge=0)
    decoder_layers: int = Field(3, ge=1)
    heads: int = Field(8, ge=1)
    width: int = Field(64, ge=2)
    feedforward: int = Field(256, ge=1)
    dropout: float = Field(0.0, ge=0, lt=1)
    scheme: str = "sinusoidal"
    encoder_scheme: str | None = None
    decoder_scheme: str | None = None
    cross_scheme: str | None = None
    cyclic: int | None = Field(None, ge=1)
    window: int | None = Field(None, ge=1)


class RecurrentOptions(Options):
    """The shape of a GRU encoder and decoder with an attender: ``abc_calib.nn.recurrent.model``.

    ``body``: what is around the attender, by default as in the attender's own paper.
    ``legacy_normalisation``: location weights as the public code of Ray Chowdhury & Caragea has
    them, which wrap around to the start far beyond the end.
    """

    body: str | None = None
    attender: str = "content"
    embedding: int = Field(64, ge=1)
    width: int = Field(128, ge=2)
    head: int = Field(128, ge=2)
    value: int = Field(128, ge=1)
    layers: int = Field(1, ge=1)
    dropout: float = Field(0.5, ge=0, lt=1)
    legacy_normalisation: bool = False


class TrainOptions(Options):
    """How a model is trained.

    ``steps`` is the most; ``stop_early`` ends at interpolation; ``cooldown`` is how many steps
    the learning rate takes to fall once the model is nearly there (0: it does not). ``dev``:
    what training on a token task goes by, held-out problems of the ``same`` lengths or the
    papers' ``longer`` ones.

    ``enough``: interpolated validations in a row that end the training early; ``patience``:
    validations without a better one that end it (0: none do). ``schedule``: a ``cosine``, or the
    rate halved on a ``plateau``; ``halvings``: of the rate that end it (0: none do), since nothing
    much moves any more. ``keep_best``: the model of the best validation, ``by`` its
    accuracy or loss, not the last one. ``clip``: the largest norm of a gradient.
    ``teacher_forcing``: the share of batches in which a recurrent decoder reads the right
    tokens, not its own.
    """

    steps: int = Field(3000, ge=1)
    batch: int = Field(128, ge=1)
    learning_rate: float = Field(3e-3, gt=0)
    warmup: int = Field(100, ge=0)
    validate_every: int = Field(100, ge=1)
    stop_early: bool = True
    cooldown: int = Field(600, ge=0)
    law: str = "mixed"
    length: int = Field(6, ge=1)
    format: str = "free"
    seed: int = Field(0, ge=0, lt=2**63)
    dev: Literal["same", "longer"] = "same"
    enough: int = Field(2, ge=1)
    patience: int = Field(0, ge=0)
    halvings: int = Field(0, ge=0)
    schedule: Literal["cosine", "plateau"] = "cosine"
    keep_best: bool = False
    by: Literal["accuracy", "loss"] = "accuracy"
    clip: float = Field(1.0, gt=0)
    teacher_forcing: float = Field(1.0, ge=0, le=1)


RETRAIN = TrainOptions(steps=2000, learning_rate=4e-3, stop_early=False, cooldown=0)
"""Retraining runs to its end: exact match is reached early, the margins go on growing."""

PRESETS: dict[str, tuple[ModelOptions, TrainOptions, TrainOptions]] = {
    "small": (ModelOptions(), TrainOptions(), RETRAIN),
    "paper": (
        ModelOptions(encoder_layers=1, decoder_layers=6, width=128, feedforward=512, dropout=0.3),
        TrainOptions(steps=20_000, learning_rate=5e-4, batch=256),
        RETRAIN.model_copy(update={"learning_rate": 5e-4, "batch": 256}),
    ),
}
"""Model, first training and retraining. ``small`` takes CPU minutes; ``paper`` has the model of
Duan & Shi, section 3.3."""


class CalibrationOptions(Options):
    """How lines are found. See ``abc_calib.calibration``.

    ``layer``: each layer's lines from its ``own`` attention, or all from the ``first`` or the
    ``last``. ``sites`` that get lines; others stay unbiased. ``anchors``: where lines are counted
    from. ``closed``: what is added off the lines, by default -inf. ``values``: lines are fully
    open (``hard``), or as far as attention follows them (``soft``). ``empty``: what becomes of a
    head without lines. None: what the fit does by itself, see ``FIT_DEFAULTS``.
    """

    fit: Literal["nnls", "mean"] = "nnls"
    dirs: tuple[Literal["diag", "anti", "vert"], ...] = Field(
        ("diag", "anti", "vert"), min_length=1
    )
    threshold: float | None = None
    samples: int = Field(2048, ge=1)
    layer: Literal["own", "first", "last"] | None = None
    sites: tuple[Literal["encoder", "self", "cross"], ...] = Field(
        ("encoder", "self", "cross"), min_length=1
    )
    anchors: Literal["segment", "corner"] | None = None
    closed: float | None = Field(None, lt=0)
    values: Literal["hard", "soft"] | None = None
    empty: Literal["transparent", "closed"] | None = None

    def settled(self) -> CalibrationOptions:
        """The same with the fit's own choice wherever nothing was asked for."""
        own = {k: v for k, v in FIT_DEFAULTS[self.fit].items() if getattr(self, k) is None}
        return self.model_copy(update=own)


FIT_DEFAULTS: dict[str, dict[str, str]] = {
    "nnls": {"layer": "own", "anchors": "segment", "values": "hard", "empty": "closed"},
    "mean": {"layer": "last", "anchors": "corner", "values": "soft", "empty": "transparent"},
}
"""What each fit does unless told otherwise; ``mean`` as the paper does."""


class RunConfig(Options):
    """Everything that is needed to repeat a run: saved as ``config.json`` in its folder.

    ``recurrent``: the model is one of these, not the Transformer of ``model``.
    """

    format_version: int = FORMAT_VERSION
    code_version: str
    stage: Literal["vanilla", "calibrated"]
    task: str
    base: int | None = None
    task_options: dict[str, int | str] = {}
    preset: str = "small"
    model: ModelOptions
    recurrent: RecurrentOptions | None = None
    train: TrainOptions
    calibration: CalibrationOptions | None = None
    parent: str | None = None
    data_hash: str = ""

    @property
    def shape(self) -> ModelOptions | RecurrentOptions:
        """The options of the model."""
        return self.recurrent or self.model


T = TypeVar("T", bound=Options)


def build(kind: type[T], given: str, **values: Any) -> T:
    """``kind(**values)``, or a ``UsageError`` that names the field, the value and the rule."""
    try:
        return kind(**values)
    except ValidationError as error:
        raise UsageError(f"{given}: {describe(error)}") from None


def describe(error: ValidationError) -> str:
    """The first problem of a validation, in one line."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    return f"{field} = {first.get('input')!r}: {first['msg'].lower()}"


def load_config(path: Path) -> RunConfig:
    """Read a run's ``config.json``; ``AbcError`` says what is wrong with it."""
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise AbcError(f"{path} cannot be read ({error}): train again") from None
    version = data.get("format_version") if isinstance(data, dict) else None
    if version != FORMAT_VERSION:
        raise AbcError(
            f"{path} is a run folder of version {version}, and this program reads version "
            f"{FORMAT_VERSION}: train again, or use the program that wrote it"
        )
    try:
        return RunConfig(**data)
    except ValidationError as error:
        raise AbcError(f"{path} is not valid ({describe(error)}): train again") from None
