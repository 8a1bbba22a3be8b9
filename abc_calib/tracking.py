"""Trackers: where a training can be followed, besides its ``history.jsonl``.

A tracker is given what the run's own files hold, so a run is the same with one or without.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args, runtime_checkable

from abc_calib.errors import AbcError, UsageError
from abc_calib.text import as_markdown

if TYPE_CHECKING:
    import numpy as np

Known = Literal["tensorboard", "wandb", "trackio"]
Row = Mapping[str, Any]
PROJECT = "abc-calib"
"""Where wandb and trackio put runs."""


@runtime_checkable
class Tracker(Protocol):
    """What a tracker does; an object of your own with these methods is one.

    Of each run that is trained, ``start`` comes first and ``close`` last.
    """

    def start(self, name: str, folder: Path, config: Mapping[str, Any]) -> None:
        """A run of that name begins or goes on; ``config`` is what its ``config.json`` holds."""

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """The numbers of a row of ``history.jsonl``, with the names that they have there."""

    def table(self, name: str, rows: Sequence[Row]) -> None:
        """Rows with the same keys, such as the lines that were found."""

    def image(self, name: str, pixels: np.ndarray) -> None:
        """A heatmap: RGB ``(height, width, 3)``, ``uint8``."""

    def close(self) -> None:
        """Nothing more comes of this run."""


Track = Known | Tracker | None
"""A tracker, the name of a known one, or none."""


class TensorBoard:
    """Event files in the run's folder ``tensorboard``."""

    def __init__(self, module: Any):
        self.module = module

    def start(self, name: str, folder: Path, config: Row) -> None:
        # a run that goes on is written anew: rows of before are taken back
        self.to = self.module.SummaryWriter(str(folder / "tensorboard"), purge_step=0)
        self.to.add_text("config", f"```json\n{json.dumps(config, indent=1)}\n```", 0)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.to.add_scalar(name, value, step)

    def table(self, name: str, rows: Sequence[Row]) -> None:
        columns = list(rows[0]) if rows else []
        self.to.add_text(name, as_markdown(columns, [[*row.values()] for row in rows]), 0)

    def image(self, name: str, pixels: np.ndarray) -> None:
        self.to.add_image(name, pixels, 0, dataformats="HWC")

    def close(self) -> None:
        self.to.close()


class Logged:
    """The interface that wandb and trackio share."""

    def __init__(self, module: Any):
        self.module = module

    def start(self, name: str, folder: Path, config: Row) -> None:
        with redirect_stdout(sys.stderr):  # what a command prints is its result alone
            self.module.init(project=PROJECT, name=name, config=dict(config))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self.module.log(dict(values), step=step)

    def table(self, name: str, rows: Sequence[Row]) -> None:
        import pandas as pd

        self.module.log({name: self.module.Table(dataframe=pd.DataFrame(rows))}, step=0)

    def image(self, name: str, pixels: np.ndarray) -> None:
        self.module.log({name: self.module.Image(pixels)}, step=0)

    def close(self) -> None:
        with redirect_stdout(sys.stderr):
            self.module.finish()


KINDS: dict[str, tuple[str, type[TensorBoard] | type[Logged]]] = {
    "tensorboard": ("torch.utils.tensorboard", TensorBoard),
    "wandb": ("wandb", Logged),
    "trackio": ("trackio", Logged),
}
"""The module of each known tracker, and what makes one of it."""


def not_installed(name: str) -> str:
    """What to do about a known tracker that is not installed; empty if it is."""
    if find_spec(name) is not None:
        return ""
    return f'it is not installed; pip install "abc-calib[{name}]", or pip install {name}'


def tracker_of(track: Track) -> Tracker | None:
    """The tracker that is meant; ``UsageError`` if it is not installed, or is not one."""
    if track is None or (isinstance(track, Tracker) and not isinstance(track, type)):
        return track
    if not isinstance(track, str) or track not in KINDS:
        methods = ", ".join(name for name in vars(Tracker) if not name.startswith("_"))
        raise UsageError(
            f"track {track!r}: choose {', '.join(get_args(Known))}, or give an object with the "
            f"methods {methods}"
        )
    if why := not_installed(track):
        raise UsageError(f"track {track}: {why}")
    module, kind = KINDS[track]
    try:
        return kind(import_module(module))
    except ImportError as error:
        raise UsageError(f"track {track}: it cannot be imported ({error})") from None


def started(tracker: Tracker, name: str, folder: Path, config: Row) -> None:
    """Start a tracker; ``AbcError`` where one that is installed does not start."""
    try:
        tracker.start(name, folder, config)
    except Exception as error:
        if isinstance(tracker, TensorBoard | Logged):
            with suppress(Exception):
                tracker.close()
            said = " ".join(f"{type(error).__name__}: {error}".split())
            raise AbcError(
                f"the tracker did not start ({said}); nothing is trained yet. "
                f"Go on with: abc train --resume {shlex.quote(str(folder))}"
            ) from None
        raise
