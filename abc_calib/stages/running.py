"""One run folder trained to its end: made, gone on with, or kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from abc_calib.calibration.pipeline import Deciding
from abc_calib.config import RETRAIN, RunConfig, TrainOptions, preset
from abc_calib.errors import UsageError
from abc_calib.files import locked
from abc_calib.nn.base import Model
from abc_calib.nn.build import build_model
from abc_calib.progress import training as training_bar
from abc_calib.proof.until import certain
from abc_calib.runs import Run
from abc_calib.stages.judging import AnyRun, ignore
from abc_calib.stages.tracked import tracked
from abc_calib.tracking import Track
from abc_calib.training.trainer import Callback, Ending, Progress, Trainer

GOING_ON, WARM_UP = 0.5, 20
"""Part of the learning rate, and its warm-up, of a retraining that goes on from a trial, whose
weights are trained and whose optimiser is new."""


@dataclass(frozen=True)
class Setup:
    """What a training does: the model it starts with, what may end it, the options it runs with.

    ``start``: fresh weights, those of the ``parent``, or of the ``trial`` that chose the lines.
    """

    model: Model
    start: Literal["fresh", "parent", "trial"]
    ending: Ending | None
    options: TrainOptions


def set_up(run: Run) -> Setup:
    """Decide what the training of a run does.

    A retraining that its windows end goes on from the trial's weights, at half the rate. One that
    ought to end so, and whose windows cannot be listed, takes all its steps.
    """
    config, options = run.config, run.config.train
    model = build_model(config.kind, config.model, run.data, options.seed)
    if config.stage == "vanilla":
        by_lines = not options.early_stop_at and run.data.fit == "rows"
        ending = Deciding(run.data) if by_lines else None
        if not config.parent:
            return Setup(model, "fresh", ending, options)
        model.load_state_dict(Run.open(config.parent).load_model().state_dict())
        return Setup(model, "parent", ending, options)
    model.set_lines(run.bias())
    if not options.stop_early:
        return Setup(model, "fresh", None, options)
    stopping = certain(model, run.data, options.seed)
    if stopping is None:
        if preset(config.preset, run.task.notation)[2] is RETRAIN:
            options = options.model_copy(update={"stop_early": False})  # margins go on growing
        return Setup(model, "fresh", None, options)
    if not (weights := run.trial_weights()):
        return Setup(model, "fresh", stopping, options)
    model.load_state_dict(weights, strict=False)
    rate, warmup = GOING_ON * options.learning_rate, min(WARM_UP, options.warmup)
    options = options.model_copy(update={"learning_rate": rate, "warmup": warmup})
    return Setup(model, "trial", stopping, options)


def train_run(run: Run, device: str, on_step: Callback, progress: bool | None, track: Track) -> Run:
    """Train the model of a run to its end, under the lock of its folder."""
    with locked(run.path, f"{run} is being trained by another process: wait until it has ended"):
        run.check()
        if run.result is not None:
            raise UsageError(f"{run} is trained already: calibrate again for another one")
        setup = set_up(run)
        trainer = Trainer(run, setup.model, device, setup.ending, setup.options, setup.start)
        is_first = run.config.stage == "vanilla"
        title = f"training {run.config.task}" if is_first else "retraining"
        bar = training_bar(title, progress, setup.options.stop_early)
        with tracked(track, run) as follow, bar as show:

            def on_each(step: Progress) -> None:
                show(step)
                on_step(step)
                if step.accuracy is not None:
                    follow(trainer.history)

            trainer.train(on_each)
            follow(trainer.history)
    run.make_latest()
    return run


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
    return train_run(run, device, on_step, progress, track)


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


def created(
    config: RunConfig, out: Path | str | None, write: Callable[[Path], None] = lambda folder: None
) -> Run:
    """The new run, its training data's fingerprint in its configuration."""
    fingerprint = Run.draft(config).data.training(0, 256).hash()
    return Run.create(config.model_copy(update={"data_hash": fingerprint}), out, write)
