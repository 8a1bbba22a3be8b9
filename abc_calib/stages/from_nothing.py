"""All the verbs in a row, from nothing to a certificate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from abc_calib.calibration.pipeline import refused_below
from abc_calib.calibration.plan import plan_calibration
from abc_calib.config import CalibrationOptions, RunConfig
from abc_calib.errors import AbcError, UsageError
from abc_calib.files import runs_root
from abc_calib.proof.certificate import Certificate
from abc_calib.proof.decide import decide
from abc_calib.proof.second_look import seen_again, verify
from abc_calib.runs import Run
from abc_calib.stages.calibrating import calibrate
from abc_calib.stages.making import hopeless, planned, repair
from abc_calib.stages.running import Work, train_run
from tasks import Task

ROUNDS = 4
"""First trainings at most: each goes on from the weights of the one before, at a full rate."""


def certified(
    task: str | type[Task],
    seed: int = 0,
    *,
    folder: Path | str | None = None,
    minutes: float = 15.0,
    **options: Any,
) -> tuple[Run, Certificate]:
    """From nothing to a certificate: train, calibrate, retrain, certify, and repair what fails.

    Goes on from what lies in ``folder`` (``runs/certified``): each of the two trainings is
    resumed or skipped. ``options`` are those of ``train``. A model with failing windows is repaired
    once; a certified one is verified by dense attention, and kept with its certificate. A first
    training that does not get to its end goes on from its weights, with the schedule begun anew, up
    to three times, unless ``steps`` say how many there are.
    """
    work = Work.of(options)
    choices = {**options, "seed": seed}
    once = planned(task, **choices)
    if (why := hopeless(once)) is not None:
        raise why
    stem = (Path(folder) if folder else runs_root() / "certified") / _stem(once.task, choices)
    rounds = 1 if "steps" in choices else ROUNDS
    run = _trained_twice(stem, once, _decidable(once), rounds, work)
    repaired = stem.with_name(f"{stem.name}-repaired")
    for path in (run.path, repaired):
        with suppress(AbcError):
            stored_run = Run.open(path)
            stored = Certificate.load(stored_run)
            same = not stored_run.config.difference(run.config)  # a repair may be of other options
            if same and stored.outcome == "certified" and stored.verified:
                return stored_run, stored
    decision = decide(run, run.load_model(), minutes)
    certificate = decision.certificate
    certificate.save(run)
    if certificate.wrong or (certificate.outcome == "refuted" and certificate.windows):
        if repaired.exists() and any(repaired.iterdir()):
            raise AbcError(f"{repaired} holds an earlier repair: look at it, then remove it")
        run = repair(run, minutes=minutes, out=repaired, progress=work.progress)
        certificate = Certificate.load(run)
        if certificate.outcome == "certified":
            certificate = verify(run, minutes=minutes)
    elif certificate.outcome == "certified":
        seen_again(run, decision)
    return run, certificate


def _decidable(config: RunConfig) -> RunConfig:
    """The configuration of the retraining; ``UsageError`` for a task that has no rule."""
    second = plan_calibration(config)
    if Run.draft(second).task.rule() is None:
        raise UsageError(
            f"no certificate can judge {config.task}: it has no rule, since its class says no "
            "step, as those of addition, automaton and copy do; try abc eval"
        )
    return second


def _stem(task: str, options: Mapping[str, Any]) -> str:
    """How the names of the runs of a task, a base, a kind of model and a seed begin."""
    base, table = options.get("base"), options.get("table")
    machine = options.get("machine") or options.get("rule") or ""
    machine = Path(table).stem if table else machine.replace(":", "")
    kind = options.get("model")
    parts = (task, f"base{base}" if base else "", machine, kind, f"seed{options['seed']}")
    return "-".join(filter(None, parts))


def _trained_twice(stem: Path, once: RunConfig, twice: RunConfig, rounds: int, work: Work) -> Run:
    """The calibrated run next to ``stem``, trained to its end.

    ``rounds``: first trainings at most.
    """
    first, second = (stem.with_name(f"{stem.name}-{name}") for name in ("vanilla", "calibrated"))
    vanilla = _finished(first, once, work)
    for number in range(2, rounds + 1):
        if _interpolates(vanilla) or second.exists():
            break
        again = once.model_copy(update={"parent": str(vanilla.path)})
        vanilla = _finished(first.with_name(f"{first.name}-{number}"), again, work)
    if (second / "config.json").is_file():
        twice = twice.as_wide_as(Run.open(second).config)
    return _finished(second, twice, work, partial(calibrate, vanilla, out=second, **vars(work)))


def _finished(
    folder: Path, config: RunConfig, work: Work, make: Callable[[], Run] | None = None
) -> Run:
    """The run in ``folder``, trained to its end: kept, gone on with, or made.

    ``make``: by default a first training. ``UsageError`` if it is of another configuration.
    """
    if not (folder / "config.json").is_file():
        return make() if make else train_run(Run.create(config, folder), work)
    run = Run.open(folder)
    if other := run.config.difference(config):
        raise UsageError(
            f"{folder} holds a run of another configuration ({other}): name another folder, or "
            "remove it"
        )
    return run if run.result is not None else train_run(run, work)


def _interpolates(vanilla: Run) -> bool:
    """Whether a calibration would take it: it ended early, or is right often enough."""
    least = refused_below(vanilla.data.fit or CalibrationOptions().fit)
    ended = vanilla.result or {}
    early = ended["steps"] < vanilla.config.train.steps
    return early or ended["validation_accuracy"] >= 100 * least
