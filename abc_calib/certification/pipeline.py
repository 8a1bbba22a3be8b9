"""From nothing to a certificate: train, calibrate, retrain, certify, and repair what fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from abc_calib import stages
from abc_calib.certification.certificate import Certificate
from abc_calib.certification.decide import certify
from abc_calib.certification.repair import repair
from abc_calib.certification.verify import verify
from abc_calib.errors import AbcError
from abc_calib.runs.run import Run, runs_root
from abc_calib.training.trainer import Progress

Step = Callable[[str, Progress], None]


def from_nothing(
    task: str,
    seed: int = 0,
    *,
    folder: Path | None = None,
    minutes: float = 15.0,
    on_step: Step = lambda stage, progress: None,
    **options: Any,
) -> tuple[Run, Certificate]:
    """A certified model of a task, trained on its short numbers only.

    Goes on from what lies in ``folder`` (``runs/certified``): each of the two trainings is
    resumed or skipped. ``options`` are those of ``stages.train``. A model that is refuted is
    repaired once; a certified one is verified by dense attention.
    """
    root = folder or runs_root() / "certified"
    first, second = (root / f"{task}-seed{seed}-{stage}" for stage in ("vanilla", "calibrated"))
    vanilla = _finished(first, lambda p: on_step("training", p))
    if vanilla is None:
        vanilla = stages.train(
            task, seed=seed, out=first, on_step=lambda p: on_step("training", p), **options
        )
    run = _finished(second, lambda p: on_step("retraining", p))
    if run is None:
        run = stages.calibrate(vanilla, out=second, on_step=lambda p: on_step("retraining", p))
    certificate = certify(run, minutes=minutes)
    if certificate.outcome == "refuted" and certificate.windows:
        run = repair(run, minutes=minutes, out=_free(root / f"{task}-seed{seed}-repaired"))
        certificate = Certificate.load(run)
    if certificate.outcome == "certified":
        certificate = verify(run)
    return run, certificate


def _finished(path: Path, on_step: Callable[[Progress], None]) -> Run | None:
    """The run in that folder, trained to its end; None where there is none."""
    if not (path / "config.json").is_file():
        return None
    run = Run.open(path)
    return run if run.result is not None else stages.resume(run, on_step=on_step)


def _free(path: Path) -> Path:
    """A folder that is not there yet."""
    if path.exists() and any(path.iterdir()):
        raise AbcError(f"{path} holds an earlier repair: look at it, then remove it")
    return path
