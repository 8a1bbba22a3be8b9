"""The certified models that come with the program: each answers, and its checker agrees."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import abc_calib as abc
from abc_calib.errors import UsageError
from abc_calib.runs.folders import zoo
from tasks import ROW_TASKS

REPORTS = Path(__file__).parent.parent / "reports" / "zoo"
SLOW = {"addition", "subtraction", "successor", "rule110", "division", "product", "sort", "sum"}
"""Models whose checker takes more than a second."""


@pytest.mark.parametrize("name", zoo())
def test_a_model_of_the_zoo_answers(name, runs_root):
    run = abc.Run.open(f"zoo:{name}")
    assert run.path == runs_root / f"zoo-{name}"
    batch = run.data.test((8, 5) if run.task.name in ROW_TASKS else 15, 2)
    for row in range(2):
        question = run.task.plain(batch.problems, row)
        assert abc.predict(run, question).answer == run.task.solve(question)
    assert (run.path / "model" / "model.safetensors").stat().st_size < 2**20
    assert json.loads((run.path / "certificate.json").read_text())["outcome"] == "certified"


def checked(name: str) -> str:
    command = [sys.executable, "-I", str(REPORTS / "check.py"), name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in zoo()]
)
def test_the_checker_agrees(name):
    assert checked(name).startswith("certified: right in each of ")


def test_a_name_that_there_is_not_is_answered_with_those_that_there_are(runs_root):
    assert "one of addition, " in checked("sums")
    with pytest.raises(UsageError, match=r"zoo:sums': did you mean zoo:sum\?$"):
        abc.Run.open("zoo:sums")


def test_models_of_the_zoo_are_drawn(tmp_path):
    names = [p.name for p in abc.heatmap("zoo:parity", tmp_path, format="png", sites="cross")]
    assert names == [*(f"bias-cross-layer{k}.png" for k in range(3)), "cross.npz"]
