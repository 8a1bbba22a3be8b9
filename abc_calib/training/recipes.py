"""From options to a recurrent model and its schedule."""

from __future__ import annotations

from typing import Any

import torch

from abc_calib.config import RecurrentOptions, TrainOptions
from abc_calib.data.vocabulary import Vocabulary
from abc_calib.errors import UsageError
from abc_calib.nn.recurrent.attenders import attender_type
from abc_calib.nn.recurrent.backbones import BODIES
from abc_calib.nn.recurrent.model import RecurrentConfig, RecurrentModel
from tasks import Task, TokenTask

EPOCHS = {"ray_chowdhury": 100, "dubois": 50}
"""Passes through the training set in each paper."""
FEW = 20
"""Passes at most with the preset ``small``."""
PATIENCE = {"ray_chowdhury": 50, "dubois": 15}
"""Validations without a better one after which each paper's code ends the training."""
ENOUGH = 5
"""Validations in a row without a mistake after which the preset ``small`` ends."""
HALVINGS = 3
"""Halvings of the learning rate after which the preset ``small`` ends: it is at an eighth."""
PASS = 10_001
"""Problems that count as one pass where they are drawn without end, as in the copy family."""


def training_options(
    task: Task, body: str, preset: str, overrides: dict[str, Any], epochs: int | None
) -> TrainOptions:
    """How a recurrent model trains unless told otherwise: one validation a pass.

    ``paper``: the schedule of the body's paper, to its end. ``small``: that of Ray Chowdhury &
    Caragea, which ends once the development set has been right long enough, once the rate has been
    halved so often that nothing moves any more, or after ``FEW`` passes. ``overrides`` may change
    the batch, and with it the steps of a pass.
    """
    if preset not in ("small", "paper"):
        raise UsageError(f"unknown preset {preset!r}: choose one of small, paper")
    batch = overrides.get("batch") or 32
    length = overrides.get("length") or task.train_length
    size = len(task.training_set(length)) if isinstance(task, TokenTask) else PASS
    a_pass = -(-size // batch)
    paper = preset == "paper"
    by_loss = paper and body == "dubois"
    return TrainOptions(
        batch=batch,
        steps=(epochs or (EPOCHS[body] if paper else FEW)) * a_pass,
        validate_every=a_pass,
        learning_rate=1e-3,
        warmup=0,
        cooldown=0,
        stop_early=not paper,
        enough=ENOUGH,
        patience=PATIENCE[body],
        halvings=0 if paper else HALVINGS,
        schedule="plateau",
        clip=5.0,
        keep_best=True,
        by="loss" if by_loss else "accuracy",
        teacher_forcing=0.2 if by_loss else 1.0,
        dev="longer" if body == "ray_chowdhury" else "same",
        law=task.laws[0] if isinstance(task, TokenTask) else "mixed",
    )


def body_of(options: RecurrentOptions) -> str:
    """The body of the options, or that of the attender's paper; ``UsageError`` for unknown ones."""
    attender = attender_type(options.attender)
    if options.body is None:
        return attender.body
    if options.body not in BODIES:
        raise UsageError(f"unknown body {options.body!r}: choose one of {', '.join(BODIES)}")
    return options.body


def check_shape(options: RecurrentOptions) -> None:
    """Raise ``UsageError`` for widths that cannot be."""
    if options.width % 2 or options.head % 2:
        raise UsageError(
            f"width {options.width} and head {options.head}: choose even numbers, since the "
            "encoder has two directions and positions turn pairs"
        )


def build_recurrent(options: RecurrentOptions, vocabulary: Vocabulary, seed: int) -> RecurrentModel:
    """A model with fresh weights drawn from ``seed``."""
    check_shape(options)
    config = RecurrentConfig(
        vocab_size=len(vocabulary),
        body=body_of(options),
        attender=options.attender,
        d_embedding=options.embedding,
        d_model=options.width,
        d_head=options.head,
        d_value=options.value,
        layers=options.layers,
        dropout=options.dropout,
        legacy_normalisation=options.legacy_normalisation,
        pad_token_id=vocabulary.pad,
        bos_token_id=vocabulary.sos,
        eos_token_id=vocabulary.eos,
        decoder_start_token_id=vocabulary.sos,
    )
    torch.manual_seed(seed)
    return RecurrentModel(config)
