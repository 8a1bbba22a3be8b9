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

REPORTS = Path(__file__).parent.parent / "reports" / "zoo"
QUESTIONS = {
    "addition": ("999999999999999+1", "1000000000000000"),
    "addition-base2": ("11111111+1", "100000000"),
    "addition-base3": ("222222222+1", "1000000000"),
    "addition-decoder": ("999999999999999+1", "1000000000000000"),
    "compare": ("1234567890?1234567809", ">"),
    "copy": ("4 7 9 8 8 8 1 0 5 5 4 2 3", "4 7 9 8 8 8 1 0 5 5 4 2 3"),
    "division": ("110101101011110/1101", "100001000010 r 100"),
    "long-multiplication-base2": ("1101*1011", f"{0b1101 * 0b1011:b}"),
    "multiplication": ("98765432109*7", str(98765432109 * 7)),
    "multiplication-base2": ("110101101*1", "110101101"),
    "parity": ("1011011101110", "1"),
    "reverse-copy": ("4 7 9 8 8 8 1 0 5 5 4 2 3", "3 2 4 5 5 0 1 8 8 8 9 7 4"),
    "rule110": ("3 : 0 0 0 0 1 0", "0 1 1 0 1 0"),
    "s3": ("213 321 213", "213 231 132"),
    "s5": ("24531 41253 15342", "24531 15324 12354"),
    "sort": ("4 7 9 8 8 8 1 0 5 5 4 2 3", "0 1 2 3 4 4 5 5 7 8 8 8 9"),
    "sum-base2": ("101+111+1", "1101"),
    "subtraction": ("1000000000000-1", "999999999999"),
    "successor": ("199999999999", "200000000000"),
    "successor-base36": ("zzzzzzzzzz", "10000000000"),
    "successor-decoder": ("199999999999", "200000000000"),
}
SECONDS = {"addition", "subtraction", "successor", "successor-base36", "s5", "rule110", "division"}
SECONDS |= {"long-multiplication-base2", "sort", "sum-base2"}


def checked(name: str) -> str:
    command = [sys.executable, "-I", str(REPORTS / "check.py"), name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", zoo())
def test_a_model_of_the_zoo_answers(name, runs_root):
    question, answer = QUESTIONS[name]
    run = abc.Run.open(f"zoo:{name}")
    assert run.path == runs_root / f"zoo-{name}"
    assert abc.predict(run, question).answer == answer == run.task.solve(question)
    assert (run.path / "model" / "model.safetensors").stat().st_size < 2**20
    assert json.loads((run.path / "certificate.json").read_text())["outcome"] == "certified"


@pytest.mark.parametrize("name", sorted({*zoo()} - SECONDS))
def test_the_checker_agrees(name):
    assert checked(name).startswith("certified: right in each of ")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SECONDS))
def test_the_checker_agrees_where_it_takes_more_than_a_second(name):
    assert checked(name).startswith("certified: right in each of ")


def test_a_name_that_there_is_not_is_answered_with_those_that_there_are(runs_root):
    assert "one of addition, " in checked("sums")
    with pytest.raises(UsageError, match=r"no zoo:sums: choose one of addition, "):
        abc.Run.open("zoo:sums")


def test_models_of_the_zoo_are_drawn(tmp_path):
    names = [p.name for p in abc.heatmap("zoo:parity", tmp_path, format="png", sites="cross")]
    assert names == [*(f"bias-cross-layer{k}.png" for k in range(3)), "cross.npz"]
