"""What the Tab key completes: names of tasks, runs and what else is listed."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

MOST = 200
"""Runs that are offered."""


def run_names(incomplete: str) -> list[str]:
    """Runs under the root that begin so, the newest first."""
    from abc_calib.files import runs_root
    from abc_calib.runs import folders

    root, cut = runs_root(), Path(incomplete)
    names = [os.path.relpath(path, root) for path in reversed(folders.by_age())]
    return [name for name in names if name.startswith(str(cut) if incomplete else "")][:MOST]


LISTS = {
    "scheme": "abc_calib.nn.positions:SCHEMES",
    "encoder_scheme": "abc_calib.nn.positions:SCHEMES",
    "decoder_scheme": "abc_calib.nn.positions:SCHEMES",
    "cross_scheme": "abc_calib.nn.positions:SCHEMES",
    "attender": "abc_calib.nn.recurrent.attenders:ATTENDERS",
    "fit": "abc_calib.calibration.fits:FITS",
    "preset": "abc_calib.config:PRESETS",
    "model": "abc_calib.config:MODEL_OPTIONS",
    "target": "abc_calib.reproduction.targets:NAMES",
    "task": "tasks:TASKS",
}
"""Where the values of an option or argument are listed, by its name."""


def of(name: str) -> Callable[[str], list[str]] | None:
    """What completes an option or an argument of that name; None where nothing is listed."""
    if name not in LISTS:
        return None

    def begun(incomplete: str) -> list[str]:
        module, _, listed = LISTS[name].partition(":")
        return [
            word for word in getattr(import_module(module), listed) if word.startswith(incomplete)
        ]

    return begun
