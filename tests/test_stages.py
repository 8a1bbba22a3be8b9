"""The verbs of the package where runs meet: what is gone on with, and what a run came from."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

import pytest
from conftest import change_json, vouch

from abc_calib import certified, stages
from abc_calib.config import Origin
from abc_calib.errors import AbcError, UsageError
from abc_calib.reporting.page.commands import commands
from abc_calib.runs import Run

SMALL = {"decoder_layers": 1, "heads": 2, "width": 8, "feedforward": 16, "batch": 5}


def test_a_run_of_another_configuration_is_not_gone_on_with(tmp_path):
    with pytest.raises(AbcError, match="interpolated"):
        certified("successor", folder=tmp_path, steps=20, **SMALL)
    before = (tmp_path / "successor-seed0-vanilla" / "config.json").read_bytes()
    for options, said in (
        ({"steps": 3000}, "steps 20, not 3000"),
        ({"scheme": "rope"}, "not rope"),
    ):
        with pytest.raises(UsageError, match=said) as refused:
            certified("successor", folder=tmp_path, **{"steps": 20, **SMALL, **options})
        assert "name another folder, or remove it" in str(refused.value)
    assert (tmp_path / "successor-seed0-vanilla" / "config.json").read_bytes() == before


def repaired(tiny) -> Run:
    """A run as ``abc repair`` leaves it: calibrated, and made of a calibrated one."""
    path = tiny.calibrated.with_name("repaired")
    shutil.copytree(tiny.calibrated, path)
    change_json(path / "config.json", parent=str(tiny.calibrated))
    vouch(path)
    run = Run.open(path)
    run.make_latest()
    return run


def test_calibrating_after_a_repair_begins_with_the_first_run(tiny):
    run = repaired(tiny)
    with pytest.raises(UsageError, match=f"calibrated already: name .*{tiny.vanilla}"):
        stages.calibrate(run, retrain=False, threshold=0.3)
    made = stages.calibrate(retrain=False, threshold=0.3)
    assert made.config.parent == str(tiny.vanilla)


def test_the_commands_of_a_run_have_all_that_it_was_made_with(tiny):
    first, *_ = commands(Run.open(tiny.vanilla))
    assert commands(repaired(tiny)) == [*commands(Run.open(tiny.calibrated)), "abc repair"]
    tuned = Run.open(tiny.vanilla)
    plugins = {"scheme x": Origin(file="my x.py", sha256="0")}
    config = tuned.config.model_copy(update={"parent": str(tiny.vanilla), "plugins": plugins})
    tuned.__dict__["config"] = config
    assert commands(tuned)[0] == first
    assert f"--finetune {tiny.vanilla}" in commands(tuned)[1]
    assert commands(tuned)[1].endswith(" --plugin 'my x.py'")


def test_options_of_a_foreign_model_are_taken_or_refused(abc, monkeypatch):
    """``--minutes`` reaches the proof; what means nothing with ``--hf`` is not dropped."""
    minutes = []
    monkeypatch.setattr(
        stages,
        "adopt",
        lambda *_, **__: SimpleNamespace(summary="", task=SimpleNamespace(follows=None)),
    )
    monkeypatch.setattr(stages, "opened", lambda run: run)

    def certify(_, options):
        minutes.append(options.minutes)
        raise AbcError("seen")

    monkeypatch.setattr(stages, "certify", certify)
    words = ("certify", "--hf", "f", "--data", "d", "--delimiters", "=", "-q")
    assert abc(*words, "--minutes", 0.5).error(1) == "seen"
    assert minutes == [0.5]
    for option in ("--seeds", "--base", "--model", "--seed"):
        assert f"no such option: {option}" in abc(*words, option, 3).error(2)
