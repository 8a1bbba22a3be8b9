"""The configuration of a run: every option, and what it was made with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    Field,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from abc_calib.config.calibration import CalibrationOptions
from abc_calib.config.foreign import ForeignOptions
from abc_calib.config.model import MODEL_OPTIONS, ModelOptions
from abc_calib.config.options import Options, refusal
from abc_calib.config.training import TrainOptions
from abc_calib.errors import AbcError, UsageError
from abc_calib.files import read_json

FORMAT_VERSION = 2
"""Version of the run folder."""
WIDTHS = ("width", "feedforward")
NOT_CHOSEN = {"code_version", "versions", "threads", "parent", "format_version"}
"""Fields of a run's configuration that say where it came from, not what it is."""


class Origin(Options):
    """Where a class is from that is not this program's own: ``abc_calib.plugins``.

    The name of its ``file``, the hash of that and of its ``code`` without comments; for a class
    that was typed into Python no name, and the hash of its code. The ``package``, with its
    version, if one is installed that has it.
    """

    file: str = Field("", max_length=255)
    sha256: str = Field("", max_length=64)
    package: str = Field("", max_length=255)
    code: str = Field("", max_length=64)


class RunConfig(Options):
    """Everything that is needed to repeat a run: saved as ``config.json`` in its folder.

    ``kind`` of model, and ``model``, its options. ``versions``: of Python, torch and numpy;
    ``threads``: of torch. Both decide about the last bits of weights. ``plugins``: where a task or
    a scheme is from that is a user's own, as ``{"task subtraction2": ...}``.
    """

    format_version: int = FORMAT_VERSION
    code_version: str
    versions: dict[str, str] = {}
    threads: int | None = None
    stage: Literal["vanilla", "calibrated"]
    task: str
    base: int | None = None
    task_options: dict[str, int | str] = {}
    preset: str = "default"
    kind: str = "transformer"
    model: SerializeAsAny[ModelOptions]
    train: TrainOptions
    calibration: CalibrationOptions | None = None
    parent: str | None = None
    plugins: dict[str, Origin] = {}

    @property
    def chosen(self) -> dict[str, Any]:
        """What it is, as plain data: two runs that are alike in this have one training."""
        return self.model_dump(mode="json", exclude=NOT_CHOSEN)

    def difference(self, other: RunConfig) -> str:
        """The first option in which another one differs, in words; empty if none does."""
        ours, theirs = _flat(self.chosen), _flat(other.chosen)
        names = (name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name))
        return next((f"{name} {ours.get(name)}, not {theirs.get(name)}" for name in names), "")

    def as_wide_as(self, other: RunConfig) -> RunConfig:
        """The same with the widths of another one: a retrained model may have become wider."""
        widths = {n: getattr(other.model, n) for n in WIDTHS if n in type(self.model).model_fields}
        return self.model_copy(update={"model": self.model.model_copy(update=widths)})

    @model_serializer(mode="wrap")
    def _without_what_is_empty(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """As it was before there were plugins, where there are none."""
        fields = dict(write(self))
        if not fields.get("plugins"):
            fields.pop("plugins", None)
        return fields

    @model_validator(mode="before")
    @classmethod
    def _of_its_kind(cls, data: Any) -> Any:
        """The model's options by its kind; earlier versions had a hash of the data."""
        if not isinstance(data, Mapping):
            return data
        data = {name: value for name, value in data.items() if name != "data_hash"}
        kinds: dict[str, type[ModelOptions]] = {**MODEL_OPTIONS, "foreign": ForeignOptions}
        kind = kinds.get(data.get("kind", "transformer"))
        if kind is None:
            raise ValueError(f"unknown kind of model {data['kind']!r}")
        if isinstance(data.get("model"), Mapping):
            data["model"] = kind(**data["model"])
        return data


def _flat(data: Mapping[str, Any]) -> dict[str, Any]:
    """All options in one dictionary: those of groups, and those of no group."""
    groups = (v if isinstance(v, dict) else {name: v} for name, v in data.items())
    return {name: value for group in groups for name, value in group.items()}


def load_config(path: Path) -> RunConfig:
    """Read a run's ``config.json``; ``AbcError`` says what is wrong with it."""
    try:
        data = read_json(path)
    except (OSError, ValueError) as error:
        raise AbcError(f"{path} cannot be read ({error}): put it back, or train again") from None
    version = data.get("format_version") if isinstance(data, dict) else None
    if version is None:
        raise AbcError(f"{path} is not the config.json of a run: abc runs lists them")
    if version != FORMAT_VERSION:
        raise AbcError(
            f"{path} is a run folder of version {version}, and this program reads version "
            f"{FORMAT_VERSION}: train again, or use the program that wrote it"
        )
    try:
        return RunConfig(**data)
    except ValidationError as error:
        raise AbcError(f"{path} is not valid ({refusal(RunConfig, error)}): train again") from None
    except (UsageError, TypeError) as error:
        raise AbcError(f"{path} is not valid ({error}): train again") from None
