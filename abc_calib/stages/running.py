"""One run folder trained to its end: made, gone on with, or kept."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from abc_calib.calibration.pipeline import Deciding
from abc_calib.errors import AbcError, AbcWarning, UsageError
from abc_calib.files import locked
from abc_calib.nn.base import Model, resolve_device
from abc_calib.nn.build import build_model
from abc_calib.progress import training as training_bar
from abc_calib.proof.until import MarginStopping, certain
from abc_calib.runs import Run
from abc_calib.runs.records import CALIBRATION
from abc_calib.stages.judging import AnyRun, ignore
from abc_calib.tracking import Track, tracked, tracker_of
from abc_calib.training.step import NEARLY
from abc_calib.training.trainer import Callback, Progress, Trainer


@dataclass(frozen=True)
class Work:
    """Where a training runs and who is told of it: what every verb that trains takes by name.

    ``device``: as in torch, or ``auto``. ``on_step`` is called with the ``Progress`` of each step.
    ``progress``: show how far the work is; None does in a terminal or a notebook. ``track``: the
    name of a tracker, or an object with its methods (``abc.Tracker``).
    """

    device: str = "auto"
    on_step: Callback = ignore
    progress: bool | None = None
    track: Track = None

    @classmethod
    def of(cls, keywords: dict[str, Any], alone: bool = False) -> Work:
        """Take it out of keywords; ``UsageError`` for a device or tracker that is not there.

        ``alone``: for anything that is left, too.
        """
        names = [field.name for field in fields(cls)]
        work = cls(**{name: keywords.pop(name) for name in names if name in keywords})
        if alone and keywords:
            raise UsageError(
                f"unknown option {next(iter(keywords))!r}: choose among {', '.join(names)}"
            )
        resolve_device(work.device)
        tracker_of(work.track)
        return work


GOING_ON, WARM_UP = 0.5, 20
"""Part of the learning rate, and its warm-up, of a retraining that goes on from a trial, whose
weights are trained and whose optimiser is new."""
REPAIRING = 0.25
"""Part of the learning rate of a repair, which goes on from a trained model."""
REPAIR = {"steps": 8000, "validate_every": 50, "schedule": "cosine", "stop_early": True}

SOME, WON = 4, 1.0
"""Validations that say something, and progress, in percent of the held-out problems."""
STANDING = (
    "half of the steps are done, and the last half of them won nothing on held-out problems. It "
    "may not get there: stop it (Ctrl-C), and try another --seed, a lower --learning-rate, or a "
    "larger --width"
)


def trainer_of(run: Run, device: str) -> Trainer:
    """Decide what the training of a run does: where it starts, what ends it, with which options.

    A retraining that its windows end goes on from the trial's weights, at half the rate; one of a
    calibrated run, a repair, from that run's, on problems with windows that fail.
    """
    config, options = run.config, run.config.train
    model = build_model(config.kind, config.model, run.data, options.seed)
    start, ending = "fresh", None
    if config.stage == "vanilla":
        by_lines = not options.early_stop_at and run.data.fit == "rows"
        ending = Deciding(run.data) if by_lines else None
        if config.parent:
            start = "parent"
            model.load_state_dict(Run.open(config.parent).load_model().state_dict())
        return Trainer(run, model, device, ending, options, start)
    model.set_lines(run.bias())
    if (broken := repaired_run(run)) is not None:
        model.load_state_dict(broken.load_model().state_dict())
        changed = {"learning_rate": REPAIRING * options.learning_rate, "warmup": WARM_UP}
        options = options.model_copy(update=REPAIR | changed)
        return Trainer(run, model, device, mining(model, run), options, "parent")
    stopping = certain(model, run.data, options.seed) if options.stop_early else None
    if stopping is not None and (weights := run.trial_weights()):
        start = "trial"
        model.load_state_dict(weights, strict=False)
        rate, warmup = GOING_ON * options.learning_rate, min(WARM_UP, options.warmup)
        options = options.model_copy(update={"learning_rate": rate, "warmup": warmup})
    return Trainer(run, model, device, stopping, options, start)


def repaired_run(run: Run) -> Run | None:
    """The calibrated run that a run is the repair of; None if it is not a repair."""
    path = run.config.parent
    if (run.path / CALIBRATION).exists() or path is None or not Path(path).is_dir():
        return None
    parent = Run.open(path)
    return parent if parent.config.stage == "calibrated" else None


def mining(model: Model, run: Run) -> MarginStopping | None:
    """What ends a repair, and has problems with failing windows from the first step on.

    ``AbcError`` where no training problem has one.
    """
    ending = certain(model, run.data, run.config.train.seed)
    if ending is not None and not ending.look(model, 0) and not ending.hard:
        raise AbcError(
            f"no training number of at most {run.data.length} digits has a failing window: train "
            "again with another seed"
        )
    return ending


def train_run(run: Run, work: Work) -> Run:
    """Train the model of a run to its end, under the lock of its folder."""
    with locked(run.path, f"{run} is being trained by another process: wait until it has ended"):
        run.check()
        if run.result is not None:
            raise UsageError(f"{run} is trained already: calibrate again for another one")
        trainer = trainer_of(run, work.device)
        is_first = run.config.stage == "vanilla"
        title = f"training {run.config.task}" if is_first else "retraining"
        bar = training_bar(title, work.progress, trainer.options.stop_early)
        config = run.config.model_dump(mode="json")
        with tracked(work.track, run.path, config) as follow, bar as show:

            def on_each(step: Progress) -> None:
                show(step)
                work.on_step(step)
                if step.accuracy is not None:
                    follow(trainer.history)
                    if trainer.options.early_stop_at and stands_still(trainer.history, step):
                        warnings.warn(f"{run}: {STANDING}", AbcWarning, stacklevel=2)

            trainer.train(on_each)
            follow(trainer.history)
    run.make_latest()
    return run


def stands_still(history: Sequence[Mapping[str, Any]], step: Progress) -> bool:
    """Whether this is the first validation in the second half, and the second quarter won nothing.

    A model that is nearly right is not meant.
    """
    half = step.steps / 2
    if len(history) < SOME or not history[-1]["step"] >= half > history[-2]["step"]:
        return False
    quarters: tuple[list[float], list[float]] = [0.0], [0.0]
    for entry in history:
        quarters[entry["step"] > half / 2].append(entry["validation_accuracy"])
    first, second = map(max, quarters)
    return second < min(first + WON, 100 * NEARLY)


def resume(run: AnyRun = None, **work: Any) -> Run:
    """Go on with a training that was interrupted, to the same weights as without interruption.

    ``work``: as of ``train``.
    """
    run = Run.open(run)
    if run.result is not None:
        raise UsageError(f"{run} has finished training: there is nothing to resume")
    return train_run(run, Work.of(work, alone=True))
