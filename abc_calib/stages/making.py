"""The verbs that make a run: train, calibrate, retrain, resume.

``progress``: show how far the work is; None does in a terminal or a notebook.
"""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from abc_calib import plugins
from abc_calib.calibration.fits.rows import PROBLEMS
from abc_calib.calibration.pipeline import Calibration, Deciding
from abc_calib.calibration.pipeline import calibrate as find_lines
from abc_calib.calibration.plan import plan_calibration
from abc_calib.calibration.trial import Check
from abc_calib.calibration.windows import undecided
from abc_calib.config import (
    RETRAIN,
    Options,
    RecipeOptions,
    RunConfig,
    TaskOptions,
    take,
)
from abc_calib.config import preset as preset_of
from abc_calib.data import Batch, Data
from abc_calib.errors import AbcError, AbcWarning, UsageError
from abc_calib.files import locked, write_text
from abc_calib.geometry import LineBias
from abc_calib.nn.base import resolve_device
from abc_calib.nn.build import build_model
from abc_calib.nn.positions import Scheme
from abc_calib.progress import busy
from abc_calib.progress import training as training_bar
from abc_calib.proof.outlook import Hopeless, look_ahead
from abc_calib.proof.prove import windows_inside
from abc_calib.proof.until import certain
from abc_calib.runs import Run
from abc_calib.runs.records import CALIBRATION, write_record
from abc_calib.stages.judging import AnyRun, ignore
from abc_calib.stages.tracked import tracked
from abc_calib.tracking import Track, tracker_of
from abc_calib.training.plan import plan_training
from abc_calib.training.trainer import UNREACHED_STEP, Callback, Ending, Progress, Trainer
from tasks import Task

GOING_ON, WARM_UP = 0.5, 20
"""Part of the learning rate, and its warm-up, of a retraining that goes on from a trial: what it
begins with is trained, and its optimiser alone is new."""


def train(
    task: str | type[Task],
    *,
    task_options: Mapping[str, int | str | None] | None = None,
    finetune: AnyRun = None,
    out: Path | str | None = None,
    device: str = "auto",
    on_step: Callback = ignore,
    on_start: Callable[[Run], None] = ignore,
    progress: bool | None = None,
    track: Track = None,
    **options: Any,
) -> Run:
    """Train a vanilla model on short problems until it interpolates.

    ``options``: fields of ``TaskOptions``, ``RecipeOptions`` and ``TrainOptions``, and of the
    model's options (``TransformerOptions``, ``DecoderOptions`` or ``RecurrentOptions``). A ``task``
    of one's own is given as its class, and so are the schemes of positions. ``task_options`` go to
    ``tasks.get_task``, as ``tables``, ``tables_seed`` and ``data`` do. ``finetune``: start from the
    weights of this run, not from fresh ones. ``track``: the name of a tracker, or an object with
    its methods (``abc.Tracker``). Raises ``UsageError`` for an unknown task, preset, device or
    option before anything is written, and ``Interrupted`` on Ctrl-C with a checkpoint saved.
    """
    resolve_device(device)
    tracker_of(track)
    start = None if finetune is None else Run.open(finetune)
    config = planned(task, finetune=start, task_options=task_options, **options)
    if (why := hopeless(config)) is not None:
        warnings.warn(f"{why} (abc check-task)", AbcWarning, stacklevel=3)
    return train_new(config, out, device, on_step, progress, on_start, track)


def hopeless(config: RunConfig) -> Hopeless | None:
    """Of a task of one's own, or one's own table: why no lines can do it, if none can."""
    task = Run.draft(config).task
    is_custom = f"task {config.task}" in config.plugins or "table" in config.task_options
    try:
        if is_custom and task.rule() is not None:
            look_ahead(task)
    except Hopeless as error:
        return error
    return None


def planned(task: str | type[Task], **options: Any) -> RunConfig:
    """The configuration of a first training, of names or classes of a user's own."""
    task, options = plugins.by_name("task", task), plugins.options_by_name(options)
    group, recipe = take(TaskOptions, options), take(RecipeOptions, options)
    chosen = group.of_the_task | (options.pop("task_options", None) or {})
    return plan_training(
        task, base=group.base, task_options=chosen, **recipe.model_dump(), **options
    )


