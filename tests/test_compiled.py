"""A compiled model writes what the model and the rule write, and is as small as can be."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import digit_data

import abc_calib as abc
from abc_calib.config import TransformerOptions
from abc_calib.errors import AbcError, UsageError
from abc_calib.geometry import Line, LineBias
from abc_calib.nn.build import build_model
from abc_calib.proof.compiled import compiled, same
from abc_calib.runs import Run
from tasks.rules import reduced

STATES = {
    "addition": 5,
    "addition-decoder": 4,
    "subtraction": 3,
    "parity": 3,
    "compare": 4,
    "reverse-copy": 2,
    "s3": 7,
    "multiplication": 57,
}
"""Of models of the zoo: no carry, a carry, after a 0, the last 1; and where one begins."""


@pytest.fixture(scope="module")
def compiled_zoo(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A model of the zoo by its name, compiled once."""
    return cache(lambda name: abc.compile(f"zoo:{name}", out=tmp_path_factory.mktemp("of") / name))


@pytest.mark.parametrize("name", STATES)
def test_answers_are_right_and_states_are_few(name: str, compiled_zoo: Any) -> None:
    made = compiled_zoo(name)
    task = made.data.task
    assert made.states == STATES[name]
    assert reduced(made.transducer).states == made.transducer.states
    rng = np.random.default_rng(0)
    for length in (1, 2, 3, 7, 40):
        problems = task.sample(rng, 20, length, task.laws[0])
        for row in range(20):
            problem = task.write(problems, row)
            assert made.answer(problem) == task.solve(problem), problem
    assert [path.suffix for path in made.files] == [".csv", ".pdf", ".py", ".svg"]


@pytest.mark.parametrize(
    ("name", "operands", "written"),
    [
        ("addition", ["12", "345"], "357"),
        ("multiplication", ["999", "7"], "6993"),
        ("s3", ["213 231 312"], "213 321 213"),
        ("compare", ["12", "21"], "> <"),
        ("reverse-copy", ["1 2 3"], "3 2 1"),
    ],
)
def test_the_file_runs_with_numpy_alone(
    name: str, operands: list[str], written: str, compiled_zoo: Any
) -> None:
    program = next(path for path in compiled_zoo(name).files if path.suffix == ".py")
    found = subprocess.run(
        [sys.executable, "-I", program, *operands], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == written
    assert "abc_calib" not in program.read_text()


def test_every_short_source_is_written_as_by_the_rule() -> None:
    run = Run.open("zoo:addition-base2")
    made, rule = compiled(run.load_model(), run.data), run.task.rule()
    assert rule is not None
    width = 5
    letters = np.indices((2,) * 2 * width).reshape(2, width, -1).transpose(0, 2, 1)
    some = letters[:, :, -1].any(0)  # one of the two is so wide
    tapes = [(one[some], np.full(int(some.sum()), width)) for one in letters]
    (values, widths), (right, wide) = made.rows(tapes), rule.rows(tapes)[0]
    inside = np.arange(values.shape[1]) < widths[:, None]
    assert (widths == wide).all()
    assert (values == right)[inside].all()


def test_a_machine_that_differs_somewhere_is_seen() -> None:
    run = Run.open("zoo:addition-base2")
    rule = run.task.rule()
    assert rule is not None
    right = compiled(run.load_model(), run.data).transducer
    assert same(rule.first, right)
    for state, letters in ((1, (0, 1)), (2, (1, 1)), (2, (2, 2))):
        written = right.written.copy()
        written[state, *letters] ^= 1
        assert not same(rule.first, replace(right, written=written))


def lined(**options: Any) -> Any:
    data = digit_data()
    shape: Any = {"width": 12, "heads": 1, "feedforward": 16, "decoder_layers": 1, "scheme": "none"}
    model = build_model("transformer", TransformerOptions(**shape), data, 0).eval()
    own, cross = [[(Line("diag", 0, 0),)]], [[(Line("anti", 0, 0),)]]
    model.set_lines(LineBias({"self": own, "cross": cross}))  # type: ignore[dict-item]
    return model, data


def test_what_is_no_machine_of_its_task_is_refused() -> None:
    with pytest.raises(AbcError, match="it is wrong in"):
        compiled(*lined())
    model, data = lined()
    model.set_lines(None)
    with pytest.raises(AbcError, match="not restricted to lines"):
        compiled(model, data)
    with pytest.raises(AbcError, match="several rows"):
        abc.compile("zoo:division")


def test_a_folder_that_is_there_stays(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is there already"):
        abc.compile("zoo:parity", out=tmp_path)
