"""The function that finds the lines of a run and retrains with them: ``calibrate``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from abc_calib import plugins
from abc_calib.calibration.fits.rows import PROBLEMS
from abc_calib.calibration.pipeline import Calibration
from abc_calib.calibration.pipeline import calibrate as find_lines
from abc_calib.calibration.plan import plan_calibration
from abc_calib.calibration.trial import Check
from abc_calib.calibration.windows import undecided
from abc_calib.config import (
    Options,
)
from abc_calib.data import Batch, Data
from abc_calib.errors import AbcError, AbcWarning, UsageError
from abc_calib.files import write_text
from abc_calib.geometry import LineBias
from abc_calib.nn.base import resolve_device
from abc_calib.nn.build import build_model
from abc_calib.nn.positions import Scheme
from abc_calib.progress import busy
from abc_calib.proof.prove import windows_inside
from abc_calib.runs import Run
from abc_calib.runs.records import CALIBRATION, write_record
from abc_calib.stages.judging import AnyRun, ignore
from abc_calib.stages.running import created, train_run
from abc_calib.stages.tracked import tracked
from abc_calib.tracking import Track, tracker_of
from abc_calib.training.trainer import UNREACHED_STEP, Callback


def calibrate(
    run: AnyRun = None,
    *groups: Options,
    scheme: str | type[Scheme] = "none",
    force: bool = False,
    retrain: bool = True,
    out: Path | str | None = None,
    device: str = "auto",
    on_step: Callback = ignore,
    on_check: Callable[[Check], None] = ignore,
    on_lines: Callable[[Run, Calibration], None] = ignore,
    progress: bool | None = None,
    track: Track = None,
    **options: Any,
) -> Run:
    """Find the lines of a trained run and, with ``retrain``, train a new model with them.

    Makes a new run folder. A retraining that its certificate ends goes on from the weights of the
    trial that chose the lines, any other one begins anew. Raises ``AbcError`` if the model has not
    interpolated, unless ``force``. ``groups`` or ``options``: ``CalibrationOptions`` and, of the
    retraining, ``TrainOptions``; ``scheme``: the positions of the new model.
    """
    tracker_of(track)
    vanilla = _vanilla(run)
    vanilla.check()
    scheme = plugins.by_name("scheme", scheme)
    config = plan_calibration(vanilla.config, *groups, scheme=scheme, **options)
    assert config.calibration is not None
    model = vanilla.load_model().to(resolve_device(device, doubles=True))
    again = build_model(config.kind, config.model, vanilla.data, config.train.seed)
    judged = again.in_whole_sources or not again.no_certificate
    data = Run.draft(config).data  # of all symbols, where the first training saw a few
    batch = data.training(UNREACHED_STEP + 2, PROBLEMS) if judged else None
    size = None if batch is None else partial(_seen, again, data, batch)
    keywords: Any = {}
    if batch is not None and not force:
        keywords["undecided"] = partial(undecided, model=again, batch=batch)
    with busy("reading attention and choosing lines", progress):
        optimizer = config.train.optimizer
        calibration = find_lines(
            model, vanilla.data, config.calibration, force, on_check, size, optimizer, **keywords
        )
    if batch is not None:
        _judge_undecided(again, batch, calibration.bias, refuse=retrain and not force)
    if scheme != "none" or not config.train.stop_early:
        # a trial has no positions, and nothing that trains to its end goes on from it
        calibration = replace(calibration, weights=None)
    config = config.model_copy(update={"parent": str(vanilla.path)})
    calibrated = created(config, out, partial(_write_lines, calibration))
    on_lines(calibrated, calibration)
    if retrain:
        return train_run(calibrated, device, on_step, progress, track)
    with tracked(track, calibrated):
        return calibrated


def _seen(model: Any, data: Data, batch: Batch, lines: LineBias) -> float:
    """How many windows a row sees; infinitely many where what it sees leaves a choice."""
    return inf if undecided(lines, model, batch)[0] else windows_inside(model, data, lines)


def _judge_undecided(model: Any, batch: Batch, lines: LineBias, refuse: bool) -> None:
    """Warn of lines on which no model is right, or raise ``AbcError``."""
    count, rows = undecided(lines, model, batch)
    if not count:
        return
    why = (
        f"on these lines {count} of {rows} rows of training problems see what others see that "
        "write another token: no model is right in all of them (docs/rows.md: which outputs "
        "can local windows decide?)"
    )
    if refuse:
        raise AbcError(f"{why}. Train longer, choose other lines, or force it")
    warnings.warn(why, AbcWarning, stacklevel=4)


def _write_lines(calibration: Calibration, folder: Path) -> None:
    """Write what a calibration leaves in its run, with a record."""
    arrays = {f"attention.{site}": a for site, a in calibration.attention.items()}
    calibration.bias.save(folder / "bias.safetensors", **arrays)
    write_text(folder / "lines.csv", _as_csv(calibration.table))
    if calibration.checks:
        write_text(folder / "check.csv", _as_csv(calibration.checks))
    if calibration.weights:
        save_file(calibration.weights, folder / "trial.safetensors")
    accuracy = round(100 * calibration.accuracy, 4)
    write_record(folder / CALIBRATION, {"samples": calibration.samples, "accuracy": accuracy})


def _vanilla(run: AnyRun) -> Run:
    """The run to calibrate: of a calibrated one that was not named outright, its first one."""
    first = vanilla = Run.open(run)
    while vanilla.config.stage == "calibrated" and vanilla.config.parent:  # a repaired one has two
        if not Path(vanilla.config.parent).is_dir():
            break
        vanilla = Run.open(vanilla.config.parent)
    if first.config.stage == "vanilla" or (run is None and vanilla.config.stage == "vanilla"):
        return vanilla
    parent = str(vanilla) if vanilla.config.stage == "vanilla" else first.config.parent
    other = f"the run it came from, {parent}" if parent else "one that is not"
    raise UsageError(f"{first} is calibrated already: name {other}")


def _as_csv(rows: Sequence[Any]) -> str:
    import pandas as pd

    return pd.DataFrame([asdict(row) for row in rows]).to_csv(index=False)
