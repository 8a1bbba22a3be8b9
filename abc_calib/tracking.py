"""Trackers: where a training can be followed, besides its ``history.jsonl``.

A tracker is given what the run's own files hold, so a run is the same with one or without.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from abc_calib.errors import AbcError, OptionError
from abc_calib.text import as_markdown

if TYPE_CHECKING:
    import numpy as np

Known = Literal["tensorboard"]
Row = Mapping[str, Any]


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
"""A tracker, the name of the one that is known, or none."""


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


def not_installed(name: str) -> str:
    """What to do about a known tracker that is not installed; empty if it is."""
    return "" if find_spec(name) else f'it is not installed; pip install "abc-calib[{name}]"'


def tracker_of(track: Track) -> Tracker | None:
    """The tracker that is meant; ``UsageError`` if it is not installed, or is not one."""
    if track is None or (isinstance(track, Tracker) and not isinstance(track, type)):
        return track
    if track != "tensorboard":
        methods = ", ".join(name for name in vars(Tracker) if not name.startswith("_"))
        rule = f"choose tensorboard, or give an object with the methods {methods}"
        raise OptionError("track", track, rule)
    if why := not_installed(track):
        raise OptionError("track", track, why)
    try:
        return TensorBoard(import_module("torch.utils.tensorboard"))
    except ImportError as error:
        raise OptionError("track", track, f"it cannot be imported ({error})") from None


def started(tracker: Tracker, name: str, folder: Path, config: Row) -> None:
    """Start a tracker; ``AbcError`` where one that is installed does not start."""
    try:
        tracker.start(name, folder, config)
    except Exception as error:
        if isinstance(tracker, TensorBoard):
            with suppress(Exception):
                tracker.close()
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise AbcError(
                f"the tracker did not start ({reason}); nothing is trained yet. "
                f"Go on with: abc train --resume {shlex.quote(str(folder))}"
            ) from None
        raise
