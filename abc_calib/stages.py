"""The stages: train, calibrate, retrain, evaluate. Each reads and writes run folders.

What the commands call, and what a notebook calls too.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from abc_calib.calibration.check import Check
from abc_calib.calibration.pipeline import Calibration
from abc_calib.calibration.pipeline import calibrate as find_lines
from abc_calib.calibration.window import check_window, window_bias
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
from abc_calib.errors import AbcError, UsageError
from abc_calib.evaluation import Row
from abc_calib.evaluation import evaluate as exact_match_rows
from abc_calib.nn.positions import check_positions
from abc_calib.recurrent import body_of, check_shape, training_options
from abc_calib.runs import Run, write_atomically, write_text
from abc_calib.training import Callback, Trainer, build_model, check_heads, resolve_device
from abc_calib.version import __version__
from tasks import TokenTask, get_task


def _ignore(*_: Any) -> None:
    pass


def train(
    task: str,
    *,
    base: int | None = None,
    task_options: Mapping[str, int | str | None] | None = None,
    preset: str = "small",
    out: Path | None = None,
    device: str = "auto",
    on_step: Callback = _ignore,
    on_start: Callable[[Run], None] = _ignore,
    **overrides: Any,
) -> Run:
    """Train a vanilla model on short problems until it interpolates.

    ``task_options`` go to ``tasks.get_task``. ``overrides`` are fields of ``ModelOptions`` and
    ``TrainOptions``. Raises ``UsageError`` for
    an unknown task, preset, device or option before anything is written, and ``Interrupted`` on
    Ctrl-C with a checkpoint saved.
    """
    resolve_device(device)
    config = plan_training(task, base=base, task_options=task_options, preset=preset, **overrides)
    run = _created(config, out)
    on_start(run)
    return _trained(run, device, on_step)


def plan_training(
    task: str,
    *,
    base: int | None = None,
    task_options: Mapping[str, int | str | None] | None = None,
    preset: str = "small",
    model: str = "transformer",
    epochs: int | None = None,
    **overrides: Any,
) -> RunConfig:
    """The configuration of a first training, checked; nothing is trained or written.

    ``model``: ``transformer`` or ``gru``. ``epochs``: passes through the training set, in place
    of ``steps``, for ``gru``.
    """
    options = {key: value for key, value in (task_options or {}).items() if value is not None}
    problem: Any = get_task(task, base=base, **options)
    if preset not in PRESETS:
        raise UsageError(f"unknown preset {preset!r}: choose one of {', '.join(PRESETS)}")
    if model not in MODELS:
        raise UsageError(f"unknown model {model!r}: choose {' or '.join(MODELS)}")
    if model == "gru":
        return _plan_recurrent(problem, options, preset, epochs, overrides)
    if epochs is not None:
        raise UsageError("epochs are for recurrent models (model gru): give steps")
    shape, training, retraining = PRESETS[preset]
    if overrides.get("window"):  # its lines are given, as a retraining's are; each row sees more
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
    return config


MODELS = ("transformer", "gru")


def _plan_recurrent(
    task: Any,
    options: dict[str, int | str],
    preset: str,
    epochs: int | None,
    overrides: dict[str, Any],
) -> RunConfig:
    """``plan_training`` for a recurrent model."""
    if epochs is not None and (epochs < 1 or overrides.get("steps")):
        raise UsageError(f"epochs {epochs}: give 1 or more, and no steps beside them")
    shape = _changed(RecurrentOptions(), overrides, "recurrent model")
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
    return config


def _check_token_options(task: TokenTask, options: TrainOptions) -> None:
    """``UsageError`` for what only tasks on numbers have."""
    if options.format != "free":
        raise UsageError(f"format {options.format!r}: {task.name} has only the format free")
    task.check(options.length, options.law, task.shortest)


def calibrate(
    run: Run | Path | str | None = None,
    *,
    scheme: str = "none",
    force: bool = False,
    retrain: bool = True,
    out: Path | None = None,
    device: str = "auto",
    on_step: Callback = _ignore,
    on_check: Callable[[Check], None] = _ignore,
    on_lines: Callable[[Run, Calibration], None] = _ignore,
    **overrides: Any,
) -> Run:
    """Find the lines of a trained run and, with ``retrain``, train a new model with them.

    Makes a new run folder. Raises ``AbcError`` if the model has not interpolated, unless
    ``force``. ``overrides`` are fields of ``CalibrationOptions``, and of ``TrainOptions`` for the
    retraining.
    """
    vanilla = _vanilla(run)
    config = plan_calibration(vanilla.config, scheme=scheme, **overrides)
    assert config.calibration is not None
    model = vanilla.load_model().to(resolve_device(device))
    calibration = find_lines(model, vanilla.source, config.calibration, force, on_check)
    calibrated = _created(config.model_copy(update={"parent": str(vanilla.path)}), out)
    arrays = {f"attention.{site}": a for site, a in calibration.attention.items()}
    write_atomically(
        calibrated.path / "bias.safetensors",
        lambda made: calibration.bias.save(made, **arrays),
    )
    write_text(calibrated.path / "lines.csv", _as_csv(calibration.table))
    if calibration.checks:
        write_text(calibrated.path / "check.csv", _as_csv(calibration.checks))
    on_lines(calibrated, calibration)
    return _trained(calibrated, device, on_step) if retrain else calibrated


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


def retrain(
    run: Run | Path | str | None = None,
    *,
    device: str = "auto",
    on_step: Callback = _ignore,
) -> Run:
    """Train the model of a run that was calibrated without retraining."""
    run = _opened(run)
    if run.config.stage != "calibrated":
        raise UsageError(f"{run} is not calibrated: abc calibrate {shlex.quote(str(run))}")
    return _trained(run, device, on_step)


def resume(
    run: Run | Path | str | None = None, *, device: str = "auto", on_step: Callback = _ignore
) -> Run:
    """Go on with a training that was interrupted, to the same weights as without interruption."""
    run = _opened(run)
    if run.result is not None:
        raise UsageError(f"{run} has finished training: there is nothing to resume")
    return _trained(run, device, on_step)


def _trained(run: Run, device: str, on_step: Callback) -> Run:
    config = run.config
    if run.result is not None:
        raise UsageError(f"{run} is trained already: calibrate again for another one")
    model: Any = build_model(config.shape, run.source.vocabulary, config.train.seed)
    if config.stage == "calibrated":
        model.set_line_bias(run.bias())
    elif config.model.window:
        model.set_line_bias(window_bias(config.model, run.source))
    Trainer(run, model, device).train(on_step)
    run.make_latest()
    return run


def _created(config: RunConfig, out: Path | None) -> Run:
    """The new run, its training data's fingerprint in its configuration."""
    draft = Run.draft(config)
    fingerprint = draft.source.training(0, 256).hash()
    return Run.create(config.model_copy(update={"data_hash": fingerprint}), out)


