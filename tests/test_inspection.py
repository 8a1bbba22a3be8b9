"""Inspecting and diagnosing a recurrent model: numbers, tables, figures, bad input."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from conftest import vouch

from abc_calib import stages
from abc_calib.evaluation.inspect import ALIKE_STATES, FLAT_SCORES, diagnose, inspect
from abc_calib.runs import Run

TINY = {
    "model": "gru", "width": 8, "embedding": 6, "d_head": 8, "value": 8, "batch": 32, "steps": 1,
}  # fmt: skip
SOURCE = "010 t3 t4 ."


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs on lookup by attender, of one step, in a folder that the module shares."""
    root = tmp_path_factory.mktemp("inspected")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABC_RUNS", str(root))
        return {
            name: stages.train("lookup", out=root / name, attender=name, **TINY)
            for name in ("mix", "one_step", "content")
        }


@pytest.fixture
def changed(runs, tmp_path):
    """A copy of a run whose weights ``change`` has set."""

    def make(name, change):
        folder = tmp_path / "changed"
        shutil.copytree(runs[name].path, folder)
        run = Run.open(folder)
        model = run.load_model()
        with torch.no_grad():
            change(model)
        run.save_model(model)
        vouch(folder)
        return run

    return make


def test_every_step_has_its_weights_and_variables(runs):
    found = inspect(runs["mix"], SOURCE)
    steps = len(found.output)
    assert found.tokens == ["$", "010", "t3", "t4", ".", "&"] and 1 <= steps <= 6
    assert found.gold == [0, 1, 2, 3]
    assert found.weights.shape == (steps, 6)
    assert np.allclose(found.weights.sum(1), 1.0, atol=1e-5)
    assert {"centre", "width", "step", "mix"} <= set(found.variables)
    assert all(len(values) == steps for values in found.variables.values())
    assert all(0 <= value <= 1 for value in found.variables["mix"])
    assert all(value > 0 for value in found.variables["width"])
    assert all(0 <= place <= 3 for place in found.looked)  # this backbone sees words alone
    assert not found.correct


def test_the_command_prints_a_line_a_step_and_writes_figures(abc, runs, tmp_path):
    given = ("inspect", runs["mix"].path, "--input", SOURCE, "--out", tmp_path / "figures")
    said = abc(*given, "--format", "png,svg")
    assert said.code == 0 and "places in words of the source" in said.out
    for column in ("step", "writes", "gold", "centre", "width", "mix"):
        assert column in said.out
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == [
        "attention.png", "attention.svg", "variables.png", "variables.svg",
    ]  # fmt: skip
    assert "this is wrong" in said.err
    found = abc(*given, "--json").json()
    expected = inspect(runs["mix"], SOURCE)
    assert found["output"] == expected.output and found["gold"] == [0, 1, 2, 3]
    assert found["looked"] == pytest.approx(expected.looked)
    assert found["variables"].keys() == expected.variables.keys()


# Diagnosis


def test_a_diagnosis_has_scores_where_there_are_any(abc, runs):
    said = abc("diagnose", runs["content"].path, "--json").json()
    expected = diagnose(runs["content"])
    assert said["score_variance"] == pytest.approx(expected.score_variance)
    assert said["samples"] == 256 and 0 < said["peak"] <= 1 and -1 <= said["similarity"] <= 1
    assert diagnose(runs["one_step"]).score_variance is None
    assert "score variance      none" in abc("diagnose", runs["one_step"].path).out


def test_a_source_that_is_read_backwards_is_shown_as_it_was_given(runs, changed):
    """An attender that steps half a place at a time, from the end of the source to its start."""

    def turn_around(model):
        model.attender.direction.bias.fill_(-50.0)
        model.attender.shared.bias.zero_()
        model.attender.shared.weight.zero_()

    found = inspect(changed("one_step", turn_around), SOURCE)
    steps = np.diff(found.looked)
    assert found.looked[0] > len(found.tokens) - 3.5 and (steps <= 0).all() and steps[0] < -0.1
    moved = np.cumsum(found.variables["step"])
    assert found.variables["centre"] == pytest.approx(len(found.tokens) - 2 - moved, abs=1e-3)


def test_flat_scores_and_a_collapsed_encoder_are_found(abc, changed):
    """An attender without weights, and an encoder that writes the same state everywhere."""

    def flatten(model):
        for value in model.attender.parameters():
            value.zero_()
        for name, value in model.backbone.encoder.named_parameters():
            value.zero_()
            if "bias" in name:  # of the reset, update and new gates: always the new state
                _, update, new = value.chunk(3)
                update.fill_(-20.0)
                new.fill_(1.0)

    run = changed("content", flatten)
    found = diagnose(run)
    assert found.score_variance < FLAT_SCORES and found.similarity > ALIKE_STATES
    assert len(found.findings) == 2
    said = abc("diagnose", run.path).out
    assert "scores hardly differ" in said and "the encoder has collapsed" in said
