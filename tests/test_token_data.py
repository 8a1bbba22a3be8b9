"""Token ids of token tasks, the passes of training, and a Transformer that trains on them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from abc_calib import stages
from abc_calib.config import TrainOptions
from abc_calib.data import TokenData
from tasks import TOKEN_TASKS, TaskError, get_task

NAMES = [name for name in TOKEN_TASKS if name != "cfq"]


def source_of(name: str, seed: int = 0, length: int | None = None, **more) -> TokenData:
    task: Any = get_task(name)
    length = task.train_length if length is None else length
    options = TrainOptions(seed=seed, length=length, sampling=task.sampling, **more)
    return TokenData(task, options)


def laid_out(task, words: list[str]) -> list[str]:
    """A source's tokens: where outputs have rows the count in unary, and words from the last on."""
    if not getattr(task, "in_rows", False):
        return words
    return [*"#" * int(words[0]), ":", *words[:1:-1]] if task.counted else words[::-1]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_laid_out_reads_back(name):
    source = source_of(name)
    task, vocabulary = source.task, source.vocabulary
    batch = source.lay_out(task.sample(np.random.default_rng(0), 23, 8))
    for row in range(23):
        ids = [vocabulary.symbols[i] for i in batch.source[row].tolist()]
        words = task.write(batch.problems, row).split()
        closing = ["&", "&"] if task.closes_source else ["&"]
        laid = laid_out(task, words)
        assert ids == ["$", *laid, *closing] + ["@"] * (len(ids) - len(laid) - 1 - len(closing))
        target = batch.target[row].tolist()
        end = target.index(vocabulary.eos)
        assert source.read([vocabulary.symbols[i] for i in target[:end]]) == task.solve(
            " ".join(words)
        )
        assert set(target[end + 1 :]) <= {vocabulary.pad}


def test_a_pass_holds_every_training_problem_once():
    source = source_of("lookup")
    steps = source.steps_a_pass(1000)
    assert steps == 10
    for first in (0, steps):
        seen = [source.training(first + i, 1000) for i in range(steps)]
        assert [len(batch) for batch in seen] == [1000] * 9 + [81]
        written = {
            source.task.write(batch.problems, row) for batch in seen for row in range(len(batch))
        }
        assert len(written) == 9081


def test_batches_follow_from_seed_and_step_and_not_from_what_was_drawn_before():
    source = source_of("copy", seed=3)
    hashes = [source.training(step, 32).hash() for step in (700, 0, 700)]
    assert hashes[0] == hashes[2] != hashes[1]
    assert source_of("copy", seed=3).training(0, 32).hash() == hashes[1]
    assert source_of("copy", seed=4).training(0, 32).hash() != hashes[1]


def test_validation_is_of_the_training_lengths_or_longer():
    same, longer = (source_of("copy", dev=dev).validation(2001) for dev in ("same", "longer"))
    assert same.problems.source.lengths.max() == 10
    assert set(longer.problems.source.lengths) == set(range(10, 16))


@pytest.mark.parametrize(("name", "length"), [("copy", 30), ("lookup", 9), ("scan", 30)])
def test_tests_have_exactly_the_asked_length(name, length):
    batch = source_of(name).test(length, 17)
    wanted = length - 1 if name == "lookup" else length
    assert len(batch) == 17 and (batch.problems.target.lengths == wanted).all()


def test_a_length_that_no_test_has_is_refused():
    with pytest.raises(TaskError, match="no held-out SCAN command has 23 actions"):
        source_of("scan").test(23, 5)
    with pytest.raises(TaskError, match="length 2 is not possible for lookup: give 3 or more"):
        source_of("lookup", length=2)


TINY = {"decoder_layers": 1, "heads": 2, "width": 16, "feedforward": 32, "steps": 8, "batch": 16}


@pytest.mark.parametrize("task", ["copy", "lookup"])
def test_the_pipeline_of_the_transformer_runs_on_tokens(task, monkeypatch):
    monkeypatch.setattr("abc_calib.calibration.trial.STEPS", 2)
    run = stages.train(task, **TINY)
    assert run.result["validation_samples"] == (2000 if task == "copy" else 475)
    monkeypatch.setattr("abc_calib.calibration.pipeline.correct_samples", lambda _, b: (b, 1.0))
    calibrated = stages.calibrate(run, force=True, samples=64, steps=4)
    assert calibrated.result["steps"] == 4
    table = stages.evaluate(calibrated, [7, 11], samples=9)
    assert table["length"].tolist() == [7, 11] and (table["n"] == 9).all()
