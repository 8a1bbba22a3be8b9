"""The commands that make a run again."""

from __future__ import annotations

import shlex
from typing import Any

from abc_calib.calibration.plan import plan_calibration
from abc_calib.config import CalibrationOptions, ForeignOptions, Options, RunConfig
from abc_calib.config.options import as_typed, flag_of
from abc_calib.reporting.of_runs import parent_of
from abc_calib.runs import Run
from abc_calib.training.plan import plan_training

TASK = {"data", "table", "machine", "rule"}
"""The options of a task that the command line has."""


def commands(run: Run) -> list[str]:
    """Return what to type, one command a line, each on the run that the one before made.

    A first run that is gone, or is of another version, is taken to be one by default.
    """
    config, parent = run.config, parent_of(run)
    before = commands(parent) if parent else []
    if config.stage == "vanilla":
        return [*before, _first(config)]  # of the weights that it starts from
    if parent is None:
        if isinstance(config.model, ForeignOptions):
            return [_first(config)]
        first = usual_of(config, config.base)
        return [_first(first), _calibrate(first, config)]
    is_repair = parent.config.stage == "calibrated"
    again = "abc repair" + plugin_flags(config) if is_repair else _calibrate(parent.config, config)
    return [*before, again]


def usual_of(config: RunConfig, base: int | None = None) -> RunConfig:
    """The first training of a task by default, of the same preset, kind of model and seed."""
    return plan_training(
        config.task,
        task_options=config.task_options,
        base=base,
        preset=config.preset,
        model=config.kind,
        seed=config.train.seed,
    )


def _first(config: RunConfig) -> str:
    """What makes a run that is not a calibration of another one."""
    options = config.task_options
    if isinstance(config.model, ForeignOptions):
        arguments = [config.model.folder, options.get("data", ""), options.get("delimiters", "")]
        task = f", task={options['rule']!r}" if "rule" in options else ""
        words = ", ".join(map(repr, arguments))
        return _in_python(f"abc.adopt({words}{task}, seed={config.train.seed})")
    usual = usual_of(config, config.base)
    choices: dict[str, Any] = {"finetune": config.parent, "base": config.base}
    choices |= {"preset": config.preset, "model": config.kind}
    default = {
        "finetune": None,
        "base": usual_of(config).base,
        "preset": "default",
        "model": "transformer",
    }
    choices = {name: value for name, value in choices.items() if value != default[name]}
    choices["seed"] = config.train.seed
    if not options.keys() <= TASK:  # those of a plugin's task are for Python alone
        choices |= {"task_options": dict(options)}
        choices |= _other(usual.model, config.model) | _other(usual.train, config.train)
        keywords = [f"{name}={value!r}" for name, value in choices.items()]
        loads = [f"abc.load_plugin({file!r}); " for file in _files(config)]
        return _in_python(f"{''.join(loads)}abc.train({', '.join([repr(config.task), *keywords])})")
    parts = [_flag(flag_of(name), value) for name, value in {**options, **choices}.items()]
    parts += _other_flags(usual.model, config.model) + _other_flags(usual.train, config.train)
    return " ".join(["abc train", config.task, *parts]) + plugin_flags(config)


def _in_python(call: str) -> str:
    return f"python -c {shlex.quote(f'import abc_calib as abc; {call}')}"


def _files(config: RunConfig) -> list[str]:
    """The files that a run's task and schemes are from."""
    files = (origin.file for origin in config.plugins.values())
    return [*dict.fromkeys(file for file in files if file)]


def plugin_flags(config: RunConfig) -> str:
    """Return what a command needs to find a run's own task and schemes; empty where it has none."""
    return "".join(f" --plugin {shlex.quote(file)}" for file in _files(config))


def _calibrate(first: RunConfig, config: RunConfig) -> str:
    scheme, parts = getattr(config.model, "scheme", "none"), ["abc calibrate"]
    usual, finding = plan_calibration(first, scheme=scheme), CalibrationOptions()
    parts += [f"--scheme {shlex.quote(scheme)}"] if scheme != "none" else []
    parts += _other_flags(usual.model, config.model)
    parts += _other_flags(usual.calibration or finding, config.calibration or finding)
    return " ".join([*parts, *_other_flags(usual.train, config.train)]) + plugin_flags(config)


def _other(usual: Options, options: Options) -> dict[str, Any]:
    """The options that are not as usual, by name."""
    values = {name: getattr(options, name) for name in type(options).model_fields}
    return {name: x for name, x in values.items() if x != getattr(usual, name, None)}


def _other_flags(usual: Options, options: Options) -> list[str]:
    return [_flag(flag_of(name), x) for name, x in _other(usual, options).items()]


def _flag(flag: str, value: Any) -> str:
    if isinstance(value, bool):
        return flag if value else f"--no-{flag.removeprefix('--')}"
    return f"{flag} {shlex.quote(as_typed(value))}"
