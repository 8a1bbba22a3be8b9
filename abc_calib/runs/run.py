"""Run folders: everything that one training left behind, and nothing half-written.

    RUN/config.json          every option, enough to repeat the run
        model/               the model as transformers saves it (safetensors)
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
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from abc_calib.config import RunConfig, load_config
from abc_calib.data.digits import Data, Format, Source
from abc_calib.data.tokens import TokenSource
from abc_calib.errors import AbcError, UsageError
from abc_calib.geometry.lines import LineBias
from tasks import TokenTask, get_task

LATEST = "latest"


def runs_root() -> Path:
    """Where runs lie: the folder named by ``ABC_RUNS``, or ``runs``."""
    return Path(os.environ.get("ABC_RUNS", "runs"))


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Let ``write`` make a file or folder beside ``path``, then put it in its place.

    Whatever goes wrong, ``path`` is either as it was or complete; ``AbcError`` if the disk
    does not take it.
    """
    temporary = None
    try:
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        made = temporary / path.name
        write(made)
        for file in [made, *made.rglob("*")]:
            if file.is_file():  # safetensors files come out private to their owner
                file.chmod(0o644)
        if made.is_dir() and path.exists():
            path.rename(temporary / "old")
        os.replace(made, path)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise AbcError(
            f"cannot write {path} ({reason}): free some space or choose another folder with "
            "ABC_RUNS; what was there before is untouched"
        ) from None
    finally:
        if temporary is not None:
            if (temporary / "old").exists() and not path.exists():
                (temporary / "old").rename(path)
            shutil.rmtree(temporary, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """``write_atomically`` for text."""
    write_atomically(path, lambda made: made.write_text(text))


class Run:
    """One run folder."""

    def __init__(self, path: Path):
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

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
    def source(self) -> Data:
        """The run's own data: its task, format, seed, law and split."""
        train = self.config.train
        if isinstance(self.task, TokenTask):
            return TokenSource(self.task, train.seed, train.length, train.dev)
        return Source(self.task, Format(train.format), train.seed, train.law, train.length)

    @property
    def arithmetic(self) -> Source:
        """The data of a task on digits; ``UsageError`` if it is one on tokens."""
        if not isinstance(self.source, Source):
            raise UsageError(
                f"{self} has the task {self.config.task}, which is not arithmetic: stress and "
                "certificates know digits only"
            )
        return self.source

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
        if self.config.stage == "calibrated":
            return self.bias()
        if not self.config.model.window:
            raise UsageError(f"{self} has no lines: abc calibrate {shlex.quote(str(self))}")
        return self.load_model().line_bias

    # The model

    def save_model(self, model: Any) -> None:
        with quiet_transformers():
            write_atomically(self.path / "model", model.save_pretrained)

    def load_model(self) -> Any:
        """The trained model in evaluation mode; ``AbcError`` if it is missing or damaged."""
        from abc_calib.nn.recurrent.model import RecurrentModel
        from abc_calib.nn.transformer.model import AbcTransformer

        kind: Any = RecurrentModel if self.config.recurrent else AbcTransformer
        folder = self.path / "model"
        if not (folder / "model.safetensors").is_file():
            if (self.path / "checkpoint.safetensors").exists():
                raise AbcError(
                    f"{self} has not finished training: continue with abc train --resume "
                    f"{shlex.quote(str(self))}"
                )
            raise AbcError(f"{self} has no trained model: train again")
        try:
            with quiet_transformers():
                loaded: Any = kind.from_pretrained(folder, output_loading_info=True)
            model, told = loaded
            missing = sorted(told["missing_keys"])
            if missing:
                raise KeyError(f"{missing[0]} is missing")
        except (OSError, SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise AbcError(f"{folder} is damaged ({first}): train again") from None
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


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """No progress bars and no advice from transformers meanwhile."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)


def default_device() -> str:
    """The fastest device that torch sees."""
    return "cuda" if torch.cuda.is_available() else "cpu"
