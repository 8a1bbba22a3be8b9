"""The examples of CONTRIBUTING, on the page or in a linked file, are executed and work.

Its kind of model and its notation go through training, evaluation, prediction and calibration, so
that whatever asks for a kind elsewhere fails here.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import quicker

from abc_calib import stages
from abc_calib.calibration import trial
from abc_calib.calibration.fits import FITS
from abc_calib.config import MODEL_OPTIONS
from abc_calib.data import DATA
from abc_calib.errors import UsageError
from abc_calib.nn.build import MODELS
from abc_calib.nn.positions import SCHEMES
from abc_calib.nn.recurrent.attenders import ATTENDERS
from abc_calib.reproduction import get_target, make_report
from abc_calib.reproduction.pipeline import collect
from abc_calib.reproduction.targets import TARGETS
from abc_calib.runs import Run, folders
from abc_calib.sweeps import Test, ensure
from abc_calib.training.recipes import RECIPES
from tasks import TASKS

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
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
    quick = {"steps": 150, "batch": 32, "learning_rate": 0.01, "warmup": 0}
    quicker(monkeypatch, TINY, quick, {"steps": 2})
    yield
    for registry, known in zip(REGISTRIES, before, strict=True):
        registry.clear()
        registry.update(known)


def blocks(section: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", SECTIONS[section], re.DOTALL)


def added(section: str) -> dict[str, Any]:
    """What a section's linked example, or else its first block, defines once executed."""
    files = re.findall(r"\]\((docs/examples/\w+\.py)\)", SECTIONS[section])
    code = (ROOT / files[0]).read_text() if files else blocks(section, "python")[0]
    scope: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, f"<{section}>", "exec", dont_inherit=True), scope)
    return scope


def test_every_example_file_is_linked_and_ends_with_its_line_in_a_registry():
    there = {f"docs/examples/{file.name}" for file in (ROOT / "docs" / "examples").glob("*.py")}
    assert there == set(re.findall(r"docs/examples/\w+\.py", TEXT))
    for name in there:
        assert re.search(r"\n[A-Z]+\[\"\w+\"\] = \w+\n\Z", (ROOT / name).read_text()), name


def command(section: str) -> list[str]:
    """The words of the one command of a section, without ``abc``."""
    (line,) = blocks(section, "sh")
    name, *words = shlex.split(line)
    assert name == "abc"
    return words


def test_a_task(abc: Callable[..., Any]):
    added("A task")
    assert abc(*command("A task"), *QUICK).code == 0
    run = Run.open()
    assert run.config.task == "doubling" and run.task.solve("26") == "52"
    assert run.task.rule().first.tapes == (0,)
    assert len(stages.evaluate(run, [3], samples=4)) == 1


def test_a_position_scheme(abc: Callable[..., Any], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
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


def test_a_fit(abc: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, untrained):
    added("A fit")
    monkeypatch.setattr(trial, "STEPS", 2)
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


# A kind of model and a notation


@pytest.fixture
def strip() -> None:
    """The kind of model and the notation of the page, registered."""
    added("A kind of model")
    added("A notation")


LENGTHS: dict[str, tuple[int, str, dict[str, Any]]] = {
    "caesar": (4, "gru", {"embedding": 6, "d_head": 8, "value": 8}),
    "addition": (3, "strip", {}),
    "copy": (10, "decoder", {"heads": 2, "feedforward": 8, "decoder_layers": 2}),
}
"""Training lengths, and a kind of model."""


@pytest.mark.parametrize("task", LENGTHS)
def test_a_run_is_trained_opened_and_evaluated(abc, strip, task):
    length, kind, shape = LENGTHS[task]
    run = stages.train(task, length=length, steps=3, batch=8, model=kind, width=8, **shape)
    assert run.result is not None and run.result["steps"] == 3
    again = Run.open(run.path)
    assert again.config == run.config and again.config.kind == kind
    assert type(again.config.model) is MODEL_OPTIONS[kind]
    assert type(again.data) is DATA[TASKS[task].notation]
    assert folders.by_age() == [run.path]

    model, other = run.load_model(), again.load_model()
    assert type(model) is MODELS[kind]
    batch = again.data.test(length, 7)
    assert torch.equal(model(batch.source, batch.target), other(batch.source, batch.target))
    described = json.loads((run.path / "model" / "config.json").read_text())
    assert described["model_type"] == MODELS[kind].hub_names[0]

    rows = stages.evaluate(again, [length, length + 1], samples=5)
    assert rows["length"].tolist() == [length, length + 1] and (rows["n"] == 5).all()
    words = ("--lengths", f"{length},{length + 1}", "--samples", 5, "--json")
    said = abc("eval", run.path, *words).json()
    columns = ["length", "set", "n", "accuracy", "test_hash"]
    assert [[row[c] for c in columns] for row in said["rows"]] == rows[columns].values.tolist()
    greedy = stages.evaluate(again, [length], samples=5, greedy=True)
    assert greedy["accuracy"].tolist() == rows["accuracy"].tolist()[:1]


def test_what_was_learnt_is_predicted(abc, strip):
    """Beyond the training length too: the model looks at one letter at a time."""
    (used,) = blocks("A kind of model", "python")
    scope: dict[str, Any] = {}
    exec(used.replace("width=24", "width=24, steps=3"), scope)
    assert scope["run"].config.kind == "strip" and scope["run"].config.model.width == 24
    assert scope["table"]["n"].tolist() == [100]

    assert command("A notation") == ["train", "caesar"]
    run = stages.train("caesar", model="strip")
    assert run.result is not None and run.result["validation_accuracy"] == 100
    assert stages.predict(run, "abcdefg").answer == "bcdefga"
    found = stages.predict(run, "gag")
    assert found.correct and found.output == ["a", "b", "a", "&"]
    assert run.data.layout_at(3).labels()[1:-1] == ["0", "1", "2"]
    rows = abc("eval", "--lengths", 20, "--json").json()["rows"]
    assert [(row["n"], row["accuracy"]) for row in rows] == [(20, 100.0)]
    assert "is not a word of caesar" in abc("predict", "xyz").error(2)


def test_a_transformer_on_the_notation_is_calibrated(strip):
    """Lines are counted in the layout of its data."""
    run = stages.train("caesar")
    made = stages.calibrate(run, force=True, samples=32, threshold=0.05, steps=2, batch=5)
    assert made.load_model().lines == made.bias()
    assert "cross" in made.bias().sites
    assert len(stages.evaluate(made, [4], samples=3)) == 1


def test_what_a_model_or_a_notation_cannot_is_said_in_one_line(abc, strip, runs_root):
    for options, message in (
        ({"model": "strip", "heads": 2}, "heads = 2: an option of transformer and decoder, not of"),
        ({"model": "strip", "width": 0}, "width = 0: give a whole number"),
        ({"attention_window": 1, **TINY}, "attention_window = 1: .*caesar"),
    ):
        with pytest.raises(UsageError, match=message):
            stages.train("caesar", **options)
    assert not runs_root.exists()
    run = stages.train("caesar", model="strip", steps=1)
    with pytest.raises(UsageError, match="it has no attention at all"):
        stages.calibrate(run, force=True)
    with pytest.raises(UsageError, match="has no lines"):
        run.lines()
    batch = run.data.training(0, 3)
    with pytest.raises(UsageError, match="no attention heads: it has no attention at all"):
        run.load_model().attention(batch.source, batch.target)
    assert "caesar" in abc("stress", run.path).error(2)
    assert abc("certify", run.path).error(2)
