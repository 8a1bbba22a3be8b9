"""The function that finds the lines of a run and retrains with them: ``calibrate``."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from abc_calib import plugins
from abc_calib.calibration.pipeline import Calibration
from abc_calib.calibration.pipeline import calibrate as find_lines
from abc_calib.calibration.plan import plan_calibration
from abc_calib.calibration.trial import Aim, Check
from abc_calib.calibration.windows import check_decided
from abc_calib.config import Options, RetrainedOptions, RunConfig, take
from abc_calib.errors import AbcWarning, UsageError
from abc_calib.nn.base import Model, resolve_device
from abc_calib.nn.build import build_model
from abc_calib.runs import Run
from abc_calib.stages.judging import AnyRun, ignore
from abc_calib.stages.running import Work, train_run


def calibrate(
    run: AnyRun = None,
    *groups: Options,
    force: bool = False,
    retrain: bool = True,
    out: Path | str | None = None,
    on_check: Callable[[Check], None] = ignore,
    on_lines: Callable[[Run, Calibration], None] = ignore,
    **options: Any,
) -> Run:
    """Find the lines of a trained run and, with ``retrain``, train a new model with them.

    Makes a new run folder. A retraining that its certificate ends goes on from the weights of the
    trial that chose the lines, any other one begins anew. The new model is as narrow as the rule
    of the task allows; one that does not learn it is followed by one as wide as the first. Raises
    ``AbcError`` if the model has not interpolated, unless ``force``. ``options``: ``device``,
    ``on_step``, ``progress`` and ``track`` as of ``train``; and in place of ``groups`` fields of
    ``CalibrationOptions`` and, of the retraining, ``RetrainedOptions`` and ``TrainOptions``.
    ``on_check`` is called with each trial of lines, ``on_lines`` with the new run.
    """
    work = Work.of(options)
    vanilla = vanilla_of(run)
    vanilla.check()
    options = plugins.options_by_name(options)
    config = plan_calibration(vanilla.config, *groups, **options)
    model = vanilla.load_model().to(resolve_device(work.device, doubles=True))

    wider: Any = config.as_wide_as(vanilla.config)
    is_chosen = bool(take(RetrainedOptions, dict(options), groups).widths)
    while True:
        is_last = is_chosen or config == wider
        calibration = _find_lines(vanilla, model, config, force, retrain, on_check)
        if is_last or not calibration.checks or calibration.weights or not config.train.stop_early:
            calibrated = _calibrated(vanilla, config, calibration, out, on_lines)
            if not retrain or _is_right(train_run(calibrated, work)) or is_last:
                return calibrated
            calibrated.path.rename(f"{calibrated.path}-narrow")
        warnings.warn(
            "a narrow model does not learn the task with these lines: one of width "
            f"{wider.model.width} is trained",
            AbcWarning,
            stacklevel=2,
        )
        config = wider


def _find_lines(
    vanilla: Run,
    model: Model,
    config: RunConfig,
    force: bool,
    retrain: bool,
    on_check: Callable[[Check], None],
) -> Calibration:
    """The lines of a run's model for a retraining of that configuration.

    With ``retrain``, and not ``force``, lines on which no model can be right are an error.
    """
    assert config.calibration is not None
    again: Any = build_model(config.kind, config.model, vanilla.data, config.train.seed)
    data = Run.draft(config).data  # of all symbols, where the first training saw a few
    aim = Aim(again.to(model.device), data, config.train.optimizer, force)
    calibration = find_lines(model, vanilla.data, config.calibration, aim, on_check)
    check_decided(aim.undecided(calibration.bias), refuse=retrain and not force)
    if getattr(config.model, "scheme", "none") != "none" or not config.train.stop_early:
        # a trial has no positions, and nothing that trains to its end goes on from it
        return replace(calibration, weights=None)
    return calibration


def _calibrated(
    vanilla: Run,
    config: RunConfig,
    calibration: Calibration,
    out: Path | str | None,
    on_lines: Callable[[Run, Calibration], None],
) -> Run:
    """A new run with the lines, not yet trained."""
    config = config.model_copy(update={"parent": str(vanilla.path)})
    run = Run.create(config, out, calibration.write)
    on_lines(run, calibration)
    return run


def _is_right(run: Run) -> bool:
    """Whether a retraining got to its end: every window right, where windows are listed."""
    result = run.result or {}
    by_windows = result["ran"]["ends"] == "windows"
    return bool(run.history()[-1].get("over")) if by_windows else bool(result["interpolated"])


def vanilla_of(run: AnyRun) -> Run:
    """The run to calibrate: of a calibrated one that was not named outright, its first one."""
    first = vanilla = Run.open(run)
    while vanilla.config.stage == "calibrated" and vanilla.config.parent:  # a repaired one has two
        if not Path(vanilla.config.parent).is_dir():
            break
        vanilla = Run.open(vanilla.config.parent)
    if first.config.stage == "vanilla" or (run is None and vanilla.config.stage == "vanilla"):
        return vanilla
    is_here = vanilla.config.stage == "vanilla"
    other = f"the run it came from, {vanilla}" if is_here else "one that is not"
    raise UsageError(f"{first} is calibrated already: name {other}")
