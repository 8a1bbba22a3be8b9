"""From options to the configuration of a run, checked: what is not possible is refused here.

Nothing is trained or written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from abc_calib.config import (
    PRESETS,
    CalibrationOptions,
    ModelOptions,
    Options,
    RecurrentOptions,
    RunConfig,
    TrainOptions,
    build,
)
from abc_calib.errors import UsageError
from abc_calib.nn.build import check_heads
from abc_calib.nn.positions import check_positions
from abc_calib.nn.window import check_window
from abc_calib.runs.run import Run
from abc_calib.training.recipes import body_of, check_shape, training_options
from abc_calib.version import __version__
from tasks import TokenTask, get_task

MODELS = ("transformer", "gru")


def plan_training(
    task: str,
    *,
    base: int | None = None,
    task_options: Mapping[str, int | str | None] | None = None,
    preset: str = "small",
    model: str = "transformer",
    epochs: int | None = None,
    finetune: Run | None = None,
    **overrides: Any,
) -> RunConfig:
    """The configuration of a first training, checked; nothing is trained or written.

    ``model``: ``transformer`` or ``gru``. ``epochs``: passes through the training set, in place
    of ``steps``, for ``gru``. ``finetune``: the run whose model and weights to start from.
    """
    if finetune is not None:
        known = "gru" if finetune.config.recurrent else "transformer"
        if model not in (known, "transformer"):
            raise UsageError(f"finetune {finetune}: its model is {known}, not {model}")
        model = known
    options = {key: value for key, value in (task_options or {}).items() if value is not None}
    problem: Any = get_task(task, base=base, **options)
    if preset not in PRESETS:
        raise UsageError(f"unknown preset {preset!r}: choose one of {', '.join(PRESETS)}")
    if model not in MODELS:
        raise UsageError(f"unknown model {model!r}: choose {' or '.join(MODELS)}")
    if model == "gru":
        return _plan_recurrent(problem, options, preset, epochs, finetune, overrides)
    if epochs is not None:
        raise UsageError("epochs are for recurrent models (model gru): give steps")
    shape, training, retraining = PRESETS[preset]
    if finetune is not None:
        shape = finetune.config.model
    # the lines of a window are given, as a retraining's are; each row sees more
    if overrides.get("window") or shape.window:
        training = retraining.model_copy(update={"steps": 2 * retraining.steps})
    overrides.setdefault("length", problem.train_length)
    if isinstance(problem, TokenTask):
        training = training.model_copy(update={"law": problem.laws[0]})
    config = RunConfig(
        code_version=__version__,
        stage="vanilla",
        task=problem.name,
        base=getattr(problem, "base", None),
        task_options=options,
        preset=preset,
        model=_changed(shape, overrides, "model"),
        train=_changed(training, overrides, "training"),
    )
    _refuse_unknown(overrides)
    check_heads(config.model)
    check_positions(config.model)
    if isinstance(problem, TokenTask):
        _check_token_options(problem, config.train)
    check_window(config.model.window, Run.draft(config).source)
    return _starting_from(finetune, config)


def _plan_recurrent(
    task: Any,
    options: dict[str, int | str],
    preset: str,
    epochs: int | None,
    finetune: Run | None,
    overrides: dict[str, Any],
) -> RunConfig:
    """``plan_training`` for a recurrent model."""
    if epochs is not None and (epochs < 1 or overrides.get("steps")):
        raise UsageError(f"epochs {epochs}: give 1 or more, and no steps beside them")
    known = finetune.config.recurrent if finetune else None
    shape = _changed(known or RecurrentOptions(), overrides, "recurrent model")
    body = body_of(shape)
    check_shape(shape)
    overrides.setdefault("length", task.train_length)
    if isinstance(task, TokenTask):
        task.check(overrides["length"], task.laws[0], task.shortest)
    training = training_options(task, body, preset, overrides, epochs)
    config = RunConfig(
        code_version=__version__,
        stage="vanilla",
        task=task.name,
        base=getattr(task, "base", None),
        task_options=options,
        preset=preset,
        model=ModelOptions(),
        recurrent=shape.model_copy(update={"body": body}),
        train=_changed(training, overrides, "training"),
    )
    _refuse_unknown(overrides, RecurrentOptions)
    if isinstance(task, TokenTask):
        _check_token_options(task, config.train)
    return _starting_from(finetune, config)


def _starting_from(start: Run | None, config: RunConfig) -> RunConfig:
    """``config`` with ``start`` as its parent; ``UsageError`` if its model is another one."""
    if start is None:
        return config
    if start.config.stage != "vanilla":
        raise UsageError(f"finetune {start}: it is calibrated; name a first training")
    if start.result is None:
        raise UsageError(f"finetune {start}: its training has not ended; abc train --resume it")
    if config.shape != start.config.shape:
        raise UsageError(f"finetune {start}: leave out the model's options, it has that run's")
    if Run.draft(config).task.symbols != start.task.symbols:
        raise UsageError(
            f"finetune {start}: {config.task} has other symbols than its task "
            f"{start.config.task}; choose a task with the same"
        )
    return config.model_copy(update={"parent": str(start.path)})


def _check_token_options(task: TokenTask, options: TrainOptions) -> None:
    """``UsageError`` for what only tasks on numbers have."""
    if options.format != "free":
        raise UsageError(f"format {options.format!r}: {task.name} has only the format free")
    task.check(options.length, options.law, task.shortest)


def plan_calibration(config: RunConfig, *, scheme: str = "none", **overrides: Any) -> RunConfig:
    """The configuration of calibrating a run of ``config``, checked; nothing is written."""
    if config.recurrent:
        raise UsageError("calibration is for the Transformer: a recurrent model has no biases")
    for name in ("dirs", "sites"):
        if name in overrides:
            overrides[name] = tuple(dict.fromkeys(overrides[name]))
    named = {k: overrides.pop(k) for k in list(overrides) if k in CalibrationOptions.model_fields}
    options = build(CalibrationOptions, "calibration", **named)
    threshold = options.threshold
    if options.fit == "nnls" and threshold is not None and not 0 < threshold <= 1:
        raise UsageError(
            f"threshold {threshold:g} is not possible with the nnls fit: give a share of a head's "
            "attention, above 0 and at most 1"
        )
    positions = {"encoder_scheme": None, "decoder_scheme": None, "cross_scheme": None}
    shape = config.model.model_copy(
        update={
            **positions,
            "scheme": scheme,
            "window": None,
            "cyclic": None if scheme == "none" else config.model.cyclic,
        }
    )
    check_positions(shape)
    _, _, retraining = PRESETS[config.preset]
    kept = {name: getattr(config.train, name) for name in ("law", "length", "format", "seed")}
    given = {**kept, **overrides}
    settings = _changed(retraining, given, "retraining")
    _refuse_unknown(given)
    if settings.length != config.train.length or settings.format != config.train.format:
        raise UsageError("length and format of the retraining are those of the first training")
    return config.model_copy(
        update={
            "code_version": __version__,
            "stage": "calibrated",
            "model": shape,
            "train": settings,
            "calibration": options,
        }
    )


def _changed(options: Any, overrides: dict[str, Any], name: str) -> Any:
    """``options`` with the overrides that are fields of it, checked; they are taken out."""
    fields = type(options).model_fields
    mine = {key: overrides.pop(key) for key in list(overrides) if key in fields}
    mine = {key: value for key, value in mine.items() if value is not None}
    return build(type(options), f"{name} options", **{**options.model_dump(), **mine})


def _refuse_unknown(overrides: dict[str, Any], shape: type[Options] = ModelOptions) -> None:
    if overrides:
        allowed = [*shape.model_fields, *TrainOptions.model_fields]
        raise UsageError(
            f"unknown option {next(iter(overrides))!r}: choose among {', '.join(allowed)}"
        )
