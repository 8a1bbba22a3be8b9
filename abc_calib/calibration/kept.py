"""Trials that have ended, kept in files until the calibration that needs them has ended as well."""

from __future__ import annotations

import hashlib
import json
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from abc_calib.errors import AbcError
from abc_calib.files import make_folder
from abc_calib.geometry import LineBias

ENOUGH, LARGELY = 0.995, 0.98
"""Exact match from which lines carry over; the latter of large tables, whose rarest windows a trial
does not see."""


@dataclass(frozen=True)
class Trial:
    """Exact match on the lengths left out, 0 to 1, and the weights that the trial ended with."""

    accuracy: float
    weights: dict[str, Tensor] | None = None
    large: bool = False

    @property
    def passed(self) -> bool:
        return self.accuracy >= (LARGELY if self.large else ENOUGH)


class Kept(NamedTuple):
    """Where trials are kept: ``folder``; ``about`` is all that they depend on but their lines."""

    folder: Path
    about: str

    def path(self, bias: LineBias, how: str) -> Path:
        """The file of a trial."""
        text = json.dumps([self.about, how, bias.to_dict()], sort_keys=True)
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.safetensors"

    def trial(self, bias: LineBias, how: str, large: bool = False) -> Trial | None:
        """The trial, or None if there is none that can be read."""
        try:
            with safe_open(self.path(bias, how), "pt") as file:
                weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                return Trial(float(file.metadata()["accuracy"]), weights or None, large)
        except (OSError, SafetensorError, KeyError, ValueError, TypeError):
            return None

    def keep(self, bias: LineBias, how: str, trial: Trial) -> None:
        """Write it, with its weights if it passed; nothing where nothing can be written."""
        path, weights = self.path(bias, how), trial.weights if trial.passed else None
        with suppress(OSError, SafetensorError, AbcError):
            make_folder(self.folder)
            made = path.with_suffix(".new")
            save_file(weights or {}, made, metadata={"accuracy": repr(trial.accuracy)})
            made.replace(path)

    def forget(self) -> None:
        """Remove all of them."""
        shutil.rmtree(self.folder, ignore_errors=True)
