"""Run folders: everything that one training left behind, and nothing half-written.

    RUN/config.json          every option, enough to repeat the run
        model/               the weights (safetensors), and what transformers needs to read them
        bias.safetensors     calibrated runs: the lines, and the averaged attention
        trial.safetensors    the weights of the trial that chose them
        calibration.json     how the calibration ended, with the SHA-256 of what it left behind
        history.jsonl        one line a validation
        result.json          how the training ended, with the SHA-256 of all of these
        checkpoint.safetensors  while it has not: model, optimiser, step, history
        eval.csv, figures/   what evaluation and export add
        lock                 held by the process that writes

Every file is written under a temporary name and then renamed, and a run is opened only if it is
what its record says. ``runs/latest`` names the run that was made last; commands use it where no
run is named.
"""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from abc_calib import plugins
from abc_calib.config import RunConfig, load_config
from abc_calib.data import Data, make_data
from abc_calib.errors import AbcError, UsageError
from abc_calib.files import parse_json, read_text, tidy, write_atomically, write_text
from abc_calib.geometry import LineBias
from abc_calib.nn.base import Model
from abc_calib.nn.build import model_type
from abc_calib.nn.saved import WEIGHTS, load_weights, read_weights, save_weights
from abc_calib.runs import folders
from abc_calib.runs.records import (
    CALIBRATION,
    CHECKPOINT,
    RESULT,
    check_files,
    load_checkpoint,
    read_record,
    save_checkpoint,
    write_record,
)

STAGES = {"vanilla": "before calibration", "calibrated": "after calibration"}
"""Stages of runs as people read them."""


