"""How each kind of model trains by default: its shape and options by preset.

A recipe gives the options of the model and of its first training for a task. It is named in
``RECIPES`` by the kind of model; the options that a user gives change what it says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from abc_calib.config import (
    PRESETS,
    DecoderOptions,
    ModelOptions,
    RecurrentOptions,
    TrainOptions,
    preset,
)
from abc_calib.errors import UsageError
from abc_calib.nn.recurrent.attenders import attender_type
from tasks import Task

EPOCHS = {"ray_chowdhury": 100, "dubois": 50}
"""Passes through the training set in each paper."""
FEW = 20
"""Passes at most with the preset ``small``."""
PATIENCE = {"ray_chowdhury": 50, "dubois": 15}
"""Validations without a better one after which each paper's code ends the training."""
CLEAN = 5
"""Validations at 99.9 % in a row after which the preset ``small`` ends."""
HALVINGS = 3
"""Halvings of the learning rate after which the preset ``small`` ends: it is at an eighth."""

Recipe = Callable[[Task, str, Mapping[str, Any]], tuple[ModelOptions, TrainOptions]]
"""Options of the model and of its training, from a task, a preset and what was given."""


def check_preset(name: str) -> None:
    """``UsageError`` for a preset that is none."""
    if name not in PRESETS:
        raise UsageError(f"unknown preset {name!r}: choose one of {', '.join(PRESETS)}")


def transformer(
    task: Task, name: str, options: Mapping[str, Any]
) -> tuple[ModelOptions, TrainOptions]:
    """A preset. A window's lines are given, as a retraining's are, but each row sees more."""
    if options.get("epochs") is not None:
        raise UsageError("epochs are for recurrent models (model gru): give steps")
    shape, training, retraining = preset(name, task.notation)
    if options.get("attention_window") or shape.attention_window:
        training = retraining.model_copy(update={"steps": 2 * retraining.steps})
    return shape, training


def decoder(task: Task, name: str, options: Mapping[str, Any]) -> tuple[ModelOptions, TrainOptions]:
    """As the Transformer with an encoder, as far as the shape is the same."""
    shape, training = transformer(task, name, options)
    same = {field: getattr(shape, field) for field in DecoderOptions.model_fields}
    return DecoderOptions(**same), training


def recurrent(
    task: Task, name: str, options: Mapping[str, Any]
) -> tuple[ModelOptions, TrainOptions]:
    """One validation a pass.

    ``paper``: the schedule of the backbone's paper, to its end. ``small``: that of Ray Chowdhury
    & Caragea, which ends once the development set has been right long enough, once the rate has
    been halved so often that nothing moves any more, or after ``FEW`` passes. What is given may
    change the batch, and with it the steps of a pass; ``epochs`` are passes, in place of steps.
    """
    shape = RecurrentOptions()
    attender = attender_type(options.get("attender") or shape.attender)
    backbone = options.get("backbone") or attender.backbone
    epochs = options.get("epochs")
    if epochs is not None and (epochs < 1 or options.get("steps")):
        raise UsageError(f"epochs {epochs}: give 1 or more, and leave out steps")
    batch = options.get("batch") or 32
    length = options.get("length") or task.train_length
    steps = -(-task.pass_size(length) // batch)
    paper = name == "paper"
    by_loss = paper and backbone == "dubois"
    return shape, TrainOptions(
        batch=batch,
        steps=(epochs or (EPOCHS.get(backbone, FEW) if paper else FEW)) * steps,
        validate_every=steps,
        learning_rate=1e-3,
        warmup=0,
        cooldown=0,
        stop_early=not paper,
        early_stop_after=CLEAN,
        patience=PATIENCE.get(backbone, 0),
        halvings=0 if paper else HALVINGS,
        schedule="plateau",
        max_grad_norm=5.0,
        keep_best=True,
        monitor="loss" if by_loss else "accuracy",
        teacher_forcing=0.2 if by_loss else 1.0,
        dev="longer" if backbone == "ray_chowdhury" else "same",
    )


RECIPES: dict[str, Recipe] = {
    "transformer": transformer,
    "decoder": decoder,
    "gru": recurrent,
}
"""By kind of model."""
