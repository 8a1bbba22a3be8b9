"""The examples of CONTRIBUTING are executed: each is one file and one line, and works."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from abc_calib import stages
from abc_calib.calibration import pipeline, trial
from abc_calib.calibration.fits import FITS
from abc_calib.config import MODEL_OPTIONS, PRESETS
from abc_calib.data import DATA
from abc_calib.nn.build import MODELS
from abc_calib.nn.positions import SCHEMES
from abc_calib.nn.recurrent.attenders import ATTENDERS
from abc_calib.reproduction import get_target, make_report
from abc_calib.reproduction.pipeline import collect
from abc_calib.reproduction.targets import TARGETS
from abc_calib.runs import Run
from abc_calib.sweeps import Test, ensure
from abc_calib.training.recipes import RECIPES
from tasks import TASKS

TEXT = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text()
REGISTRIES: list[dict[str, Any]] = [
    TASKS, SCHEMES, ATTENDERS, FITS, TARGETS, MODEL_OPTIONS, MODELS, RECIPES, DATA
]  # fmt: skip
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
TINY = {"decoder_layers": 1, "heads": 2, "width": 16, "feedforward": 32}
QUICK = ["--steps", "3", "--batch", "8"]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Registries as they were once the test is over; a preset that trains in a blink."""
    before = [dict(registry) for registry in REGISTRIES]
    model, first, second = PRESETS["small"]
    quick = {"steps": 150, "batch": 32, "learning_rate": 0.01, "warmup": 0}
    preset = (
        model.model_copy(update=TINY),
        first.model_copy(update=quick),
        second.model_copy(update={"steps": 2}),
    )
    monkeypatch.setitem(PRESETS, "small", preset)
    yield
    for registry, known in zip(REGISTRIES, before, strict=True):
        registry.clear()
        registry.update(known)


def blocks(section: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", SECTIONS[section], re.DOTALL)


def added(section: str) -> dict[str, Any]:
    """What the first block of a section defines, once it has been executed."""
    scope: dict[str, Any] = {"__name__": "example"}
    exec(compile(blocks(section, "python")[0], f"<{section}>", "exec", dont_inherit=True), scope)
    return scope


def command(section: str) -> list[str]:
    """The words of the one command of a section, without ``abc``."""
    (line,) = blocks(section, "sh")
    name, *words = shlex.split(line)
    assert name == "abc"
    return words


def test_every_addition_has_an_example_of_one_line():
    for name, text in SECTIONS.items():
        if name in ("Where things are", "Habits"):
            continue
        code = blocks(name, "python")[0]
        lines = re.findall(r'^[A-Z_]+\["\w+"\] = .+$', code, re.MULTILINE)
        assert code.endswith(lines[-1] + "\n"), name
        assert len(lines) == {"A kind of model": 3, "A notation": 2}.get(name, 1), name
        assert "dictionary" in text or "line in" in text or "`DATA`" in text


def test_a_task(abc: Callable[..., Any]):
    added("A task")
    assert abc(*command("A task"), *QUICK).code == 0
    run = Run.open()
    assert run.config.task == "doubling"
    assert run.task.solve("26") == "52"
    assert run.task.rule().first.tapes == (0,)
    assert len(stages.evaluate(run, [3], samples=4)) == 1


def test_a_position_scheme(abc: Callable[..., Any]):
    added("A position scheme")
    assert abc(*command("A position scheme"), *QUICK).code == 0
    model = Run.open().load_model()
    assert any(name.endswith("strength") for name in model.state_dict())
    assert len(stages.evaluate(None, [3], samples=4)) == 1


def test_an_attender(abc: Callable[..., Any]):
    added("An attender")
    small = ["--steps", 3, "--batch", 4, "--width", 8, "--d-head", 8]
    assert abc(*command("An attender"), *small).code == 0
    run = Run.open()
    model, batch = run.load_model(), run.data.training(0, 5)
    weights = model.decode(batch.source, 3, attention=True).attention
    assert weights is not None
    assert torch.allclose(weights.sum(-1), torch.ones(weights.shape[:2]))
    assert not weights[batch.source.eq(model.pad)[:, None].expand_as(weights)].any()


def test_a_fit(abc: Callable[..., Any], monkeypatch: pytest.MonkeyPatch):
    added("A fit")
    monkeypatch.setattr(trial, "STEPS", 2)
    monkeypatch.setattr(pipeline, "THROUGHOUT", 0.0)
    stages.train("successor", base=3, length=3)
    assert "unknown fit 'louder'" in abc("calibrate", "--fit", "louder").error(2)
    assert abc(*command("A fit"), "--samples", 128).code == 0
    run = Run.open()
    assert run.config.stage == "calibrated" and run.config.calibration is not None
    assert run.config.calibration.fit == "loudest"
    heads = [head for layer in run.bias().sites["cross"] for head in layer]
    assert len(heads) == 2 and all(len(head) == 1 for head in heads)
    assert run.load_model().lines == run.bias()


def test_a_target(tmp_path: Path):
    """Its jobs are done in this process, as a worker does them in its own."""
    added("A target of abc reproduce")
    assert command("A target of abc reproduce")[:2] == ["reproduce", "heads"]
    target = get_target("heads")
    assert [entry.row for entry in target.entries()] == ["one", "eight"] * 3
    done = []
    for entry in target.entries(seeds=1):
        quick = {"options": {**entry.job.options, "steps": 2}, "tests": (Test(length=6, n=5),)}
        job = entry.job.model_copy(update=quick)
        ensure(job, tmp_path)
        done.append(entry._replace(job=job))
    report = make_report(target, collect(done, tmp_path), 1)
    assert "| 1 head |" in report.markdown and len(report.records) == 2


def test_a_kind_of_model():
    added("A kind of model")
    _, used = blocks("A kind of model", "python")
    scope: dict[str, Any] = {}
    exec(used.replace("width=24", "width=24, steps=3"), scope)
    assert scope["run"].config.kind == "strip" and scope["run"].config.model.width == 24
    assert scope["table"]["n"].tolist() == [100]


def test_a_notation(abc: Callable[..., Any]):
    added("A notation")
    assert abc(*command("A notation"), *QUICK).code == 0
    assert Run.open().config.task == "caesar"
    assert abc("eval", "--lengths", 5, "--samples", 3, "--json").json()["rows"][0]["n"] == 3
    assert "no word of caesar" in abc("predict", "xyz").error(2)
