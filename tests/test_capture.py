"""Capture: the attention that calibration reads is the model's own."""

from __future__ import annotations

import pytest
import torch
from conftest import digit_data

from abc_calib.calibration import capture as module
from abc_calib.calibration.capture import (
    average_attention,
    capture,
    correct_samples,
    same_shape,
)
from abc_calib.evaluation.exact import greedy_matches


@pytest.fixture
def chunks_of_three(monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 3)


@pytest.mark.parametrize("encoder_layers", [0, 2])
def test_captured_attention_is_that_of_each_sample_alone(
    model_for, chunks_of_three, encoder_layers
):
    source = digit_data("addition")
    model = model_for(source, encoder_layers=encoder_layers, decoder_layers=2)
    batch = source.training(0, 7)
    parts = list(capture(model, batch))
    assert [len(part.rows["cross"]) for part in parts] == [3, 3, 1]
    pad = source.vocabulary.pad
    for n in range(len(batch)):
        part, at = parts[n // 3], n % 3
        s, t = int((batch.source[n] != pad).sum()), int((batch.target[n] != pad).sum())
        alone = model.attention(batch.source[n : n + 1, :s], batch.target[n : n + 1, :t])
        expected = alone.weights
        for site, size in {"encoder": (s, s), "self": (t, t), "cross": (t, s)}.items():
            assert part.rows[site][at].sum() == size[0] or not expected[site]
            assert len(part.weights[site]) == len(expected[site])
            for seen, wanted in zip(part.weights[site], expected[site], strict=True):
                small = seen[at, :, : size[0], : size[1]]
                torch.testing.assert_close(small, wanted[0], rtol=1e-4, atol=1e-6)
                assert not seen[at, :, : size[0], size[1] :].any()


def test_correct_samples_are_those_that_greedy_decoding_gets_right(half_trained):
    source, model = half_trained
    batch = source.training(10**6, 200)
    right, share = correct_samples(model, batch)
    expected = greedy_matches(model, batch)
    assert 0 < len(right) < 200
    assert share == pytest.approx(len(right) / 200)
    assert torch.equal(right.source, batch.source[expected])
    assert torch.equal(right.target, batch.target[expected])
    again = source.lay_out(right.problems)
    s, t = again.source.shape[1], again.target.shape[1]
    assert torch.equal(right.source[:, :s], again.source)
    assert torch.equal(right.target[:, :t], again.target)


def test_same_shape_keeps_the_most_common_shape_without_padding():
    source = digit_data("addition")
    batch = source.training(3, 300)
    pad = source.vocabulary.pad
    kept = same_shape(batch, pad)
    assert not (kept.source == pad).any() and not (kept.target == pad).any()
    shapes = [
        (int((s != pad).sum()), int((t != pad).sum()))
        for s, t in zip(batch.source, batch.target, strict=True)
    ]
    most = max(shapes.count(shape) for shape in set(shapes))
    assert len(kept) == most
    assert shapes.count((kept.source.shape[1], kept.target.shape[1])) == most
    first = source.task.write(kept.problems, 0)
    assert source.task.solve(first) == source.task.read(
        source.vocabulary.text(kept.target[0].tolist())[::-1]
    )


def test_the_average_is_the_mean_over_samples(model_for, chunks_of_three):
    source = digit_data("successor")
    model = model_for(source, encoder_layers=1, decoder_layers=2)
    batch = same_shape(source.training(0, 40), source.vocabulary.pad)
    average = average_attention(model, batch)
    assert {site: len(layers) for site, layers in average.items()} == {
        "encoder": 1,
        "self": 2,
        "cross": 2,
    }
    for site, layers in model.attention(batch.source, batch.target).weights.items():
        expected = torch.stack([layer.mean(0) for layer in layers])
        torch.testing.assert_close(torch.from_numpy(average[site]), expected)
