"""Trackers: where a training can be followed, besides its ``history.jsonl``.

A tracker is given what the run's own files hold, so a run is the same with one or without.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from abc_calib.errors import OptionError

Row = Mapping[str, Any]
Follow = Callable[[Sequence[Row]], None]
"""Takes a history as it is now, and sends the rows that were not sent yet."""


@runtime_checkable
class Tracker(Protocol):
    """What a tracker does; an object of your own with these methods is one.

    Of each run that is trained, ``start`` comes first and ``close`` last.
    """

    def start(self, name: str, folder: Path, config: Mapping[str, Any]) -> None:
        """A run of that name begins or goes on; ``config`` is what its ``config.json`` holds."""

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """The numbers of a row of ``history.jsonl``, with the names that they have there."""

    def close(self) -> None:
        """Nothing more comes of this run."""


Track = Literal["tensorboard"] | Tracker | None
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

    def close(self) -> None:
        self.to.close()


def tracker_of(track: Track) -> Tracker | None:
    """The tracker that is meant; ``UsageError`` if it is not installed, or is not one."""
    if track is None or (isinstance(track, Tracker) and not isinstance(track, type)):
        return track
    if track != "tensorboard":
        rule = "choose tensorboard, or give an object with the methods start, scalars, close"
        raise OptionError("track", track, rule)
    if not find_spec(track):
        rule = f'it is not installed; pip install "abc-calib[{track}]"'
        raise OptionError("track", track, rule)
    return TensorBoard(import_module("torch.utils.tensorboard"))


@contextmanager
def tracked(track: Track, folder: Path, config: Row) -> Iterator[Follow]:
    """Follow the training of the run in a folder; ``config``: what its ``config.json`` holds."""
    tracker, sent = tracker_of(track), 0
    if tracker is None:
        yield lambda history: None
        return

    def follow(history: Sequence[Row]) -> None:
        nonlocal sent
        for row in history[sent:]:
            numbers = {n: x for n, x in row.items() if n != "step" and isinstance(x, int | float)}
            tracker.scalars(row["step"], numbers)
        sent = len(history)

    tracker.start(folder.name, folder, config)
    try:
        yield follow
    finally:
        tracker.close()
