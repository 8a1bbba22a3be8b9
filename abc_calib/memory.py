"""What fits the free memory, and one refusal of what does not."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from abc_calib.errors import AbcError, OptionError

BYTES_PER_DIGIT = 75
"""What drawing and laying out a test set takes at its peak, measured on all tasks."""


def available_memory(group: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes that this process may still take, or None where that is unknown.

    Of the machine, and of its container, where pages of files do not count: they can be dropped.
    """
    bounds = []
    with suppress(OSError, ValueError, KeyError):
        meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        bounds.append(int(meminfo["MemAvailable"].split()[0]) * 1024)
    with suppress(OSError, ValueError, KeyError):
        most = int((group / "memory.max").read_text())
        usage = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        bounds.append(max(1, most - int(usage["anon"])))
    return min(bounds, default=None)


def lacking(needed: int) -> str:
    """How many bytes are ``needed`` and how many free; empty where they fit or none can tell."""
    free = available_memory()
    if free is None or needed <= 0.9 * free:
        return ""
    return f"about {needed / 2**30:,.1f} GiB, and {free / 2**30:,.1f} GiB are free"


def refuse(option: str, value: object, needed: int, what: str) -> None:
    """``OptionError`` if ``needed`` bytes are not free; ``option`` is what needs them."""
    if shortage := lacking(needed):
        raise OptionError(option, value, f"{what} {shortage}; give less")


def check_samples(samples: int, length: int, option: str = "samples") -> None:
    """``OptionError`` if a test set of ``samples`` problems would not fit the free memory."""
    value = samples if option == "samples" else length
    what = f"{samples} samples of {length} digits need"
    refuse(option, value, BYTES_PER_DIGIT * samples * length, what)


def check_source(model: Any, keys: int, steps: int, option: str = "") -> None:
    """Raise an error if one source of ``keys`` tokens would not fit the free memory of a model.

    ``OptionError`` where an ``option`` asks for it.
    """
    shortage = lacking(model.memory_needed(1, keys, steps))
    if model.device.type == "cpu" and shortage:
        rule = (
            f"a source of {keys} tokens needs {shortage}: use a shorter one, or a calibrated "
            "model whose heads all follow lines, which takes memory linear in length"
        )
        raise OptionError(option, keys, rule) if option else AbcError(rule)
