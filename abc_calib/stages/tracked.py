"""What is sent to a tracker: the numbers of its history, its lines, its attention."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from abc_calib.files import read_text
from abc_calib.geometry.bias import stored
from abc_calib.pixels import heads_image
from abc_calib.runs import Run
from abc_calib.tracking import Row, Track, Tracker, started, tracker_of

Follow = Callable[[Sequence[Row]], None]
"""Takes a history as it is now, and sends the rows that were not sent yet."""


@contextmanager
def tracked(track: Track, run: Run) -> Iterator[Follow]:
    """Follow the training of a run; what was found before it is sent first."""
    tracker, sent = tracker_of(track), 0

    def follow(history: Sequence[Row]) -> None:
        nonlocal sent
        if tracker is not None:
            for row in islice(history, sent, None):
                tracker.scalars(row["step"], _numbers(row))
        sent = len(history)

    if tracker is None:
        yield follow
        return
    started(tracker, run.path.name, run.path, run.config.model_dump(mode="json"))
    try:
        if run.config.stage == "calibrated":
            _send_lines(tracker, run)
        yield follow
    finally:
        tracker.close()


def _numbers(row: Row) -> dict[str, float]:
    return {name: x for name, x in row.items() if name != "step" and isinstance(x, int | float)}


def _send_lines(tracker: Tracker, run: Run) -> None:
    """The lines of a calibrated run and the attention that they were found in."""
    rows: list[dict[str, Any]] = [*csv.DictReader(io.StringIO(read_text(run.path / "lines.csv")))]
    tracker.table("lines", rows)
    for site, layers in stored(run.path / "bias.safetensors").items():
        for number, layer in enumerate(layers):
            tracker.image(f"attention/{site}-layer{number}", heads_image(layer))
