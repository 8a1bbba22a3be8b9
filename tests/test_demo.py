"""The demo from end to end, on a task and lengths that take seconds."""

from __future__ import annotations

import pandas as pd
import pytest

from abc_calib.calibration import trial as check
from abc_calib.config import PRESETS
from abc_calib.errors import AbcError
from abc_calib.reproduction import demo
from abc_calib.reproduction.demo import worked_example
from abc_calib.runs import Run
from tasks import TASKS, Successor


class Short(Successor):
    """Successors, trained on no more than three digits."""

    def __init__(self, base: int | None = None):
        super().__init__(base)
        self.train_length = 3


@pytest.fixture
def tiny_preset(monkeypatch) -> None:
    """The default preset is small enough for a test, and the demo's task is short."""
    model, first, second = PRESETS["small"]
    small = {"decoder_layers": 1, "heads": 4, "width": 32, "feedforward": 64}
    quick = {"batch": 32, "learning_rate": 0.01, "validate_every": 50}
    preset = (
        model.model_copy(update=small),
        first.model_copy(update={**quick, "steps": 900}),
        second.model_copy(update={**quick, "steps": 60}),
    )
    monkeypatch.setitem(PRESETS, "small", preset)
    monkeypatch.setitem(TASKS, "successor", Short)
    monkeypatch.setattr(check, "STEPS", 40)


SERIES = ["vanilla, random", "vanilla, carry", "calibrated, random", "calibrated, carry"]


def test_the_demo_trains_calibrates_compares_and_draws(abc, tiny_preset, runs_root):
    words = ("successor", "--base", 3, "--lengths", "3,8", "--samples", 20)
    said = abc("demo", *words)
    assert said.code == 0
    for text in (*SERIES, "right training samples", "20"):
        assert text in " ".join(said.out.split())
    *_, problem, answer, files, last = said.out.splitlines()
    assert len(problem) == 40 and answer.startswith("= ")
    folder = runs_root / "successor-calibrated-seed0-1" / "demo"
    assert files == f"table, curve and heatmaps: {folder}"
    assert last == f"the page, with the model in it: {folder / 'report.html'}"
    for stage in ("1/4 training 50/900", "2/4 retraining 50/60", "3/4 evaluating", "4/4 fig"):
        assert stage in said.err
    assert "minutes in all" in said.err
    figures = [f"bias-{site}-layer0" for site in ("self", "cross")]
    drawn = [f"{name}.{kind}" for name in (*figures, "accuracy") for kind in ("pdf", "png")]
    made = {path.name for path in folder.iterdir()}
    assert made == {*drawn, "accuracy.csv", "accuracy.md", "report.html", "self.npz", "cross.npz"}
    table = pd.read_csv(folder / "accuracy.csv")
    assert table.series.drop_duplicates().tolist() == SERIES
    assert table.groupby("series").length.apply(list).tolist() == [[3, 8]] * 4
    assert (table.n == 20).all()
    report = (folder / "accuracy.md").read_text()
    assert report.startswith("Exact match (%) of successor, trained on at most 3 digits, seed 0.")
    assert f"`{problem}` gives " in report


def test_an_example_that_never_ends_is_a_wrong_one(tiny, monkeypatch):
    """After minutes of work, the rest of the report must not be lost to it."""

    def endless(*_, **__):
        raise AbcError("the model wrote no end")

    monkeypatch.setattr(demo.stages, "predict", endless)
    problem, *rest = worked_example(Run(tiny.calibrated))
    assert rest == ["no number", False] and len(problem) == 40
