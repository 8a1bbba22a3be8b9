"""How a model is trained, and the presets."""

from __future__ import annotations

from typing import ClassVar, Literal

from abc_calib.config.model import TransformerOptions
from abc_calib.config.options import Options, Word, option


class TrainOptions(Options):
    """How a model is trained.

    ``steps`` is the most; ``stop_early`` ends at ``early_stop_at``, the exact match on held-out
    problems. ``cooldown`` is how many steps the learning rate
    takes to fall once the model is nearly there (0: it does not). A ``schedule`` is a cosine, or
    the rate halved on a plateau.
    """

    group_title: ClassVar[str] = "a training"
    help_panel: ClassVar[str] = "Training"

    steps: int = option(3000, "Most optimiser steps.", ge=1, le=10**9)
    batch: int = option(64, "Samples a step.", ge=1, le=10**6)
    learning_rate: float = option(2.5e-3, "Highest learning rate.", gt=0, le=1000)
    optimizer: Literal["adam", "muon"] = option(
        "muon", "adam, or muon: a Transformer's matrices by Muon, and the rest by Adam."
    )
    warmup: int = option(100, "Steps in which the rate rises to its highest.", ge=0, le=10**9)
    validate_every: int = option(50, "Steps between two validations.", ge=1, le=10**9)
    stop_early: bool = option(
        True,
        "Stop when the model interpolates (see --early-stop-at). A retraining on lines stops when "
        "the model is right in every window.",
    )
    cooldown: int = option(
        100,
        "Steps in which the rate falls once the model is nearly there; 0: it does not.",
        ge=0,
        le=10**9,
    )
    sampling: Word = option("mixed", "How problems are drawn: uniform, balanced, carry or mixed.")
    length: int = option(6, "Longest training operand; 6 by default (parity: 20).", ge=1, le=10**6)
    format: Word = option(
        "free",
        "free, aligned (in columns), fixed:N, aligned,fixed:N, or hints: an index before each "
        "digit.",
    )
    seed: int = option(0, "Seed of the weights, the data and the split.", ge=0, le=2**63 - 1)
    dev: Literal["same", "longer"] = option(
        "same",
        "Token tasks: train by held-out problems of the same lengths (same), or the papers' longer "
        "ones (longer).",
    )
    early_stop_at: float = option(
        0.95,
        "Exact match on held-out problems that ends the training, 0.999 where a task has no rule; "
        "0, by default of tasks in rows: as soon as the lines that decide are found.",
        ge=0,
        le=1,
    )
    early_stop_after: int = option(
        1, "How many such validations in a row end the training.", ge=1, le=10**6
    )
    patience: int = option(
        0,
        "Validations without a better one after which the training ends; 0: never.",
        ge=0,
        le=10**6,
    )
    halvings: int = option(
        0, "Halvings of the rate that end the training; 0: none do.", ge=0, le=1000
    )
    schedule: Literal["cosine", "plateau"] = option(
        "cosine", "The learning rate: a cosine, or halved on a plateau (plateau)."
    )
    keep_best: bool = option(False, "Keep the model of the best validation, not the last one.")
    monitor: Literal["accuracy", "loss"] = option(
        "accuracy", "What makes a validation better: accuracy or loss."
    )
    max_grad_norm: float = option(1.0, "Largest norm of a gradient.", gt=0, le=10**9)
    teacher_forcing: float = option(
        1.0,
        "Share of batches in which a recurrent decoder reads the right tokens, not its own.",
        ge=0,
        le=1,
    )


FIRST = TrainOptions()
"""A first training that is good enough to be calibrated."""
RETRAIN = TrainOptions(
    steps=2000, batch=128, learning_rate=4e-3, cooldown=150, early_stop_at=0.999, early_stop_after=2
)
"""A retraining on lines, which ends as soon as every window is right."""
ADAM = RETRAIN.model_copy(update={"optimizer": "adam", "validate_every": 100, "cooldown": 0})
"""The same for models that Muon does not train."""

SHAPE = TransformerOptions(encoder_layers=1)
PRESETS: dict[str, tuple[TransformerOptions, TrainOptions, TrainOptions]] = {
    "default": (SHAPE, FIRST, RETRAIN),
    "paper": (
        TransformerOptions(width=128, feedforward=512, dropout=0.3, post_norm=True),
        ADAM.model_copy(
            update={"steps": 20_000, "learning_rate": 5e-4, "batch": 256, "cooldown": 600}
        ),
        ADAM.model_copy(update={"learning_rate": 5e-4, "batch": 256, "stop_early": False}),
    ),
}
"""Transformer, first training and retraining. ``paper`` has the model of the public code of Duan &
Shi: three post-norm decoder layers, no encoder (their section 3.3 has one encoder and six decoder
layers). What ``default`` does follows from the task, too: ``abc_calib.training.recipes``."""
