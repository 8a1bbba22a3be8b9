"""Repair: a retraining from a run's own weights, which ends as soon as every window is right."""

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
from abc_calib.files import write_atomically
from abc_calib.nn.base import Model
from abc_calib.proof.blackbox import only_ours
from abc_calib.proof.certificate import Certificate
from abc_calib.proof.decide import Decision, decide
from abc_calib.proof.fingerprint import fingerprint
from abc_calib.proof.until import MarginStopping, mined
from abc_calib.runs import Run
from abc_calib.training.step import fit_steps

STEPS, EVERY = 1600, 50
"""Steps of a round at most, and after how many of them the windows are looked at."""
RATE, SLOWER = 0.25, 0.2
"""The learning rate, as a share of the training's, and by what it is multiplied after a round that
did not help."""


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
    ``AbcError`` where a model's windows cannot be enumerated or fail in longer numbers only.
    """
    opened = Run.open(run)
    opened.check()
    only_ours(opened, "abc repair")
    model, data = opened.load_model(), opened.data
    decision = decide(opened, model, minutes)
    on_round(decision.certificate)
    if decision.certificate.outcome == "certified" or decision.proof is None:
        decision.certificate.save(opened)
        if decision.proof is None:
            raise AbcError(f"{opened} cannot be repaired: {decision.certificate.reason}")
        return opened
    repaired, ended = _copy(opened, out), opened.result or {}
    history: list[dict[str, float]] = []
    rate = RATE * opened.config.train.learning_rate
    for number in range(1, rounds + 1):
        assert decision.proof is not None
        miner = MarginStopping(decision.proof, number)
        miner.hard = training_examples(decision, np.random.default_rng([number, 7]))
        if not miner.hard:  # those of longer numbers fail together with their like, or nearly so
            miner.look(model, 0)
        if not miner.hard:
            raise AbcError(
                f"no training number of at most {data.length} digits has a failing window: train "
                "again with another seed"
            )
        longest = max(data.size_of(miner.parse(text)) for text in miner.hard)
        before, wrong = deepcopy(model.state_dict()), decision.certificate.wrong
        history.append({"round": number, "wrong": wrong, "examples": len(miner.hard)})
        history[-1] |= {"longest": longest, "rate": rate}
        train_on(model, miner, opened.config.train, rate)
        _save(repaired, model, ended)
        retried = decide(repaired, model, minutes)
        on_round(retried.certificate)
        if retried.certificate.outcome == "certified" or retried.certificate.wrong < wrong:
            decision = retried
        else:
            model.load_state_dict(before)
            rate *= SLOWER
            _save(repaired, model, ended)
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
    """Put failing windows into training problems, of the training length at most."""
    proof, counterexamples = decision.proof, decision.certificate.counterexamples
    assert proof is not None
    data: Any = proof.data
    allowed = (c["problem"] for c in counterexamples)
    texts = [text for text in allowed if data.may_train(data.task.parse(text))]
    texts += mined(proof, decision.checked, rng)
    return [*dict.fromkeys(texts)]


def train_on(model: Model, miner: MarginStopping, usual: TrainOptions, rate: float) -> None:
    """Train on the usual batches, a share of each hard problems, until every window is right."""
    changed = {"steps": STEPS, "learning_rate": rate, "warmup": 20, "schedule": "cosine"}
    first = miner.seed * STEPS

    def batch(step: int) -> Batch:
        usual_batch = miner.proof.data.training(first + step, usual.batch)
        return miner.batch(usual_batch, first + step)

    def judge(step: int) -> tuple[float, bool]:
        return 0.0, step % EVERY == 0 and miner.look(model, first + step)

    fit_steps(model, usual.model_copy(update=changed), batch, judge)
