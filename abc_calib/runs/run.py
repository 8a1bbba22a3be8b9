"""Run folders: everything that one training left behind, and nothing half-written.

    RUN/config.json          every option, enough to repeat the run
        model/               the weights (safetensors), and what transformers needs to read them
        bias.safetensors     calibrated runs: the lines, and the averaged attention
        history.jsonl        one line a validation
        result.json          how the training ended; there once it has
        checkpoint.safetensors  while it has not: model, optimiser, step
        eval.csv, figures/   what evaluation and export add

Every file is written under a temporary name and then renamed. ``runs/latest`` names the run
that was made last; commands use it where no run is named.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
from collections.abc import Iterator
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from abc_calib.config import RunConfig, load_config
from abc_calib.data import Data, make_data
from abc_calib.errors import AbcError, UsageError
from abc_calib.files import runs_root, write_atomically, write_text
from abc_calib.geometry import LineBias
from abc_calib.nn.base import Model
from abc_calib.nn.build import model_type
from tasks import get_task

LATEST = "latest"


class Run:
    """One run folder."""

    def __init__(self, path: Path):
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}: {self.summary})"

    def _repr_html_(self) -> str:
        return f"<p><b>{escape(str(self.path))}</b><br>{escape(self.summary)}</p>"

    @property
    def summary(self) -> str:
        """What it is and how far it got, in a few words."""
        config, result = self.config, self.result
        base = "" if config.base is None else f" in base {config.base}"
        state = f"{result['validation_accuracy']} % held out" if result else "not finished"
        return f"{config.task}{base}, {config.stage}, seed {config.train.seed}, {state}"

    @classmethod
    def draft(cls, config: RunConfig) -> Run:
        """A run of that configuration without a folder yet."""
        run = cls(Path("draft"))
        run.__dict__["config"] = config
        return run

    @classmethod
    def create(cls, config: RunConfig, path: Path | None = None) -> Run:
        """Make the folder of a new run, named after what it is, and make it the latest."""
        try:
            if path is None:
                path = _free_name(f"{config.task}-{config.stage}-seed{config.train.seed}")
            elif path.exists() and any(path.iterdir()):
                raise UsageError(f"{path} is not empty: name a new folder, or --resume it")
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise AbcError(f"cannot make the folder {path} ({error.strerror})") from None
        run = cls(path)
        made_with = {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        }
        config = config.model_copy(
            update={"versions": made_with, "threads": torch.get_num_threads()}
        )
        write_text(path / "config.json", config.model_dump_json(indent=2) + "\n")
        run.make_latest()
        return run

    @classmethod
    def open(cls, path: Path | str | None = None) -> Run:
        """The run in ``path``, or of that name under ``runs``, or the latest."""
        if path is None:
            marker = runs_root() / LATEST
            if not marker.is_file():
                raise UsageError(f"there is no run in {runs_root()} yet: abc train successor")
            path = runs_root() / marker.read_text().strip()
        path = Path(path)
        if not path.exists() and (runs_root() / path).exists():
            path = runs_root() / path
        if not path.is_dir():
            raise UsageError(f"there is no run {path}: abc runs lists them")
        if not (path / "config.json").is_file():
            raise AbcError(f"{path} is not a run folder (it has no config.json): abc runs")
        run = cls(path)
        _ = run.config
        return run

    def make_latest(self) -> None:
        root = runs_root()
        try:
            name = os.path.relpath(self.path, root)
            root.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError):
            return
        write_text(root / LATEST, name + "\n")

    # What is in it

    @cached_property
    def config(self) -> RunConfig:
        return load_config(self.path / "config.json")

    @cached_property
    def task(self) -> Any:
        """The run's task, with the options that it was trained with."""
        return get_task(self.config.task, base=self.config.base, **self.config.task_options)

    @cached_property
    def data(self) -> Data:
        """The run's own data: its task, format, seed, sampling and split."""
        return make_data(self.task, self.config.train)

    @property
    def result(self) -> dict[str, Any] | None:
        """How the training ended, or None if it has not."""
        try:
            return json.loads((self.path / "result.json").read_text())
        except (OSError, ValueError):
            return None

    def history(self) -> list[dict[str, Any]]:
        """One entry a validation, oldest first."""
        path = self.path / "history.jsonl"
        if not path.exists():
            return []
        try:
            return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
        except ValueError as error:
            raise AbcError(f"{path} is damaged ({error}): remove it") from None

    def bias(self) -> LineBias:
        return LineBias.load(self.path / "bias.safetensors")

    def lines(self) -> LineBias:
        """The lines that the run's model follows, found or given; ``UsageError`` if none."""
        lines = self.bias() if self.config.stage == "calibrated" else self.fresh_model().lines
        if lines is None:
            if reason := model_type(self.config.kind).no_lines:
                raise UsageError(f"{self} has no lines: {reason}")
            raise UsageError(f"{self} has no lines: abc calibrate {shlex.quote(str(self))}")
        return lines

    # The model

    def fresh_model(self) -> Model:
        """A model of the run's shape, with its lines; its weights are not the run's."""
        kind = model_type(self.config.kind)
        options = kind.settled(self.config.model, self.data)
        with torch.random.fork_rng(devices=[]):
            model = kind(options, self.data.vocabulary.tokens)
        calibrated = self.config.stage == "calibrated"
        model.set_lines(self.bias() if calibrated else model.own_lines(self.data))
        return model

    def save_model(self, model: Model) -> None:
        """Write the folder ``model``: the weights, and what ``from_pretrained`` needs."""

        def write(made: Path) -> None:
            made.mkdir()
            weights = {name: value.contiguous() for name, value in model.state_dict().items()}
            save_file(weights, made / "model.safetensors", metadata={"format": "pt"})
            for name, content in hub_files(model).items():
                (made / name).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")

        write_atomically(self.path / "model", write)

    def load_model(self) -> Model:
        """The trained model in evaluation mode; ``AbcError`` if it is missing or damaged."""
        folder = self.path / "model"
        if not (folder / "model.safetensors").is_file():
            if (self.path / "checkpoint.safetensors").exists():
                raise AbcError(
                    f"{self} has not finished training: continue with abc train --resume "
                    f"{shlex.quote(str(self))}"
                )
            raise AbcError(f"{self} has no trained model: train again")
        try:
            weights = load_file(folder / "model.safetensors")
            described = json.loads((folder / "config.json").read_text())
        except (OSError, SafetensorError, ValueError) as error:
            raise AbcError(f"{folder} is damaged ({error}): train again") from None
        model = self.fresh_model()
        if differing := _differing(model, described):
            raise AbcError(
                f"{folder / 'config.json'} says another {differing} than {self}/config.json: one "
                "of them was changed; train again"
            )
        try:
            model.load_state_dict(weights)
        except RuntimeError as error:
            problem = " ".join(str(error).split()[:20])
            raise AbcError(f"{folder} is damaged ({problem}): train again") from None
        return model.eval()

    # The checkpoint

    def save_checkpoint(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Replace the checkpoint by these tensors and this plain state."""
        metadata = {"state": json.dumps(state)}
        write_atomically(
            self.path / "checkpoint.safetensors",
            lambda made: save_file(tensors, made, metadata=metadata),
        )

    def load_checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The last checkpoint, or None; ``AbcError`` if it is damaged."""
        path = self.path / "checkpoint.safetensors"
        if not path.exists():
            return None
        try:
            with safe_open(path, "pt") as file:
                state = json.loads(file.metadata()["state"])
                return {name: file.get_tensor(name) for name in file.keys()}, state  # noqa: SIM118
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise AbcError(f"{path} is damaged ({error}): train again") from None

    def drop_checkpoint(self) -> None:
        (self.path / "checkpoint.safetensors").unlink(missing_ok=True)


def list_runs() -> Iterator[Run]:
    """Every run under the root, by age."""
    folders = [p.parent for p in runs_root().glob("*/config.json")]
    for folder in sorted(folders, key=lambda p: (p / "config.json").stat().st_mtime):
        yield Run(folder)


def _free_name(stem: str) -> Path:
    root = runs_root()
    number = 1
    while (root / (name := f"{stem}-{number}")).exists():
        number += 1
    return root / name


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


def _differing(model: Model, described: Any) -> str:
    """What ``config.json`` beside the weights says otherwise than the model is, if anything."""
    if not isinstance(described, dict):
        return "kind of content"
    for name, value in hub_files(model)["config.json"].items():
        theirs = described.get(name, value)
        if name == "line_bias" and isinstance(theirs, dict):
            theirs = LineBias.from_dict(theirs).to_dict()
        if name != "architectures" and theirs != value:
            return name
    return ""
