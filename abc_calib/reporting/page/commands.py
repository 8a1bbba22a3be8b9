"""The commands that make a run again."""

from __future__ import annotations

import shlex
from typing import Any

from abc_calib.calibration.plan import plan_calibration
from abc_calib.config import CalibrationOptions, Options, RunConfig
from abc_calib.config.options import as_typed, flag_of
from abc_calib.errors import AbcError
from abc_calib.runs import Run
from abc_calib.training.plan import plan_training

TASK_FLAGS = {"tables": "--tables", "seed": "--tables-seed", "data": "--data"}
TASK_FLAGS |= {"table": "--table", "machine": "--name", "rule": "--rule"}
"""The options of a task as the command line has them."""


def commands(run: Run) -> list[str]:
    """What to type, one command a line, each working on the run that the one before made."""
    config = run.config
    try:
        if config.stage == "vanilla":
            before = commands(Run.open(config.parent)) if config.parent else []
            return [*before, _train(config)]  # of the weights that it starts from
        if config.parent is None:
            return [_train(config), _calibrate(config, config)]
        parent = Run.open(config.parent)
        if parent.config.stage == "calibrated":
            return [*commands(parent), "abc repair" + _plugins(config)]
        return [*commands(parent), _calibrate(parent.config, config)]
    except AbcError:  # the first run is gone, or is of another version
        return [f"abc train {config.task} --seed {config.train.seed}", "abc calibrate"]


def _plugins(config: RunConfig) -> str:
    """The files that a run's task and schemes are from."""
    files = dict.fromkeys(origin.file for origin in config.plugins.values() if origin.file)
    return "".join(f" --plugin {shlex.quote(file)}" for file in files)


def _train(config: RunConfig) -> str:
    usual = plan_training(
        config.task,
        task_options=config.task_options,
        preset=config.preset,
        model=config.kind,
        seed=config.train.seed,
    )
    parts = ["abc train", config.task]
    if config.parent:
        parts.append(f"--finetune {shlex.quote(config.parent)}")
    if config.base != usual.base:
        parts.append(f"--base {config.base}")
    parts += [f"{TASK_FLAGS[k]} {shlex.quote(str(v))}" for k, v in config.task_options.items()]
    if config.preset != "small":
        parts.append(f"--preset {config.preset}")
    if config.kind != "transformer":
        parts.append(f"--model {config.kind}")
    parts.append(f"--seed {config.train.seed}")
    parts += _other(usual.model, config.model)
    return " ".join([*parts, *_other(usual.train, config.train)]) + _plugins(config)


def _calibrate(first: RunConfig, config: RunConfig) -> str:
    usual = plan_calibration(first)
    parts = ["abc calibrate"]
    if (scheme := getattr(config.model, "scheme", "none")) != "none":
        parts.append(f"--scheme {shlex.quote(scheme)}")
    chosen = config.calibration or CalibrationOptions()
    parts += _other(CalibrationOptions(), chosen)
    return " ".join([*parts, *_other(usual.train, config.train)]) + _plugins(config)


def _other(usual: Options, now: Options) -> list[str]:
    """The flags of the options that are not as usual."""
    return [
        _flag(flag_of(name, field), getattr(now, name))
        for name, field in type(now).model_fields.items()
        if getattr(now, name) != getattr(usual, name, None)
    ]


def _flag(flag: str, value: Any) -> str:
    if isinstance(value, bool):
        return flag if value else f"--no-{flag.removeprefix('--')}"
    return f"{flag} {shlex.quote(as_typed(value))}"