def train_new(
    config: RunConfig,
    out: Path | str | None,
    device: str = "auto",
    on_step: Callback = ignore,
    progress: bool | None = None,
    on_start: Callable[[Run], None] = ignore,
    track: Track = None,
) -> Run:
    """A new run of a first training's configuration, trained to its end."""
    run = created(config, out)
    on_start(run)
    return _trained(run, device, on_step, progress, track)


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
        return _trained(calibrated, device, on_step, progress, track)
    with tracked(track, calibrated):
        return calibrated


def retrain(
    run: AnyRun = None,
    *,
    device: str = "auto",
    on_step: Callback = ignore,
    progress: bool | None = None,
    track: Track = None,
) -> Run:
    """Train the model of a run that was calibrated without retraining."""
    run = Run.open(run)
    if run.config.stage != "calibrated":
        raise UsageError(f"{run} is not calibrated: abc calibrate {shlex.quote(str(run))}")
    return _trained(run, device, on_step, progress, track)


def resume(
    run: AnyRun = None,
    *,
    device: str = "auto",
    on_step: Callback = ignore,
    progress: bool | None = None,
    track: Track = None,
) -> Run:
    """Go on with a training that was interrupted, to the same weights as without interruption."""
    run = Run.open(run)
    if run.result is not None:
        raise UsageError(f"{run} has finished training: there is nothing to resume")
    return _trained(run, device, on_step, progress, track)


def finished(
    folder: Path, make: Callable[[], Run], expected: RunConfig | None = None, **how: Any
) -> Run:
    """The run in ``folder``, trained to its end: kept, gone on with, or made.

    ``UsageError`` if it is not of the configuration that is ``expected``.
    """
    if not (folder / "config.json").is_file():
        return make()
    run = Run.open(folder)
    if expected is not None and (other := run.config.difference(expected)):
        raise UsageError(
            f"{folder} holds a run of another configuration ({other}): name another folder, or "
            "remove it"
        )
    return run if run.result is not None else resume(run, **how)


def _trained(run: Run, device: str, on_step: Callback, progress: bool | None, track: Track) -> Run:
    busy = f"{run} is being trained by another process: wait until it has ended"
    with locked(run.path, busy):
        _train(run, device, on_step, progress, track)
    run.make_latest()
    return run


def _train(run: Run, device: str, on_step: Callback, progress: bool | None, track: Track) -> None:
    run.check()
    config = run.config
    if run.result is not None:
        raise UsageError(f"{run} is trained already: calibrate again for another one")
    model = build_model(config.kind, config.model, run.data, config.train.seed)
    if config.stage == "calibrated":
        model.set_lines(run.bias())
    elif config.parent:
        model.load_state_dict(Run.open(config.parent).load_model().state_dict())
    retrained = config.stage == "calibrated"
    by_windows = retrained and config.train.stop_early
    ending: Ending | None = None
    if by_windows:
        ending = certain(model, run.data, config.train.seed)
    elif not retrained and not config.train.early_stop_at and run.data.fit == "rows":
        ending = Deciding(run.data)
    begun = run.trial_weights() if ending is not None else None
    if begun:
        model.load_state_dict(begun, strict=False)
    options = config.train
    if begun:
        rate, warmup = GOING_ON * options.learning_rate, min(WARM_UP, options.warmup)
        options = options.model_copy(update={"learning_rate": rate, "warmup": warmup})
    if by_windows and ending is None and preset_of(config.preset, run.task.notation)[2] is RETRAIN:
        options = options.model_copy(update={"stop_early": False})  # its margins go on growing
    title = "retraining" if retrained else f"training {config.task}"
    drawn = training_bar(title, progress, options.stop_early)
    with tracked(track, run) as follow, drawn as shown:

        def on_each(step: Progress) -> None:
            shown(step)
            on_step(step)
            if step.accuracy is not None:
                follow(trainer.history)

        trainer = Trainer(run, model, device, ending, options)
        trainer.train(on_each)
        follow(trainer.history)


def created(
    config: RunConfig, out: Path | str | None, write: Callable[[Path], None] = lambda folder: None
) -> Run:
    """The new run, its training data's fingerprint in its configuration."""
    fingerprint = Run.draft(config).data.training(0, 256).hash()
    return Run.create(config.model_copy(update={"data_hash": fingerprint}), out, write)


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
