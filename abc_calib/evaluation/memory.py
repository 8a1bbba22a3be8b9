"""Refuse what would not fit the memory, before it is tried."""

from __future__ import annotations

from pathlib import Path

import torch

from abc_calib.config import RunConfig
from abc_calib.data import Data
from abc_calib.errors import AbcError, OptionError
from abc_calib.nn.base import Model
from abc_calib.nn.build import model_type
from abc_calib.nn.undrawn import undrawn

BYTES_PER_DIGIT = 75
"""What drawing and laying out a test set takes at its peak, measured on all tasks."""
PROBLEMS = 10_000
"""What a training draws at least at once: a training set, or what is held out."""


def available_memory() -> int | None:
    """Bytes that this process may still take, or None where that cannot be told."""
    known = [bound for bound in (_free_of_machine(), _left_of_group()) if bound]
    return min(known, default=None)


def _free_of_machine() -> int | None:
    try:
        named = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        return int(named["MemAvailable"].split()[0]) * 1024
    except (OSError, ValueError, KeyError):
        return None


def _left_of_group(folder: Path = Path("/sys/fs/cgroup")) -> int | None:
    """What a container may still take; pages of files do not count, they can be dropped."""
    try:
        most = int((folder / "memory.max").read_text())
        taken = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return max(1, most - int(taken["anon"]))
    except (OSError, ValueError, KeyError):
        return None


def gibibytes(size: int) -> str:
    """A size as a person reads it."""
    return f"{size / 2**30:,.1f} GiB"


def fits(needed: int) -> bool:
    """Whether this many bytes are free; true where that cannot be determined."""
    free = available_memory()
    return free is None or needed <= 0.9 * free


def refuse(option: str, value: object, needed: int, what: str) -> None:
    """``OptionError`` if ``needed`` bytes are not free; ``option`` is what needs them."""
    if not fits(needed):
        free = gibibytes(available_memory() or 0)
        found = f"{what} about {gibibytes(needed)}, and {free} are free"
        raise OptionError(option, value, f"{found}; give less")


def check_samples(samples: int, length: int, option: str = "samples") -> None:
    """``OptionError`` if a test set of ``samples`` problems would not fit the free memory."""
    value = samples if option == "samples" else length
    what = f"{samples} samples of {length} digits need"
    refuse(option, value, BYTES_PER_DIGIT * samples * length, what)


def check_memory(model: Model, batch: int, keys: int, steps: int, option: str = "") -> None:
    """Raise an error if a pass over such sources would not fit the free memory.

    ``OptionError`` where an ``option`` asks for them.
    """
    needed = model.memory_needed(batch, keys, steps)
    if model.device.type == "cpu" and not fits(needed):
        rule = (
            f"a source of {keys} tokens needs about {gibibytes(needed)}, and "
            f"{gibibytes(available_memory() or 0)} are free: use a shorter one, or a calibrated "
            "model whose heads all follow lines, which takes memory linear in length"
        )
        raise OptionError(option, keys, rule) if option else AbcError(rule)


def check_training(config: RunConfig, data: Data) -> None:
    """``OptionError`` if a step of a training would not fit the free memory."""
    if torch.cuda.is_available():
        return
    batch, longest = config.train.batch, config.train.length
    what = f"a step of {batch} samples of {longest} {data.task.unit} with this model needs"
    refuse("batch", batch, step_memory(config, data), what)


def step_memory(config: RunConfig, data: Data) -> int:
    """Bytes of a step of training: weights, gradients and moments, activations, problems."""
    made, train = model_type(config.kind), config.train
    with torch.random.fork_rng(devices=[]), undrawn():
        network = made(config.model, data.vocabulary.tokens)
    longest = data.training(0, 1, exact=True)
    keys, steps = longest.source.shape[1], longest.target.shape[1]
    weights = 16 * sum(weight.numel() for weight in network.parameters())
    drawn = 3 * BYTES_PER_DIGIT * train.batch * train.length
    return weights + network.memory_needed(train.batch, keys, steps, training=True) + drawn
