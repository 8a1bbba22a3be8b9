"""How each kind of model trains by default: one recipe for commands, sweeps and Python.

A first training follows from the task: which problems it draws, how wide the model is, when it may
end. So does the retraining on lines. The options that a user gives change what a recipe says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from abc_calib.config import (
    ADAM,
    PRESETS,
    DecoderOptions,
    ModelOptions,
    RecurrentOptions,
    TrainOptions,
    TransformerOptions,
)
from abc_calib.errors import UsageError
from abc_calib.nn.recurrent.attenders import attender_type
from tasks import ROW_TASKS, Task
from tasks.rules import Rule

ROWS = PRESETS["default"][0].model_copy(update={"encoder_layers": 0, "scheme": "coupled"})
"""The model where outputs have rows."""
ROWS_FIRST = {"steps": 4000, "batch": 128, "learning_rate": 3e-3, "optimizer": "adam"} | {
    "validate_every": 250,
    "early_stop_at": 0.0,
    "early_stop_after": 2,
    "cooldown": 600,
}
"""Lines of several rows are there long before the model is right, and the problems themselves say
whether they decide."""
ROWS_AGAIN = {"steps": 7000, "batch": 64, "learning_rate": 3e-3, "validate_every": 250}
"""A row takes longer than a sum."""
SMALL_STEPS = 2000
"""A rule of fewer steps is a small one: a sum in base 10 has 948, a product 14,269."""
COOLED = 200
"""Of small rules a retraining in rows cools down: a sum in base 10 takes 500 steps, and 3,250
without a cooldown."""
ROW_DIGITS = 6
"""Products of fewer digits lack windows of longer ones, which are then wrong after a retraining."""
MANY_STEPS = 20_000
"""A rule of more steps is a large table: N×1 in base 36 has 25,941, S5 14,641."""
MANY_SYMBOLS = 16
"""Of more symbols a first training sees a few: which they are makes no difference to the lines."""
WIDER = {"width": 128, "feedforward": 256}
"""What learns a large table, in batches of 128."""
LARGE = {"steps": 6000, "cooldown": 0}
"""Then a retraining takes longer, and its rate stays high."""
NARROW = {"width": 16, "feedforward": 32}
"""Widths of a retrained model of a small rule. Lines say where it reads: it has little to learn."""

EPOCHS = {"ray_chowdhury": 100, "dubois": 50}
"""Passes through the training set in each paper."""
FEW = 20
"""Passes at most by default."""
PATIENCE = {"ray_chowdhury": 50, "dubois": 15}
"""Validations without a better one after which each paper's code ends the training."""
CLEAN = 5
"""Validations at 99.9 % in a row after which a training ends by default."""
HALVINGS = 3
"""Halvings of the learning rate after which a training ends by default: it is at an eighth."""


@dataclass(frozen=True)
class Recipe:
    """Shape and first training of a model, its retraining on lines, and the retrained shape.

    ``retrained``: options in which the shape of the retrained model differs from the first one's.
    """

    shape: ModelOptions
    first: TrainOptions
    retraining: TrainOptions = ADAM
    retrained: dict[str, Any] = field(default_factory=dict)


def recipe_of(task: Task, preset: str, kind: str, options: Mapping[str, Any]) -> Recipe:
    """How a model of a kind trains on a task, unless ``options`` say otherwise.

    ``UsageError`` for an unknown preset.
    """
    if preset not in PRESETS:
        raise UsageError(f"unknown preset {preset!r}: choose one of {', '.join(PRESETS)}")
    return RECIPES[kind](task, preset, options)


def transformer(task: Any, preset: str, options: Mapping[str, Any]) -> Recipe:
    """The encoder-decoder; an attention window's lines are given, as a retraining's are."""
    shape, first, retraining = PRESETS[preset]
    retrained: dict[str, Any] = {}
    if preset == "default":
        rule = task.rule()
        if rule is not None and not is_large(rule):
            retrained = NARROW if is_small(rule) else {}
        if "row" in task.notation:
            shape, first, retraining = in_rows(task, rule, first, retraining)
        elif rule is None:
            first = changed(first, {"early_stop_at": 0.999, "cooldown": 200})
        else:
            if is_large(rule):
                shape, first = shape.model_copy(update=WIDER), changed(first, {"batch": 128})
                retraining = changed(retraining, LARGE)
            if getattr(task, "redrawn", False) and len(task.inputs) > MANY_SYMBOLS:
                first = changed(first, {"sampling": "few"})
    if options.get("attention_window"):
        first = changed(retraining, {"steps": 2 * retraining.steps})  # each row sees more
    return Recipe(shape, first, retraining, retrained)


