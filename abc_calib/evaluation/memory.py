"""Refuse what would not fit, before it is tried."""

from __future__ import annotations

import os

from abc_calib.errors import AbcError
from abc_calib.nn.base import Model
from abc_calib.runs import Run


def available_memory() -> int | None:
    """Free memory of this machine in bytes, or None where that cannot be told."""
    try:
        with open("/proc/meminfo") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


BYTES_PER_DIGIT = 75
"""What drawing and laying out a test set takes at its peak, measured on all tasks."""


def check_samples(samples: int, length: int) -> None:
    """Raise ``AbcError`` if a test set of so many numbers would not fit the free memory."""
    free = available_memory()
    needed = BYTES_PER_DIGIT * samples * length
    if free is not None and needed > 0.9 * free:
        raise AbcError(
            f"{samples} samples of {length} digits need about {needed / 2**30:.1f} GiB and "
            f"{free / 2**30:.1f} GiB are free: use fewer samples or shorter ones"
        )


def dense_note(run: Run) -> str:
    """Which heads attend to every key, at a cost that grows with length; empty if none does."""
    model = run.fresh_model()
    if model.no_lines:
        return ""
    if model.lines is None:
        which = "no head is restricted to lines"
    elif heads := model.lines.transparent():
        which = f"{len(heads)} heads are transparent"
    elif model.lines.off_line_bias is not None:
        which = "keys off the lines are open"
    else:
        return ""
    return f"{which}: dense attention, whose cost a digit grows with length"


def check_memory(model: Model, batch: int, keys: int, steps: int) -> None:
    """Raise ``AbcError`` if a pass over such sources would not fit the free memory."""
    if model.device.type != "cpu":
        return
    free = available_memory()
    needed = model.memory_needed(batch, keys, steps)
    if free is not None and needed > 0.9 * free:
        raise AbcError(
            f"a source of {keys} tokens needs about {needed / 2**30:.1f} GiB and "
            f"{free / 2**30:.1f} GiB are free: use a shorter one, or a calibrated model whose "
            "heads all follow lines, which takes memory linear in length"
        )
