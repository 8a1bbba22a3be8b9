"""Refuse a training that would not fit the memory, and name the option that asks for so much."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from abc_calib.config import ModelOptions, RunConfig, TrainOptions
from abc_calib.data import Data
from abc_calib.evaluation import memory
from abc_calib.evaluation.memory import BYTES_PER_DIGIT, gibibytes, refuse
from abc_calib.nn.build import model_type
from abc_calib.nn.undrawn import undrawn

PROBLEMS = 10_000
"""What a training draws at least at once: a training set, or what is held out."""


def check_length(length: int) -> None:
    """``OptionError`` if the problems of a training are too long to be drawn."""
    needed = BYTES_PER_DIGIT * PROBLEMS * length
    refuse("length", length, needed, f"{PROBLEMS:,} training problems of that length need")


def check_training(config: RunConfig, data: Data, given: Collection[str]) -> None:
    """``OptionError`` if a step of a training would not fit; ``given`` are options to blame."""
    free = memory.available_memory()
    if free is None or torch.cuda.is_available():
        return
    needed = step_memory(config.kind, config.model, config.train, data)
    if needed <= 0.9 * free:
        return
    sizes = {**config.train.model_dump(), **config.model.model_dump()}
    least: dict[str, int] = {}
    for name in (*given, "batch"):
        if isinstance(sizes.get(name), int) and not isinstance(sizes[name], bool):
            model, train = (_at_default(o, name) for o in (config.model, config.train))
            least[name] = step_memory(config.kind, model, train, data)
    blamed = min(least, key=lambda name: least[name])
    rest = least[blamed]
    others = "" if rest <= 0.9 * free else f" ({gibibytes(rest)} with its default: others ask too)"
    what = f"a step of {config.train.batch} samples with this model needs"
    refuse(blamed, sizes[blamed], needed, what, others)


def step_memory(kind: str, model: ModelOptions, train: TrainOptions, data: Data) -> int:
    """Bytes that weights, their gradients and moments, and the activations of a step may take."""
    made = model_type(kind)
    with torch.random.fork_rng(devices=[]), undrawn():
        network = made(model, data.vocabulary.tokens)
    longest = data.training(0, 1, exact=True)
    keys, steps = longest.source.shape[1], longest.target.shape[1]
    drawn = 3 * BYTES_PER_DIGIT * train.batch * train.length
    return network.memory_to_train(train.batch, keys, steps) + drawn


def _at_default(options: Any, name: str) -> Any:
    fields = type(options).model_fields
    return options.model_copy(update={name: fields[name].default}) if name in fields else options
