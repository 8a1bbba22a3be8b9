"""What the Tab key completes: names of runs and of tasks."""

from __future__ import annotations

import os
from pathlib import Path

MOST = 200
"""Runs that are offered."""


def run_names(incomplete: str) -> list[str]:
    """Return the runs under the root whose names begin so, the newest first."""
    from abc_calib.files import runs_root
    from abc_calib.runs import folders

    root, start = runs_root(), str(Path(incomplete)) if incomplete else ""
    names = [os.path.relpath(path, root) for path in reversed(folders.by_age())]
    return [name for name in names if name.startswith(start)][:MOST]


def task_names(incomplete: str) -> list[str]:
    """Return the tasks whose names begin so."""
    from tasks import TASKS

    return [name for name in TASKS if name.startswith(incomplete)]
