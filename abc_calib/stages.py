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

from abc_calib.calibration.pipeline import Calibration
from abc_calib.calibration.pipeline import calibrate as find_lines
from abc_calib.calibration.trial import Check
from abc_calib.config import (
    RunConfig,
)
from abc_calib.errors import AbcError, UsageError
from abc_calib.evaluation.exact import Row
from abc_calib.evaluation.exact import evaluate as exact_match_rows
from abc_calib.nn.build import build_model
from abc_calib.nn.window import window_bias
from abc_calib.runs.run import Run, write_atomically, write_text
from abc_calib.training.plan import plan_calibration, plan_training
from abc_calib.training.trainer import Callback, Trainer, resolve_device


def _ignore(*_: Any) -> None:
    pass


def train(
    task: str,
    *,
    base: int | None = None,
    task_options: Mapping[str, int | str | None] | None = None,
    preset: str = "small",
    finetune: Run | Path | str | None = None,
    out: Path | None = None,
    device: str = "auto",
    on_step: Callback = _ignore,
    on_start: Callable[[Run], None] = _ignore,
    **overrides: Any,
) -> Run:
    """Train a vanilla model on short problems until it interpolates.

    ``task_options`` go to ``tasks.get_task``. ``overrides`` are fields of ``ModelOptions`` and
    ``TrainOptions``. ``finetune``: start from the weights of this run, not from fresh ones.
    Raises ``UsageError`` for
    an unknown task, preset, device or option before anything is written, and ``Interrupted`` on
    Ctrl-C with a checkpoint saved.
    """
    resolve_device(device)
    start = None if finetune is None else _opened(finetune)
    config = plan_training(
        task, base=base, task_options=task_options, preset=preset, finetune=start, **overrides
    )
    run = _created(config, out)
    on_start(run)
    return _trained(run, device, on_step)


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
    if config.stage == "vanilla" and config.parent:
        model.load_state_dict(Run.open(config.parent).load_model().state_dict())
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
