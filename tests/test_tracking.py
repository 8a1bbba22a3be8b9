"""Trackers: they are given what a run's own files hold, and a run is the same without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_training import interrupt_at

import abc_calib
from abc_calib.errors import Interrupted, UsageError
from abc_calib.runs import Run

QUICK: dict[str, Any] = {
    **{"steps": 6, "batch": 4, "width": 8, "heads": 2, "feedforward": 8, "decoder_layers": 1},
    **{"encoder_layers": 0, "length": 3, "validate_every": 2, "stop_early": False},
}


class Heard:
    """A tracker of a user's own, which keeps what it is given."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        for name in ("start", "scalars", "close"):
            setattr(self, name, lambda *given, name=name: self.calls.append((name, *given)))

    def rows(self) -> list[dict[str, Any]]:
        return [{"step": call[1], **call[2]} for call in self.calls if call[0] == "scalars"]


def test_an_object_of_ones_own_gets_the_rows_of_the_history(runs_root):
    """The run is the same without it; one that goes on sends its whole history again."""
    heard, again = Heard(), Heard()
    run = abc_calib.train("successor", track=heard, out=runs_root / "one", **QUICK)
    assert heard.rows() == run.history() and len(run.history()) == 3
    assert [heard.calls[0], heard.calls[-1]] == [
        ("start", "one", run.path, run.config.model_dump(mode="json")),
        ("close",),
    ]
    other = Heard()
    with pytest.raises(Interrupted):
        out = runs_root / "other"
        abc_calib.train("successor", track=other, on_step=interrupt_at(5), out=out, **QUICK)
    assert [row["step"] for row in other.rows()] == [2, 4] and other.calls[-1] == ("close",)
    resumed = abc_calib.resume(track=again)
    assert again.rows() == resumed.history()
    assert [row["step"] for row in again.rows()] == [2, 4, 6]

    plain = abc_calib.train("successor", out=runs_root / "plain", **QUICK)
    for name in ("config.json", "model/model.safetensors"):
        assert (run.path / name).read_bytes() == (plain.path / name).read_bytes()


def test_tensorboard_files_hold_the_history(tiny, abc):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    words = ("calibrate", tiny.vanilla, "--threshold", 0.3, "--track", "tensorboard")
    said = abc(*words, "--steps", 4, "--validate-every", 2, "--batch", 4)
    assert said.code == 0, said
    run = Run.open()
    found = events.EventAccumulator(str(run.path / "tensorboard"))
    found.Reload()
    for name in ("loss", "validation_accuracy", "seconds"):
        scalars = [(event.step, event.value) for event in found.Scalars(name)]
        assert scalars == [(row["step"], pytest.approx(row[name])) for row in run.history()]


def test_a_tracker_that_is_not_there_is_refused_before_anything_is_made(abc, runs_root, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("abc_calib.tracking.find_spec", lambda name: None)
        with pytest.raises(UsageError, match=r'not installed; pip install "abc-calib\[tensorboard'):
            abc_calib.train("successor", track="tensorboard")
    assert "--track wandb: " in abc("train", "successor", "--track", "wandb").error(2)
    half: Any = object()
    for wrong in ("mlflow", 3, half, Heard):
        with pytest.raises(UsageError, match="start, scalars, close"):
            abc_calib.train("successor", track=wrong)
    assert not Path(runs_root).exists()
