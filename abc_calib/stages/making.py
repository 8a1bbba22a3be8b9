"""The functions that train a run: ``train``, ``retrain`` and ``repair``."""

from __future__ import annotations

import shlex
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from abc_calib import plugins
from abc_calib.config import RecipeOptions, RunConfig, TaskOptions, take
from abc_calib.errors import AbcError, AbcWarning, UsageError
from abc_calib.proof.blackbox import only_ours
from abc_calib.proof.certificate import Certificate
from abc_calib.proof.decide import decide
from abc_calib.proof.outlook import Hopeless, look_ahead
from abc_calib.runs import Run
from abc_calib.stages.judging import AnyRun
from abc_calib.stages.running import Work, train_run
from abc_calib.training.plan import plan_training
from tasks import Task


def train(
    task: str | type[Task],
    *,
    task_options: Mapping[str, int | str | None] | None = None,
    finetune: AnyRun = None,
    out: Path | str | None = None,
    **options: Any,
) -> Run:
    """Train a vanilla model on short problems until it interpolates.

    ``options``: ``device``, ``on_step``, ``progress`` and ``track`` (``Work``); fields of
    ``TaskOptions``, ``RecipeOptions`` and ``TrainOptions``, and of the model's options
    (``TransformerOptions``, ``DecoderOptions`` or ``RecurrentOptions``). A ``task`` of one's own is
    given as its class, and so are the schemes of positions. ``task_options`` go to
    ``tasks.get_task``, as ``data`` does. ``finetune``: start from the
    weights of this run, not from fresh ones. Raises ``UsageError`` for an unknown task, preset,
    device or option before anything is written, and ``Interrupted`` on Ctrl-C with a checkpoint
    saved.
    """
    work = Work.of(options)
    start = None if finetune is None else Run.open(finetune)
    config = planned(task, finetune=start, task_options=task_options, **options)
    if (why := hopeless(config)) is not None:
        warnings.warn(f"{why} (abc check-task)", AbcWarning, stacklevel=3)
    return train_run(Run.create(config, out), work)


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


def retrain(run: AnyRun = None, **work: Any) -> Run:
    """Train the model of a run that was calibrated without retraining; ``work`` as of ``train``."""
    run = Run.open(run)
    if run.config.stage != "calibrated":
        raise UsageError(f"{run} is not calibrated: abc calibrate {shlex.quote(str(run))}")
    return train_run(run, Work.of(work, alone=True))


def repair(
    run: AnyRun = None, *, minutes: float = 15.0, out: Path | str | None = None, **work: Any
) -> Run:
    """Certify a run, train a copy of it until every window is right, and certify that.

    A retraining from the run's own weights, in a new run with its lines and a certificate. The
    failing windows are put into training problems of at most the training length, from the first
    step on. A run that is certified is given back as it is. ``work`` as of ``train``. Raises
    ``AbcError`` where a model's windows cannot be enumerated or fail in longer problems only.
    """
    how, opened = Work.of(work, alone=True), Run.open(run)
    opened.check()
    only_ours(opened, "abc repair")
    before = decide(opened, opened.load_model(), minutes).certificate
    before.save(opened)
    if before.outcome == "certified":
        return opened
    if not before.windows:
        raise AbcError(f"{opened} cannot be repaired: {before.reason}")

    def copy(folder: Path) -> None:
        for name in ("bias.safetensors", "lines.csv"):
            if (opened.path / name).exists():
                shutil.copyfile(opened.path / name, folder / name)

    config = opened.config.model_copy(update={"parent": str(opened)})
    repaired = train_run(Run.create(config, out, copy), how)
    certificate: Certificate = decide(repaired, repaired.load_model(), minutes).certificate
    certificate.repair = [{"wrong": before.wrong}]
    certificate.save(repaired)
    return repaired
