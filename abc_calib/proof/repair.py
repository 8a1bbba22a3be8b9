"""Repair: train briefly on the windows that fail, in numbers no longer than the training's."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from abc_calib.config import TrainOptions
from abc_calib.data import Batch
from abc_calib.errors import AbcError
from abc_calib.evaluation.failures import smallest_margins
from abc_calib.files import write_atomically
from abc_calib.nn.base import Model, in_float64
from abc_calib.proof.blackbox import only_ours
from abc_calib.proof.certificate import Certificate
from abc_calib.proof.decide import Decision, decide
from abc_calib.proof.fingerprint import fingerprint
from abc_calib.proof.prove import check
from abc_calib.proof.until import FLOOR, MarginStopping, mined
from abc_calib.runs import Run
from abc_calib.training.step import fit_steps

STEPS, TURNS = 200, 8
"""Steps until it is looked whether the failing windows are right, and how often at most."""
FEW, START, MANY_START = 1e-3, 1e-3, 0.25
"""The share of windows up to which few are wrong. The first learning rate of a round, as a share of
the training's: so small that what is right stays right, or, where more are wrong, not."""
FASTER, SLOWER = 1.5, 0.2
"""By what the rate is multiplied for each next turn, and after a round that did not help."""
RIGHT = 1.0
"""Margin above which the failing windows are right, in logits."""
EACH = 4
"""Sources made of each failing window."""
MOST = 10_000
"""Sources in all."""
SHARE = 0.5
"""Of them in a batch."""


def repair(
    run: Run | Path | str | None = None,
    *,
    rounds: int = 5,
    minutes: float = 15.0,
    out: Path | str | None = None,
    on_round: Callable[[Certificate], None] = lambda _: None,
) -> Run:
    """Certify; train on what fails; certify again, at most ``rounds`` times.

    Writes a new run with the repaired model and its certificate, unless the run is certified as
    it is. Failing windows are put into random sources of at most the training length, and of its
    training numbers only. A round that leaves as many windows wrong as before is taken back. Raises
    ``AbcError`` where a model's windows cannot be enumerated or
    fail in longer numbers only.
    """
    opened = Run.open(run)
    opened.check()
    only_ours(opened, "abc repair")
    model, data = opened.load_model(), opened.data
    decision = decide(opened, model, minutes)
    certificate = decision.certificate
    on_round(certificate)
    if decision.proof is None:
        certificate.save(opened)
        raise AbcError(f"{opened} cannot be repaired: {certificate.reason}")
    if certificate.outcome == "certified":
        certificate.save(opened)
        return opened
    repaired = _copy(opened, out)
    ended = opened.result or {}
    history: list[dict[str, float]] = []
    slower = 1.0
    for number in range(1, rounds + 1):
        miner = MarginStopping(decision.proof, number)
        miner.hard = training_examples(decision, np.random.default_rng([number, 7]))
        miner.share = SHARE
        longest = max(
            int(tape.lengths.max())
            for text in miner.hard
            for tape in data.task.letters(miner.parse(text))
        )
        before, wrong = deepcopy(model.state_dict()), decision.certificate.wrong
        entry = {"round": number, "wrong": wrong, "examples": len(miner.hard), "longest": longest}
        few = wrong <= FEW * decision.certificate.windows
        start = slower * (START if few else MANY_START)
        rates = train_on(model, miner, opened.config.train, start)
        history.append({**entry, "steps": STEPS * len(rates), "rate": rates[-1]})
        _save(repaired, model, ended)
        retried = decide(repaired, model, minutes)
        on_round(retried.certificate)
        worse = retried.certificate.outcome != "certified" and retried.certificate.wrong >= wrong
        if worse:
            model.load_state_dict(before)
            slower *= SLOWER
            _save(repaired, model, ended)
        else:
            decision = retried
        now = fingerprint(repaired)
        replace(decision.certificate, fingerprint=now, repair=history).save(repaired)
        if decision.certificate.outcome == "certified" or decision.proof is None:
            break
    return repaired


def _save(run: Run, model: Model, ended: dict[str, Any]) -> None:
    run.save_model(model)
    if ended:
        run.save_result(ended)


def _copy(run: Run, out: Path | str | None) -> Run:
    """A new run of the same configuration and lines, without a model yet."""
    new_run = Run.create(run.config.model_copy(update={"parent": str(run)}), out)
    for name in ("bias.safetensors", "lines.csv", "history.jsonl"):
        if (run.path / name).exists():
            write_atomically(new_run.path / name, partial(shutil.copyfile, run.path / name))
    return new_run


def training_examples(decision: Decision, rng: np.random.Generator) -> list[str]:
    """Put failing windows into training problems, of the training length at most.

    Where no such problem has one, those that are right by less than the retraining's floor: a
    window of longer numbers fails together with its like in short ones, or nearly so.
    """
    proof, counterexamples = decision.proof, decision.certificate.counterexamples
    assert proof is not None
    data: Any = proof.data
    texts = mined(proof, decision.checked, rng, EACH, MOST, patient=True)
    allowed = (c["problem"] for c in counterexamples)
    texts += [text for text in allowed if data.may_train(data.task.parse(text))]
    texts = texts or mined(proof, check(proof, floor=FLOOR), rng, EACH, MOST, patient=True)
    if not texts:
        raise AbcError(
            f"no training number of at most {data.length} digits has a failing window: train again "
            "with another seed"
        )
    return [*dict.fromkeys(texts)]


def train_on(model: Model, miner: MarginStopping, usual: TrainOptions, start: float) -> list[float]:
    """Train on the usual batches, half of each hard problems, until these are right.

    ``start``: the first learning rate, as a share of the usual one. Gives that of each turn.
    """
    laid, rates = miner.laid_out(), list[float]()
    for turn in range(TURNS):
        rates.append(min(start * FASTER**turn, 1.0) * usual.learning_rate)
        changed = {"steps": STEPS, "learning_rate": rates[-1], "warmup": 20, "schedule": "cosine"}

        def batch(step: int, before: int = (miner.seed * TURNS + turn) * STEPS) -> Batch:
            return miner.batch(miner.proof.data.training(before + step, usual.batch), before + step)

        fit_steps(model, usual.model_copy(update=changed), batch)
        if smallest_margins(in_float64(model), laid).min() > RIGHT:
            break
    return rates
