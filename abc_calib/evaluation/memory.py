"""Refuse what would not fit the memory, before it is tried."""

from __future__ import annotations

import torch

from abc_calib.config import RunConfig
from abc_calib.data import Data
from abc_calib.errors import AbcError, OptionError
from abc_calib.memory import lacking
from abc_calib.nn.base import Model
from abc_calib.nn.build import model_type
from abc_calib.nn.evaluator import Evaluator
from abc_calib.nn.skip_init import skip_init

BYTES_PER_DIGIT = 75
"""What drawing and laying out a test set takes at its peak, measured on all tasks."""
KEPT = 4
"""A training step takes about this many times the memory of a pass: it keeps all for gradients."""
PROBLEMS = 10_000
"""What a training draws at least at once: a training set, or what is held out."""


def refuse(option: str, value: object, needed: int, what: str) -> None:
    """``OptionError`` if ``needed`` bytes are not free; ``option`` is what needs them."""
    if shortage := lacking(needed):
        raise OptionError(option, value, f"{what} {shortage}; give less")


def check_samples(samples: int, length: int, option: str = "samples") -> None:
    """``OptionError`` if a test set of ``samples`` problems would not fit the free memory."""
    value = samples if option == "samples" else length
    what = f"{samples} samples of {length} digits need"
    refuse(option, value, BYTES_PER_DIGIT * samples * length, what)


def check_memory(
    model: Model | Evaluator, batch: int, keys: int, steps: int, option: str = ""
) -> None:
    """Raise an error if a pass over such sources would not fit the free memory.

    ``OptionError`` where an ``option`` asks for them.
    """
    shortage = lacking(model.memory_needed(batch, keys, steps))
    if model.device.type == "cpu" and shortage:
        rule = (
            f"a source of {keys} tokens needs {shortage}: use a shorter one, or a calibrated "
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
    model_class, train = model_type(config.kind), config.train
    with torch.random.fork_rng(devices=[]), skip_init():
        network = model_class(config.model, data.vocabulary.tokens)
    longest = data.training(0, 1, exact=True)
    keys, steps = longest.source.shape[1], longest.target.shape[1]
    weights = 16 * sum(weight.numel() for weight in network.parameters())
    drawn = 3 * BYTES_PER_DIGIT * train.batch * train.length
    return weights + KEPT * network.memory_needed(train.batch, keys, steps) + drawn