def _opened(run: Run | Path | str | None) -> Run:
    return run if isinstance(run, Run) else Run.open(run)


def _vanilla(run: Run | Path | str | None) -> Run:
    """The run to calibrate: of a calibrated one that was not named outright, its parent."""
    opened = _opened(run)
    if opened.config.stage == "calibrated":
        parent = opened.config.parent
        if run is None and parent and Path(parent).is_dir():
            return Run.open(parent)
        raise UsageError(f"{opened} is calibrated already: name the run it came from, {parent}")
    return opened


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


def _as_csv(rows: Sequence[Any]) -> str:
    return pd.DataFrame([asdict(row) for row in rows]).to_csv(index=False)


def evaluate(
    run: Run | Path | str | None = None,
    lengths: Sequence[int] = tuple(range(1, 51)),
    *,
    samples: int | None = None,
    sets: Sequence[str] = ("random",),
    seed: int = 0,
    greedy: bool = False,
    device: str = "auto",
    on_row: Callable[[Row], None] = _ignore,
) -> pd.DataFrame:
    """Exact match of a trained run at each length; adds to the run's ``eval.csv``.

    Columns: length, accuracy (percent), n, set, correct, low, high (95 % interval), test_seed,
    test_hash, seconds.
    """
    opened = _opened(run)
    path = opened.path / "eval.csv"
    earlier = _earlier_rows(path)
    model = opened.load_model().to(resolve_device(device))
    source = opened.source
    rows: list[Row] = []

    def keep(row: Row) -> None:
        rows.append(row)
        on_row(row)

    try:
        exact_match_rows(model, source, lengths, samples, sets, seed, greedy, keep)
    finally:  # what was measured before an interruption counts
        table = pd.DataFrame([row.as_dict() for row in rows])
        if rows:
            merged = pd.concat([earlier, table]) if earlier is not None else table
            merged = merged.drop_duplicates(ROW, keep="last").sort_values(ROW)
            write_text(path, merged.to_csv(index=False))
    return table


ROW = ["set", "test_seed", "length"]
"""Columns that name a row of ``eval.csv``."""


def _earlier_rows(path: Path) -> pd.DataFrame | None:
    """What earlier evaluations left; ``AbcError`` if that cannot be read."""
    if not path.exists():
        return None
    try:
        return pd.read_csv(path).astype({"set": str, "test_seed": int, "length": int})
    except (OSError, ValueError, KeyError) as error:
        raise AbcError(f"{path} cannot be read ({error}): remove it") from None
