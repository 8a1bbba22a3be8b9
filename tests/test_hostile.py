"""Hostile invocations: refused in a line that shows what was given, or rightly accepted."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import typer
from conftest import VANILLA, Trained, run_command
from hostile import Case, cases, sampled
from warm import RIGHT, RUNS, judged, tried

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
        for run in (VANILLA, latest.strip()):
            run_command("eval", run, "--lengths", 3, "--samples", 5, "-q")
        run_command("train", "copy", "--model", "gru", "--steps", 3, "-q")
    (root / "latest").write_text(latest)
    assert all((root / name).is_dir() for name in RUNS.values())
    return root


def wrong(folder: Path, template: Path, found: list[Case]) -> list[str]:
    """What ended in another way than it may, in words."""
    told = []
    for case in found:
        ended, same = tried(case, folder, template)
        outcome = judged(case, ended, same)
        if outcome not in RIGHT:
            argv = [word[:60] for word in case.argv]
            told.append(f"{outcome}: {argv} {case.env} {ended.out[-200:]} {ended.err[-300:]}")
    return told


def test_some_are_refused_or_rightly_accepted(template, tmp_path):
    assert wrong(tmp_path / "here", template, sampled(60)) == []


@pytest.mark.slow
def test_thousands_are_refused_or_rightly_accepted(template, tmp_path):
    assert wrong(tmp_path / "here", template, cases(seed=1)[:4000]) == []


def test_every_option_is_attacked():
    attacked = {(case.command, word.partition("=")[0]) for case in cases() for word in case.words}
    group: Any = typer.main.get_command(app)
    for name, command in group.commands.items():
        for parameter in command.params:
            if parameter.param_type_name == "option":
                assert (name, parameter.opts[0]) in attacked
