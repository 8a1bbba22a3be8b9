"""Damaged runs: whatever happens to a file, it is refused by name or does no harm."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import CALIBRATED, VANILLA, change_json, vouch
from damage import Stage, damage
from killed import KINDS
from warm import forked

from abc_calib import stages
from abc_calib.errors import Interrupted
from abc_calib.runs import folders

READERS = (
    ("predict", "12", "--run", "RUN"),
    ("eval", "RUN", "--lengths", 3, "--samples", 2, "-q"),
    ("heatmap", "RUN", "--sites", "cross", "--format", "svg", "-q"),
    ("certify", "RUN", "--minutes", 1, "-q"),
    ("stress", "RUN", "--lengths", 3, "--samples", 2, "--search", 5, "-q"),
    ("retrain", "RUN", "-q"),
)
"""Commands that open a finished run; the last one refuses it whole."""
QUICK: dict[str, Any] = {"steps": 12, "validate_every": 4, "batch": 8, "device": "cpu"}
SHAPE: dict[str, Any] = {"width": 8, "heads": 2, "feedforward": 16, "decoder_layers": 1}


def make_stages(root: Path, finished: Path) -> dict[str, Stage]:
    """Runs in every state; ``finished``: trained ones, of which copies are taken."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABC_RUNS", str(root))
        whole = copy(finished, root / "finished")
        stages.evaluate(whole / CALIBRATED, [1, 2, 3], samples=5)
        begun = root / "begun"
        for name, seed in (("unbroken", 0), ("run", 0), ("other", 1)):
            on_step = (lambda _: None) if name == "unbroken" else interrupt
            try:
                out = begun / name
                stages.train(
                    "successor", out=out, seed=seed, on_step=on_step, length=4, **QUICK, **SHAPE
                )
            except Interrupted:
                pass
        lines = copy(finished, root / "lines")
        how: dict[str, Any] = {"retrain": False, "threshold": 0.3, **QUICK}
        for name, seed in (("run", 0), ("other", 1), ("unbroken", 0)):
            stages.calibrate(lines / VANILLA, out=lines / name, seed=seed, **how)
        stages.retrain(lines / "unbroken")

    def stage(name: str, run: str, other: str, *words: tuple, of: str = "") -> Stage:
        weights = (root / name / of / "model/model.safetensors").read_bytes() if of else b""
        return Stage(name, root / name, run, other, words, weights)

    return {
        "finished": stage("finished", CALIBRATED, VANILLA, *READERS[:-1]),
        "begun": stage("begun", "run", "other", ("train", "--resume", "RUN", "-q"), of="unbroken"),
        "lines": stage("lines", "run", "other", ("retrain", "RUN", "-q"), of="unbroken"),
    }


def copy(finished: Path, root: Path) -> Path:
    """Trained runs in a folder of their own, the one made from the other."""
    shutil.copytree(finished, root)
    change_json(root / CALIBRATED / "config.json", parent=str(root / VANILLA))
    vouch(root / CALIBRATED)
    return root


def interrupt(progress) -> None:
    if progress.step == 6:
        raise KeyboardInterrupt


@pytest.fixture(scope="session")
def damaged(trained, tmp_path_factory) -> dict[str, Stage]:
    return make_stages(tmp_path_factory.mktemp("damaged"), trained.root)


def broken(stage: Stage, tmp_path: Path, part: float, seeds: int) -> list[tuple]:
    """The cases, of a share of all, that end otherwise than they may."""
    cases = stage.cases(seeds)
    cases = random.Random(stage.name).sample(cases, max(25, int(part * len(cases))))
    ends = [(case, *stage.judge(case, i, tmp_path / str(i))) for i, case in enumerate(cases)]
    return [end for end in ends if end[2] not in ("refused", "harmless")]


@pytest.mark.parametrize(
    "part, seeds", [(0.15, 1), pytest.param(1.0, 12, marks=pytest.mark.slow, id="thousands")]
)
@pytest.mark.parametrize("name", ["finished", "begun", "lines"])
def test_damage_is_refused_by_name_or_does_no_harm(damaged, tmp_path, name, part, seeds):
    assert broken(damaged[name], tmp_path, part, seeds) == []


def test_the_unbroken_runs_pass(damaged, tmp_path):
    for stage in damaged.values():
        shutil.copytree(stage.root, tmp_path / stage.name)
        run = tmp_path / stage.name / stage.run
        for words in stage.words:
            ending = forked([run if w == "RUN" else w for w in words], run.parent)
            assert ending.word == "done", ending


def test_the_list_shows_every_run_whatever_is_broken(damaged, tmp_path):
    """One folder for each damage, beside one that is whole."""
    stage = damaged["finished"]
    root = tmp_path / "runs"
    root.mkdir()
    shutil.copytree(stage.root / VANILLA, root / "whole")
    cases = [case for case in stage.cases() if "/" not in case.file]
    for i, case in enumerate(cases):
        shutil.copytree(stage.root / stage.run, root / f"run{i}")
        case.apply(root / f"run{i}", stage.root / stage.other)
    (root / "pipe").mkdir()
    os.mkfifo(root / "pipe" / "config.json")
    (root / "loop").symlink_to("loop")
    ending = forked(["runs", "--json"], root)
    assert ending.word == "done", ending
    listed = {path.name for path in root.iterdir()} - {"loop"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABC_RUNS", str(root))
        assert {path.name for path in folders.by_age()} == listed


@pytest.mark.parametrize("how", ["a pipe", "a link to /dev/zero", "a folder", "not UTF-8",
                                 "sparse 100 GB", "a link to itself", "zeros"])  # fmt: skip
def test_a_damaged_name_of_the_latest_run_is_refused(damaged, tmp_path, how):
    shutil.copytree(damaged["finished"].root, tmp_path / "runs")
    damage(tmp_path / "runs" / "latest", how, random.Random(0))
    assert forked(["predict", "12"], tmp_path / "runs").word == "refused"


# Killed at any moment


@pytest.mark.parametrize(
    ("name", "number"), [("train", 1), pytest.param("sweep", 4, marks=pytest.mark.slow)]
)
def test_a_killed_command_ends_as_if_it_had_not_been(trained, tmp_path, name, number):
    """At a random moment of its work: the first by SIGTERM, the others by SIGKILL."""
    one = KINDS[name](trained.root, tmp_path).kill(number)
    assert one.fine, one


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_many_kills(trained, tmp_path, name):
    kind = KINDS[name](trained.root, tmp_path)
    assert [one for one in map(kind.kill, range(12)) if not one.fine] == []