def in_rows(
    task: Any, rule: Rule | None, first: TrainOptions, retraining: TrainOptions
) -> tuple[TransformerOptions, TrainOptions, TrainOptions]:
    """Shape and trainings where outputs have rows, of digits or of words."""
    if task.notation == "row words":
        return ROWS, changed(first, {"early_stop_at": 0.0}), retraining
    longer = rule is not None and task.name in ROW_TASKS and task.base > 2
    first = changed(first, ROWS_FIRST | ({"length": ROW_DIGITS} if longer else {}))
    again = {**ROWS_AGAIN, "cooldown": COOLED if is_small(rule) else 0}
    return ROWS, first, changed(retraining, again)


def is_small(rule: Rule | None) -> bool:
    """Whether there is a rule with so few steps that a narrow model learns it."""
    return rule is not None and steps_of(rule) < SMALL_STEPS


def is_large(rule: Rule | None) -> bool:
    """Whether a rule of one row has more steps than a model of width 64 learns."""
    return rule is not None and not rule.in_rows and steps_of(rule) > MANY_STEPS


def steps_of(rule: Rule) -> int:
    """The number of steps in a rule's table, of its rows the larger one."""
    return max(len(part.steps[0]) for part in (rule.first, rule.later) if part)


def changed(options: TrainOptions, values: Mapping[str, Any]) -> TrainOptions:
    """Options with other values."""
    return options.model_copy(update=values)


def decoder(task: Task, preset: str, options: Mapping[str, Any]) -> Recipe:
    """As the Transformer with an encoder, as far as the shape is the same."""
    recipe = transformer(task, preset, options)
    same = {name: getattr(recipe.shape, name) for name in DecoderOptions.model_fields}
    return Recipe(DecoderOptions(**same), recipe.first, recipe.retraining, recipe.retrained)


def foreign(task: Task, preset: str, options: Mapping[str, Any]) -> Recipe:
    """A model of ``transformers``, of which only the retraining is ours."""
    return Recipe(ModelOptions(), TrainOptions(), ADAM)


def recurrent(task: Task, preset: str, options: Mapping[str, Any]) -> Recipe:
    """One validation a pass.

    ``paper``: the schedule of the backbone's paper, to its end. ``default``: that of Ray Chowdhury
    & Caragea, which ends once the development set has been right long enough, once the rate has
    been halved so often that nothing moves any more, or after ``FEW`` passes. What is given may
    change the batch, and with it the steps of a pass.
    """
    shape = RecurrentOptions()
    attender = attender_type(options.get("attender") or shape.attender)
    backbone = options.get("backbone") or attender.backbone
    batch = options.get("batch") or 32
    length = options.get("length") or task.train_length
    steps = -(-task.pass_size(length) // batch)
    paper = preset == "paper"
    by_loss = paper and backbone == "dubois"
    schedule = {
        "batch": batch,
        "steps": (EPOCHS.get(backbone, FEW) if paper else FEW) * steps,
        "validate_every": steps,
        "learning_rate": 1e-3,
        "warmup": 0,
        "cooldown": 0,
        "stop_early": not paper,
        "early_stop_after": CLEAN,
        "patience": PATIENCE.get(backbone, 0),
        "halvings": 0 if paper else HALVINGS,
        "schedule": "plateau",
        "max_grad_norm": 5.0,
        "keep_best": True,
        "monitor": "loss" if by_loss else "accuracy",
        "teacher_forcing": 0.2 if by_loss else 1.0,
    }
    dev = {"dev": "longer" if backbone == "ray_chowdhury" else "same"}
    return Recipe(shape, changed(ADAM, {**schedule, **dev}), ADAM)


RECIPES: dict[str, Callable[[Task, str, Mapping[str, Any]], Recipe]] = {
    "transformer": transformer,
    "decoder": decoder,
    "gru": recurrent,
    "foreign": foreign,
}
"""By kind of model."""
