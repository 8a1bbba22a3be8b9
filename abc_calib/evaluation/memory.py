"""Refuse what would not fit, before it is tried."""

from __future__ import annotations

import os
from pathlib import Path

from abc_calib.errors import AbcError, OptionError
from abc_calib.nn.base import Model
from abc_calib.runs import Run


def available_memory() -> int | None:
    """Bytes that this process may still take, or None where that cannot be told."""
    known = [bound for bound in (_free_of_machine(), _left_of_group(), _left_of_process()) if bound]
    return min(known, default=None)


def _free_of_machine() -> int | None:
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


def _left_of_group(folder: Path = Path("/sys/fs/cgroup")) -> int | None:
    """What a container may still take; pages of files do not count, they can be dropped."""
    try:
        most = int((folder / "memory.max").read_text())
        taken = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return max(1, most - int(taken["anon"]))
    except (OSError, ValueError, KeyError):
        return None


def _left_of_process() -> int | None:
    """What ``ulimit -v`` leaves."""
    try:
        import resource

        most, _ = resource.getrlimit(resource.RLIMIT_AS)
        with open("/proc/self/statm") as file:
            taken = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        return None if most == resource.RLIM_INFINITY else max(1, most - taken)
    except (ImportError, OSError, ValueError):
        return None


def gibibytes(size: int) -> str:
    """A size as a person reads it."""
    return f"{size / 2**30:,.1f} GiB"


def refuse(option: str, value: object, needed: int, what: str, more: str = "") -> None:
    """``OptionError`` if so many bytes are not free; ``option`` is what asks for them."""
    free = available_memory()
    if free is not None and needed > 0.9 * free:
        found = f"{what} about {gibibytes(needed)}{more}, and {gibibytes(free)} are free"
        raise OptionError(option, value, f"{found}; give less")


BYTES_PER_DIGIT = 75
"""What drawing and laying out a test set takes at its peak, measured on all tasks."""


def check_samples(samples: int, length: int, option: str = "samples") -> None:
    """``OptionError`` if a test set of so many numbers would not fit the free memory."""
    value = samples if option == "samples" else length
    what = f"{samples} samples of {length} digits need"
    refuse(option, value, BYTES_PER_DIGIT * samples * length, what)


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


def check_memory(model: Model, batch: int, keys: int, steps: int, option: str = "") -> None:
    """Raise an error if a pass over such sources would not fit the free memory.

    ``OptionError`` where an ``option`` asks for them.
    """
    if model.device.type != "cpu":
        return
    free = available_memory()
    needed = model.memory_needed(batch, keys, steps)
    if free is not None and needed > 0.9 * free:
        rule = (
            f"a source of {keys} tokens needs about {gibibytes(needed)}, and {gibibytes(free)} "
            "are free: use a shorter one, or a calibrated model whose heads all follow lines, "
            "which takes memory linear in length"
        )
        raise OptionError(option, keys, rule) if option else AbcError(rule)
