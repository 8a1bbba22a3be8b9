"""Refuse what would not fit, before it is tried."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from abc_calib.errors import AbcError

if TYPE_CHECKING:
    from abc_calib.runs.run import Run


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


def needed_memory(model: Any, batch: int, keys: int, steps: int) -> int:
    """Bytes that one pass over ``batch`` sources of ``keys`` tokens may take, roughly."""
    if hasattr(model, "needed_memory"):
        return model.needed_memory(batch, keys, steps)
    config = model.config
    activations = 40 * batch * (keys + steps) * (config.d_model + config.feedforward) * 4
    linear = all(
        bias is not None and bias.restricted
        for site, layers in model.biases.items()
        for bias in layers
    )
    if linear:
        return activations
    scores = 3 * config.heads * batch * steps * max(keys, steps) * 4
    if config.encoder_layers:
        scores += 3 * config.heads * batch * keys * keys * 4
    return activations + scores


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
    if run.config.stage == "vanilla":
        if run.config.model.window or run.config.recurrent:
            return ""
        which = "no head is restricted to lines"
    else:
        bias = run.bias()
        heads = bias.transparent()
        if not heads and bias.closed is None:
            return ""
        which = f"{len(heads)} heads are transparent" if heads else "keys off the lines are open"
    return f"{which}: dense attention, whose cost a digit grows with length"


def check_memory(model: Any, batch: int, keys: int, steps: int) -> None:
    """Raise ``AbcError`` if a pass over such sources would not fit the free memory."""
    if model.device.type != "cpu":
        return
    free = available_memory()
    needed = needed_memory(model, batch, keys, steps)
    if free is not None and needed > 0.9 * free:
        raise AbcError(
            f"a source of {keys} tokens needs about {needed / 2**30:.1f} GiB and "
            f"{free / 2**30:.1f} GiB are free: use a shorter one, or a calibrated model whose "
            "heads all follow lines, which takes memory linear in length"
        )
