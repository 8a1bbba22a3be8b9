"""Stress: failures are found, described and searched for."""

from __future__ import annotations

import json

import torch

from abc_calib.evaluation.failures import failure, margins, smallest_margins
from abc_calib.evaluation.stress import smallest, stress


def test_margins_are_those_of_the_logits(half_trained):
    source, model = half_trained
    batch = source.test(5, 20, "hard")
    found = margins(model, batch)
    with torch.inference_mode():
        logits = model(batch.source, batch.target)
    for row in range(20):
        for step in range(batch.target.shape[1]):
            right = int(batch.target[row, step])
            if right == source.vocabulary.pad:
                assert found[row, step] == torch.inf
                continue
            others = [float(x) for i, x in enumerate(logits[row, step]) if i != right]
            expected = float(logits[row, step, right]) - max(others)
            assert abs(float(found[row, step]) - expected) < 1e-4


def test_a_search_finds_smaller_margins_than_it_began_with(half_trained):
    source, model = half_trained
    rows = stress(model, source, [4], samples=30, search=600)
    searched = rows[-1]
    assert searched.family == "search" and searched.n == 600
    import numpy as np

    hard = source.task.hard(np.random.default_rng(0), 60, 4)
    first = smallest_margins(model, source.lay_out(hard))
    assert searched.margin <= first.min() + 1e-3
    assert searched.wrong > 0 and searched.failures


def test_failures_say_where(half_trained):
    source, model = half_trained
    rows = stress(model, source, [5, 7], samples=40, search=0)
    assert all(row.family != "search" for row in rows)
    least = smallest(rows)
    assert least is not None and least.digits == min(
        one.digits for row in rows for one in row.failures
    )
    assert rows[0].family == "all zeros" and rows[0].n == 1
    again = failure(model, source, least.problem)
    assert again == least
    right = "".join(reversed(least.right))
    if least.step < len(right):
        assert least.wanted == right[least.step]
    assert least.wrote != least.wanted and least.problem in least.text()
    assert all(len(part) <= 5 for part in least.around)


def test_a_vanilla_model_fails_beyond_its_length(tiny, abc):
    words = ("--samples", 10, "--search", 60)
    told = abc("stress", tiny.vanilla, "--lengths", "9", *words, "--json", "-q").json()
    assert told["smallest"]["digits"] == 9 and sum(row["wrong"] for row in told["rows"]) > 50
    said = abc("stress", tiny.vanilla, *words)
    assert "smallest failure" in said.out and "around it are" in said.out
    assert json.loads((tiny.vanilla / "stress.json").read_text())["rows"][1]["length"] == 5


def test_repair_of_a_certified_run_changes_nothing(tiny, abc):
    before = (tiny.calibrated / "model" / "model.safetensors").read_bytes()
    said = abc("repair", tiny.calibrated)
    assert said.code == 0 and "certified" in said.out
    assert (tiny.calibrated / "model" / "model.safetensors").read_bytes() == before
    assert "cannot be repaired" in abc("repair", tiny.vanilla, "-q").error(1)


def test_a_recurrent_model_is_searched_for_failures(abc):
    words = ("--model", "gru", "--attender", "content", "--steps", 3, "--digits", 3, "-q")
    assert abc("train", "addition", *words).code == 0
    told = abc("certify", "--json", "-q").json()
    assert told["outcome"] == "refuted" and told["reason"].startswith("it is recurrent")
    said = abc("stress", "--lengths", 2, "--samples", 2, "--search", 10)
    assert said.code == 0 and "smallest failure" in said.out
