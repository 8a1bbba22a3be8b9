"""What the Tab key completes: names of tasks, runs and what else is listed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

MOST = 200
"""Runs that are offered."""


def task_names(incomplete: str) -> list[str]:
    """Tasks that begin so."""
    from tasks import TASKS

    return [name for name in TASKS if name.startswith(incomplete)]


def run_names(incomplete: str) -> list[str]:
    """Runs under the root that begin so, the newest first."""
    from abc_calib.files import runs_root
    from abc_calib.runs import folders

    root, cut = runs_root(), Path(incomplete)
    names = [os.path.relpath(path, root) for path in reversed(folders.by_age())]
    return [name for name in names if name.startswith(str(cut) if incomplete else "")][:MOST]


def _schemes() -> list[str]:
    from abc_calib.nn.positions import SCHEMES

    return [*SCHEMES]


def _attenders() -> list[str]:
    from abc_calib.nn.recurrent.attenders import ATTENDERS

    return [*ATTENDERS]


def _fits() -> list[str]:
    from abc_calib.calibration.fits import FITS

    return [*FITS]


def _presets() -> list[str]:
    from abc_calib.config import PRESETS

    return [*PRESETS]


def _models() -> list[str]:
    from abc_calib.config import MODEL_OPTIONS

    return [*MODEL_OPTIONS]


def _targets() -> list[str]:
    from abc_calib.reproduction.targets import TARGETS

    return [*TARGETS]


LISTS: dict[str, Callable[[], list[str]]] = {
    **dict.fromkeys(("scheme", "encoder_scheme", "decoder_scheme", "cross_scheme"), _schemes),
    **{"attender": _attenders, "fit": _fits, "preset": _presets, "model": _models},
    **{"target": _targets},
}
"""By the name of an option or argument."""


def of(name: str) -> Callable[[str], list[str]] | None:
    """What completes an option or an argument of that name; None where nothing is listed."""
    if name == "task":
        return task_names
    if name not in LISTS:
        return None
    return lambda incomplete: [word for word in LISTS[name]() if word.startswith(incomplete)]
