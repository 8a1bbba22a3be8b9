"""The protocol of the paper's public code, from nothing to a table."""

from __future__ import annotations

import pytest
from conftest import attempt_here

from abc_calib import reporting
from abc_calib.config import WorkOptions
from abc_calib.geometry import Line
from abc_calib.reproduction import get_target, make_report, read_targets, reproduce
from abc_calib.sweeps import engine

TINY = """
head = "model"
tests = [{lengths = [2, 3], samples = 5}, {rows = ["carry"], set = "carry"}]

[targets.tiny]
title = "Tiny"
tasks = ["successor"]

[rows.vanilla]
preset = "paper"
[rows.vanilla.options]
format = "fixed:4"
length = 2
width = 16
heads = 2
feedforward = 32
dropout = 0.0
batch = 32
steps = 500
learning_rate = 0.003
cooldown = 0

[rows.sum]
like = "vanilla"
[rows.sum.calibrate]
fit = "mean"
average = "sum"
threshold = "cross=0.5,self=0.5"
dirs = "cross=anti+vert,self=diag"
scheme = "sinusoidal"
steps = 2
batch = 8

[rows.carry]
like = "sum"

[rows.text]
like = "vanilla"
calibrate = {fit = "mean", attention = "raw", threshold = 0.5, steps = 2, batch = 8}
"""


def test_a_target_is_made_from_nothing_and_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "attempt", attempt_here)
    target = read_targets(TINY)["tiny"]
    work = WorkOptions(jobs=str(tmp_path), workers=1)
    results, outcomes = reproduce(target, work)
    assert [outcome.state for outcome in outcomes] == ["done"] * 3, outcomes
    cells = {(one["row"], one["length"]) for one in make_report(target, results).records}
    assert cells == {(row, n) for row in ("vanilla", "sum", "carry", "text") for n in (2, 3)}
    entries = {entry.row: entry.job for entry in target.entries()}
    assert entries["carry"].key == entries["sum"].key
    run = entries["sum"].run(tmp_path)
    assert run.config.model.scheme == "sinusoidal" and run.config.model.post_norm
    bias = run.bias()
    for heads in bias.sites["cross"]:
        assert heads == bias.sites["cross"][-1]  # the last layer's, in all
        for head in heads:
            assert head[-1] == Line("anti", -1, 0, stride=9999)  # the source's end in row 0
            assert all(line.value > 0 and line.direction != "diag" for line in head[:-1])
    own = [line for heads in bias.sites["self"] for head in heads for line in head]
    assert own and {line.direction for line in own} == {"diag"}
    text = entries["text"].run(tmp_path)
    assert text.config.model.scheme == "none"
    assert reporting.views.heatmap(text, tmp_path / "figures", format=("png",))
    assert {o.state for o in reproduce(target, work)[1]} == {"kept"}


@pytest.mark.slow
def test_the_jobs_of_the_target_are_possible():
    for entry in get_target("published").entries(seeds=1):
        entry.job.check()
