"""Attention weights under the hook names of TransformerLens."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import CALIBRATED, VANILLA

import abc_calib
from abc_calib import Run, stages
from abc_calib.reporting import hooks


def test_the_weights_are_those_of_the_transformers_face(tiny, abc, tmp_path):
    from transformers import AutoModelForSeq2SeqLM

    import abc_calib.nn.hub

    said = abc("export", "patterns", VANILLA, "--input", "12009", "--out", tmp_path / "seen.npz")
    assert said.out == f"{tmp_path / 'seen.npz'}\n"
    with np.load(tmp_path / "seen.npz") as file:
        seen = dict(file)
    run = Run.open(tiny.vanilla)
    answer = abc_calib.predict(run, "12009").answer
    assert "".join(seen["output"][:-1]) == answer[::-1] and len(seen["source"]) == 7
    face = AutoModelForSeq2SeqLM.from_pretrained(run.path / "model").eval()
    symbols = list(run.data.vocabulary.symbols)
    source, written = (
        [symbols.index(token) for token in seen[name]] for name in ("source", "output")
    )
    labels = torch.tensor([written])
    found = face(torch.tensor([source]), labels=labels, output_attentions=True)
    layers = {
        "encoder.{}.attn": found.encoder_attentions or (),
        "decoder.{}.attn": found.decoder_attentions,
        "decoder.{}.cross_attn": found.cross_attentions,
    }
    expected = {
        f"{name.format(i)}.hook_pattern": weights
        for name, every in layers.items()
        for i, weights in enumerate(every)
    }
    assert set(seen) == {*expected, "source", "output"}
    for name, weights in expected.items():
        assert seen[name].dtype == np.float32
        torch.testing.assert_close(torch.from_numpy(seen[name]), weights)


def test_a_stream_has_the_source_before_the_output(runs_root):
    shape = {"decoder_layers": 2, "width": 16, "heads": 2, "feedforward": 16}
    run = stages.train("addition", model="decoder", steps=2, batch=8, progress=False, **shape)
    seen = abc_calib.patterns(run, "12+345")
    source, output = len(seen["source"]), len(seen["output"])
    assert [name for name in seen if "hook" in name] == [
        f"blocks.{i}.attn.hook_pattern" for i in range(2)
    ]
    for i in range(2):
        weights = seen[f"blocks.{i}.attn.hook_pattern"]
        assert weights.shape == (1, 2, output, source + output)
        assert weights.sum(3) == pytest.approx(1.0)
        own = weights[0, :, :, source:]
        assert np.triu(own, 1).max() == 0 < own[:, np.tri(output, dtype=bool)].min()


def test_what_patterns_cannot_be_of_is_refused(tiny, abc, runs_root, monkeypatch):
    assert "give --input, as in" in abc("export", "patterns").error(2)
    said = abc("export", "certificate", CALIBRATED, "--input", "7").error(2)
    assert "--input 7: it is of patterns" in said
    words = ("export", "patterns", VANILLA, "--input", "77")
    assert "'rpe' is not one of 'patterns', 'certificate'" in abc("export", "rpe").error(2)
    assert "goes into an .npz file" in abc(*words, "--out", "seen.json").error(2)
    assert "x" in abc("export", "patterns", VANILLA, "--input", "x").error(2)
    monkeypatch.setattr(hooks, "MOST", 5)
    assert "give a shorter source" in abc(*words).error(2)
    assert not (tiny.vanilla / "patterns.npz").exists()
    monkeypatch.undo()
