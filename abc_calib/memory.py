"""How much memory is free."""

from __future__ import annotations

from pathlib import Path


def available_memory() -> int | None:
    """Bytes that this process may still take, or None where that is unknown."""
    bounds = [bound for bound in (_free_of_machine(), _left_of_group()) if bound]
    return min(bounds, default=None)


def _free_of_machine() -> int | None:
    try:
        meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        return int(meminfo["MemAvailable"].split()[0]) * 1024
    except (OSError, ValueError, KeyError):
        return None


def _left_of_group(folder: Path = Path("/sys/fs/cgroup")) -> int | None:
    """What a container may still take; pages of files do not count, they can be dropped."""
    try:
        most = int((folder / "memory.max").read_text())
        usage = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return max(1, most - int(usage["anon"]))
    except (OSError, ValueError, KeyError):
        return None


def gibibytes(size: int) -> str:
    """A size as a person reads it."""
    return f"{size / 2**30:,.1f} GiB"


def lacking(needed: int) -> str:
    """How many bytes are ``needed`` and how many free; empty where they fit or none can tell."""
    free = available_memory()
    if free is None or needed <= 0.9 * free:
        return ""
    return f"about {gibibytes(needed)}, and {gibibytes(free)} are free"
