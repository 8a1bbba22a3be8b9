"""Repair: train briefly on the windows that fail, in numbers no longer than the training's."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from abc_calib.certification.certificate import Certificate
from abc_calib.certification.decide import Decision, decide, failing_sources
from abc_calib.config import TrainOptions
from abc_calib.data.digits import Source, concatenate
from abc_calib.errors import AbcError
from abc_calib.runs.run import Run, write_atomically
from abc_calib.training.trainer import build_optimizer, learning_rate, optimise
from tasks import Problems

STEPS = 300
LEARNING_RATE = 1e-3
EACH = 4
"""Sources made of each failing window."""
SHARE = 0.5
"""Failing windows in a batch, as a share of the usual ones."""


def repair(
    run: Run | Path | str | None = None,
    *,
    rounds: int = 5,
    minutes: float = 15.0,
    out: Path | None = None,
    on_round: Callable[[Certificate], None] = lambda _: None,
) -> Run:
    """Certify; train on what fails; certify again, at most ``rounds`` times.

    Writes a new run with the repaired model and its certificate, unless the run is certified as
    it is. Failing windows are put into random sources of at most the training length, and of its
    training numbers only. Raises ``AbcError`` where a model's windows cannot be enumerated or
    fail in longer numbers only.
    """
    opened = run if isinstance(run, Run) else Run.open(run)
    model, source = opened.load_model(), opened.arithmetic
    decision = decide(opened, model, minutes)
    certificate = decision.certificate
    on_round(certificate)
    if decision.proof is None:
        certificate.save(opened)
        raise AbcError(f"{opened} cannot be repaired: {certificate.reason}")
    if certificate.outcome == "certified":
        certificate.save(opened)
        return opened
    made = _copy(opened, out)
    history: list[dict[str, int]] = []
    for number in range(1, rounds + 1):
        examples = training_examples(decision, np.random.default_rng([number, 7]))
        longest = max(int(o.lengths.max()) for o in examples.operands)
        history.append(
            {
                "round": number,
                "wrong": certificate.wrong,
                "examples": len(examples),
                "longest": longest,
            }
        )
        train_on(model, source, examples, number)
        made.save_model(model)
        decision = decide(made, model, minutes)
        certificate = decision.certificate
        certificate.repair = history
        certificate.save(made)
        on_round(certificate)
        if certificate.outcome == "certified" or decision.proof is None:
            break
    return made


def _copy(run: Run, out: Path | None) -> Run:
    """A new run of the same configuration, lines and result, without a model yet."""
    made = Run.create(run.config.model_copy(update={"parent": str(run)}), out)
    for name in ("bias.safetensors", "lines.csv", "result.json"):
        if (run.path / name).exists():
            write_atomically(made.path / name, partial(shutil.copyfile, run.path / name))
    return made


def training_examples(decision: Decision, rng: np.random.Generator) -> Problems:
    """Failing windows in numbers of the training length at most, from the training's side."""
    proof = decision.proof
    assert proof is not None
    source = proof.source
    found = failing_sources(decision, EACH, source.length, rng, near=True)
    parsed = [source.task.parse(text) for text in dict.fromkeys(text for _, _, text in found)]
    allowed = [one for one in parsed if source.split.allows(one, held_out=False)[0]]
    if not allowed:
        raise AbcError(
            f"no training number of at most {source.length} digits has a failing window: "
            "train again with another --seed"
        )
    return concatenate(allowed)


def train_on(model: Any, source: Source, examples: Problems, number: int) -> None:
    """``STEPS`` steps on the usual batches with failing windows added."""
    options = TrainOptions(steps=STEPS, learning_rate=LEARNING_RATE, warmup=20)
    rng = np.random.default_rng([number, 8])
    optimizer = build_optimizer(model)
    model.train()
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(options, step)
        usual: Any = source.training(number * STEPS + step, options.batch).problems
        added = examples.take(rng.integers(0, len(examples), int(SHARE * options.batch)))
        problems = concatenate([usual, added])
        optimise(model, optimizer, source.layout.lay_out(source.task, source.vocabulary, problems))
    model.eval()
