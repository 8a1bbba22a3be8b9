"""A compiled model writes what the model and the rule write, and is as small as can be."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import digit_data
from extraction import extracted, same

import abc_calib as abc
from abc_calib.config import TransformerOptions
from abc_calib.errors import AbcError, UsageError
from abc_calib.geometry import Line, LineBias
from abc_calib.nn.build import build_model
from abc_calib.reporting.transducer import compiled
from abc_calib.runs import Run
from tasks.ragged import Ragged
from tasks.rules import reduced

ZOO = [
    ("addition-decoder", 4, ["12", "345"], "357"),
    ("parity", 3, ["1011"], "1001"),  # of the last digit, of the last two, ...
    ("copy", 2, ["1 2 3"], "1 2 3"),
    ("s3", 7, ["213 231 312"], "213 321 213"),
    ("multiplication", 57, ["999", "7"], "6993"),
]
"""Models, and their states: no carry, a carry, after a 0, the last 1; and where one begins."""


@pytest.mark.parametrize("name, states, operands, written", ZOO, ids=str)
def test_answers_are_right_and_states_are_few(
    name: str, states: int, operands: list[str], written: str, tmp_path: Path
) -> None:
    made = abc.compile(f"zoo:{name}", out=tmp_path / "made")
    task = made.data.task
    assert made.states == states
    assert reduced(made.transducer).states == made.transducer.states
    rng = np.random.default_rng(0)
    for length in (1, 2, 3, 7, 40):
        problems = task.sample(rng, 20, length, task.laws[0])
        for row in range(20):
            problem = task.write(problems, row)
            assert made.answer(problem) == task.solve(problem), problem
    program = next(path for path in made.files if path.suffix == ".py")
    command = [sys.executable, "-I", str(program), *operands]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == written
    assert "abc_calib" not in program.read_text()
    for wrong in ([], [*operands[:-1], "1x"], [*operands, "1"]):
        said = subprocess.run([*command[:3], *wrong], capture_output=True, text=True, check=False)
        assert said.returncode == 2 and not said.stdout
        assert said.stderr.startswith("call it as python ") and said.stderr.count("\n") == 1
    assert [path.suffix for path in made.files] == [".csv", ".pdf", ".py", ".svg"]


def test_every_short_source_is_written_as_by_the_rule() -> None:
    run = Run.open("zoo:addition-base2")
    made, rule = compiled(run.load_model(), run.data), run.task.rule()
    assert rule is not None
    width = 5
    letters = np.indices((2,) * 2 * width).reshape(2, width, -1).transpose(0, 2, 1)
    some = letters[:, :, -1].any(0)  # one of the two is so wide
    tapes = [Ragged(one[some], np.full(int(some.sum()), width)) for one in letters]
    written, right = made.rows(tapes), rule.rows(tapes)[0]
    assert (written.lengths == right.lengths).all()
    assert (written.flat == right.flat).all()


@pytest.mark.parametrize("name", ["addition-base2", "parity", "s3", "multiplication"])
def test_the_machine_that_its_windows_show_is_the_same(name: str) -> None:
    """Read out of what the model predicts, without the rule; one that differs is seen."""
    run = Run.open(f"zoo:{name}")
    machine, rule = compiled(run.load_model(), run.data).transducer, run.task.rule()
    assert rule is not None and same(rule.first, machine)
    right = extracted(run.load_model(), run.data)
    assert same(rule.first, right)
    if name != "addition-base2":
        return
    for state, read in ((1, (0, 1)), (2, (1, 1)), (2, (2, 2))):
        written = right.written.copy()
        written[state, *read] ^= 1
        assert not same(rule.first, replace(right, written=written))


def lined(**options: Any) -> Any:
    data = digit_data()
    shape: Any = {"width": 12, "heads": 1, "feedforward": 16, "decoder_layers": 1, "scheme": "none"}
    model = build_model("transformer", TransformerOptions(**shape), data, 0).eval()
    own, cross = [[(Line("diag", 0, 0),)]], [[(Line("anti", 0, 0),)]]
    model.set_lines(LineBias({"self": own, "cross": cross}))  # type: ignore[dict-item]
    return model, data


def test_what_is_no_machine_of_its_task_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AbcError, match="it is wrong in"):
        compiled(*lined())
    model, data = lined()
    model.set_lines(None)
    with pytest.raises(AbcError, match="not restricted to lines"):
        compiled(model, data)
    with pytest.raises(AbcError, match="several rows"):
        abc.compile("zoo:division")
    with pytest.raises(UsageError, match="is there already"):
        abc.compile("zoo:parity", out=tmp_path)
