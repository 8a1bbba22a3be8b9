"""Hostile invocations: refused in a line that shows what was given, or rightly accepted."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from conftest import VANILLA, Trained, run_command
from hostile import cases, sampled
from hostile_values import Case
from warm import RIGHT, RUNS, Ended, Warm, judged

from cli.main import app


@pytest.fixture(scope="module")
def template(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs that commands are given: first, calibrated, not retrained, recurrent."""
    root = tmp_path_factory.mktemp("hostile") / "runs"
    shutil.copytree(trained.root, root)
    latest = (root / "latest").read_text()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABC_RUNS", str(root))
        run_command("calibrate", VANILLA, "--threshold", 0.3, "--no-retrain", "-q")
        run_command("train", "copy", "--model", "gru", "--steps", 3, "-q")
    (root / "latest").write_text(latest)
    assert all((root / name).is_dir() for name in RUNS.values())
    return root


@pytest.fixture(scope="module")
def warm(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    program = Warm(tmp_path_factory.mktemp("work") / "here", template)
    yield program
    program.close()


def wrong(warm: Warm, found: list[Case]) -> list[str]:
    """What ended in another way than it may, in words."""
    told = []
    for case in found:
        ended, same = warm.run(case)
        outcome = judged(case, ended, same)
        if outcome not in RIGHT:
            argv = [word[:60] for word in case.argv]
            told.append(f"{outcome}: {argv} {case.env} {ended.out[-200:]} {ended.err[-300:]}")
    return told


def test_a_few_hundred_are_refused_or_rightly_accepted(warm):
    assert wrong(warm, sampled(120)) == []


@pytest.mark.slow
def test_thousands_are_refused_or_rightly_accepted(warm):
    assert wrong(warm, cases(seed=1)[:4000]) == []


def test_every_option_is_attacked():
    attacked = {(case.command, word.partition("=")[0]) for case in cases() for word in case.words}
    group: Any = typer.main.get_command(app)
    for name, command in group.commands.items():
        for parameter in command.params:
            if parameter.param_type_name == "option":
                assert (name, parameter.opts[0]) in attacked


REFUSAL = "error: --steps x: give a whole number\n"


@pytest.mark.parametrize(
    ("ended", "same", "legal", "outcome"),
    [
        (Ended(2, "", REFUSAL, 0), True, False, "refused"),
        (Ended(0, "done\n", "", 0), True, True, "accepted rightly"),
        (Ended(0, "done\n", "", 0), True, False, "wrong acceptance"),
        (Ended(None, "", "", 0), True, False, "hang"),
        (Ended(-11, "", "", 0), True, False, "crash"),
        (Ended(1, "", "Traceback (most recent call last)\n", 0), True, False, "traceback"),
        (Ended(2, "", "error: \x1b[31m\n", 0), True, False, "interpreted"),
        (Ended(2, "", REFUSAL * 2, 0), True, False, "not one line"),
        (Ended(2, "", f"error: x {'y' * 999}\n", 0), True, False, "echo"),
        (Ended(2, "", REFUSAL, 0), False, False, "written"),
        (Ended(2, "", "error: --steps: give a whole number\n", 0), True, False, "value not shown"),
    ],
)
def test_the_judge_knows_every_outcome(ended, same, legal, outcome):
    case = Case("train", "number", ("--steps=x",), legal, "x")
    assert judged(case, ended, same) == outcome
