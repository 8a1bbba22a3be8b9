"""The attention on one source, as figures and arrays."""

from __future__ import annotations

import numpy as np
import torch
from conftest import VANILLA

from abc_calib import Run
from abc_calib.nn import hub
from abc_calib.reporting import views


def test_the_weights_are_those_of_the_transformers_face(tiny, abc, tmp_path):
    words = ("heatmap", VANILLA, "--input", "12009", "--out", tmp_path, "--format", "svg", "-q")
    assert abc(*words).code == 0
    run = Run.open(tiny.vanilla)
    face = hub.load(run.path / "model").eval()
    symbols = list(run.data.vocabulary.symbols)
    with np.load(tmp_path / "input-cross.npz") as file:
        seen = dict(file)
    source, written = (
        torch.tensor([[symbols.index(token) for token in seen[name]]])
        for name in ("key_labels", "row_labels")
    )
    found = face(source, labels=written, output_attentions=True)
    for site, weights in (("self", found.decoder_attentions), ("cross", found.cross_attentions)):
        with np.load(tmp_path / f"input-{site}.npz") as file:
            drawn = torch.from_numpy(file["attention"]).float()
        torch.testing.assert_close(drawn, torch.stack(weights)[:, 0])


def test_a_source_that_is_too_long_is_refused(tiny, abc, monkeypatch):
    monkeypatch.setattr(views, "MOST", 5)
    words = ("heatmap", VANILLA, "--input", "77")
    assert "give a shorter source" in abc(*words).error(2)