class Run:
    """One run folder, whose files are compared with its record when they are first read."""

    def __init__(self, path: Path | str):
        self.path = Path(path)
        self._checked = False

    def __str__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}: {self.summary})"

    def _repr_html_(self) -> str:
        return f"<p><b>{escape(str(self.path))}</b><br>{escape(self.summary)}</p>"

    @property
    def summary(self) -> str:
        """What it is and how far it got, in a few words."""
        config = self.config
        base = "" if config.base is None else f" in base {config.base}"
        try:
            result = self.result
            right = result and f"{result['validation_accuracy']} % of held-out problems right"
            state = right or "not finished"
        except AbcError:
            state = "damaged"
        return f"{config.task}{base}, {STAGES[config.stage]}, seed {config.train.seed}, {state}"

    @classmethod
    def draft(cls, config: RunConfig) -> Run:
        """A run of that configuration without a folder yet."""
        run = cls(Path("draft"))
        run.__dict__["config"] = config
        return run

    @classmethod
    def create(
        cls,
        config: RunConfig,
        path: Path | str | None = None,
        write_more: Callable[[Path], None] = lambda folder: None,
    ) -> Run:
        """Make a new run, named after what it is, and make it the latest.

        Its folder appears as a whole, with what ``write_more`` writes into it.
        """
        versions = {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        }
        config = config.model_copy(
            update={"versions": versions, "threads": torch.get_num_threads()}
        )
        stem = f"{config.task}-seed{config.train.seed}-{config.stage}"
        run = cls(folders.free(stem) if path is None else folders.empty(path))
        tidy(run.path.parent)

        def write(folder: Path) -> None:
            folder.mkdir()
            write_text(folder / "config.json", config.model_dump_json(indent=2) + "\n")
            write_more(folder)

        try:
            write_atomically(run.path, write, replace=False)
        except BaseException:
            with suppress(OSError):
                run.path.rmdir()
            raise
        run.make_latest()
        return run

    @classmethod
    def open(cls, path: Run | Path | str | None = None) -> Run:
        """Open the run in ``path``, or of that name under ``runs``, or the latest.

        Raises ``AbcError`` for a file that is not what the record says, ``UsageError`` for a
        plugin that is not loaded.
        """
        if isinstance(path, Run):
            return path
        if not isinstance(path, Path | str | None):
            raise UsageError(f"{path!r} is not a run: give its folder, or its name in abc runs")
        path = folders.latest() if path is None else folders.find(Path(path))
        tidy(path)
        run = cls(path)
        plugins.check_origins(f"the run {run}", run.config.plugins)
        run.check()
        return run

    def check(self) -> None:
        """Raise ``AbcError`` unless the files are what the run's record says, checked once."""
        if self._checked:
            return
        if result := self.result:
            check_files(self.path, result, RESULT)
        elif saved := load_checkpoint(self.path, tensors=False):
            check_files(self.path, saved[1], CHECKPOINT)
        elif os.path.lexists(self.path / "model"):
            raise AbcError(
                f"{self.path / 'model'} is there and no result.json that vouches for it: put that "
                "back, or train again in another folder"
            )
        elif calibration := read_record(self.path / CALIBRATION):
            check_files(self.path, calibration, CALIBRATION)
        self._checked = True

    def make_latest(self) -> None:
        folders.make_latest(self.path)

    # What is in it

    @cached_property
    def config(self) -> RunConfig:
        return load_config(self.path / "config.json")

    @cached_property
    def task(self) -> Any:
        """The run's task, with the options that it was trained with."""
        return plugins.make_task(
            self.config.task, base=self.config.base, **self.config.task_options
        )

    @cached_property
    def data(self) -> Data:
        """The run's own data: its task, format, seed, sampling and split."""
        return make_data(self.task, self.config.train)

    @property
    def result(self) -> dict[str, Any] | None:
        """How the training ended, or None if it has not; ``AbcError`` if it cannot be read."""
        return read_record(self.path / RESULT)

    def save_result(self, result: Mapping[str, Any]) -> None:
        """Write how the training ended, with the hashes of what it leaves behind."""
        write_record(self.path / RESULT, result)
        self._checked = False

    def history(self) -> list[dict[str, Any]]:
        """One entry a validation, oldest first."""
        self.check()
        path = self.path / "history.jsonl"
        if not os.path.lexists(path):
            return []
        try:
            return [parse_json(line) for line in read_text(path).splitlines() if line.strip()]
        except (OSError, ValueError) as error:
            raise AbcError(f"{path} is damaged ({error}): remove it") from None

    def bias(self) -> LineBias:
        self.check()
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
        options = kind.resolve_defaults(self.config.model, self.data)
        with torch.random.fork_rng(devices=[]):
            model = kind(options, self.data.vocabulary.tokens)
        calibrated = self.config.stage == "calibrated"
        model.set_lines(self.bias() if calibrated else model.own_lines(self.data))
        return model

    def trial_weights(self) -> dict[str, Tensor] | None:
        """The weights of the trial that chose the lines; None if there was none, or none passed."""
        self.check()
        path = self.path / "trial.safetensors"
        return read_weights(path)[0] if os.path.lexists(path) else None

    def save_model(self, model: Model) -> None:
        """Write the folder ``model``: the weights, and what ``from_pretrained`` needs."""
        save_weights(self.path / "model", model, self.data.vocabulary)
        self._checked = True

    def load_model(self) -> Model:
        """The trained model in evaluation mode; ``AbcError`` if it is missing or damaged."""
        self.check()
        begun = os.path.lexists(self.path / CHECKPOINT)
        has_weights = os.path.lexists(self.path / "model" / WEIGHTS)
        if begun and not (has_weights and self.result):
            raise AbcError(
                f"{self} has not finished training: continue with abc train --resume "
                f"{shlex.quote(str(self))}"
            )
        if not has_weights:
            raise AbcError(f"{self} has no trained model: train again")
        return load_weights(self.path / "model", self.fresh_model(), self.data.vocabulary)

    # The checkpoint

    def save_checkpoint(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        save_checkpoint(self.path, tensors, state)

    def load_checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The tensors and the state of the last checkpoint, or None."""
        checkpoint = load_checkpoint(self.path)
        return checkpoint and (checkpoint[0], checkpoint[1]["state"])

    def drop_checkpoint(self) -> None:
        (self.path / CHECKPOINT).unlink(missing_ok=True)
