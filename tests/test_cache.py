"""The windowed cache: bounded, and the same answers."""

from __future__ import annotations

import pytest
import torch
from conftest import digit_data
from transformers import EncoderDecoderCache
from transformers.cache_utils import DynamicCache

from abc_calib.config import TransformerOptions
from abc_calib.data import Batch, DigitData
from abc_calib.evaluation import exact as evaluation
from abc_calib.geometry import Line, LineBias
from abc_calib.nn.build import build_model
from abc_calib.nn.transformer.cache import Window, WindowLayer, left_out
from abc_calib.nn.window import window_bias
from tests.test_certification import random_lines


@pytest.fixture
def source() -> DigitData:
    return digit_data("addition", format="free", seed=0, sampling="mixed", length=6)


def decoded_stepwise(model, source_ids, steps: int):
    """Logits of each step with a cache, ``(b, t, v)``, and the cache."""
    encoded = model.encoder(source_ids)
    read = torch.full((len(source_ids), 1), model.sos)
    cache, logits = None, []
    for _ in range(steps):
        out = model(
            encoder_outputs=encoded, decoder_input_ids=read, past_key_values=cache, use_cache=True
        )
        cache = out.past_key_values
        logits.append(out.logits)
        read = out.logits.argmax(-1)
    return torch.cat(logits, 1), cache


@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_cached_steps_equal_one_pass(source, seed, most):
    options = TransformerOptions(width=16, heads=4, feedforward=20, decoder_layers=3, scheme="none")
    model = build_model("transformer", options, source, seed).eval()
    model.set_lines(random_lines(seed, 3, 4, 2, most))
    batch = source.test(9, 5)
    steps = 90  # beyond the length from which lines are gathered
    with torch.inference_mode():
        stepwise, cache = decoded_stepwise(model, batch.source, steps)
        model.set_path("dense")
        read = torch.cat([torch.full((5, 1), model.sos), stepwise.argmax(-1)[:, :-1]], 1)
        once = model(batch.source, decoder_input_ids=read).logits
    torch.testing.assert_close(stepwise, once, atol=1e-4, rtol=1e-4)
    assert model.window is None  # dense attention reads every row
    model.set_path("auto")
    kept = model.window
    assert kept.recent <= 2 and kept.pinned <= 2
    for layer in cache.self_attention_cache.layers:
        assert isinstance(layer, WindowLayer)
        assert layer.keys.shape[2] == kept.pinned + kept.recent
        assert layer.get_seq_length() == steps
    assert left_out(cache) == (kept.pinned, steps - kept.pinned - kept.recent)


def test_windows_of_the_scaffolding_use_it_too():
    source = digit_data("addition", format="aligned", seed=0, sampling="mixed", length=6)
    options = TransformerOptions(width=16, heads=2, feedforward=20, cyclic=3, window=2)
    model = build_model("transformer", options, source, 0).eval()
    model.set_lines(window_bias(options, source))
    assert model.window == Window(1, 2)
    batch = source.test(12, 3)
    with torch.inference_mode():
        stepwise, cache = decoded_stepwise(model, batch.source, 20)
        model.set_path("dense")
        read = torch.cat([torch.full((3, 1), model.sos), stepwise.argmax(-1)[:, :-1]], 1)
        once = model(batch.source, decoder_input_ids=read).logits
    torch.testing.assert_close(stepwise, once, atol=1e-4, rtol=1e-4)
    assert cache.self_attention_cache.layers[0].keys.shape[2] == 3


def test_heads_that_may_read_any_row_keep_them_all(source):
    options = TransformerOptions(width=16, heads=2, feedforward=20, decoder_layers=1, scheme="none")
    model = build_model("transformer", options, source, 0).eval()
    lines = random_lines(0, 1, 2, 2).sites
    for own in (((), (Line("diag", 0, 0),)), ((Line("diag", -1, 0),), (Line("diag", 0, 0),)),
                ((Line("anti", 0, 0),), (Line("diag", 0, 0),))):  # fmt: skip
        model.set_lines(LineBias({**lines, "self": (own,)}))
        assert model.window is None
    model.set_lines(None)
    assert model.window is None
    with torch.inference_mode():
        _, cache = decoded_stepwise(model, source.test(3, 2).source, 7)
    assert isinstance(cache.self_attention_cache, DynamicCache) and left_out(cache) == (0, 0)
    assert cache.self_attention_cache.layers[0].keys.shape[2] == 7


def test_generate_uses_the_window_and_may_be_given_a_cache(source):
    options = TransformerOptions(width=16, heads=2, feedforward=20, decoder_layers=2, scheme="none")
    model = build_model("transformer", options, source, 1).eval()
    model.set_lines(random_lines(1, 2, 2, 2))
    ids = source.test(8, 4).source
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    plain = model.decode(ids, 30)
    given = model.generate(ids, max_new_tokens=30, do_sample=False, past_key_values=cache)[:, 1:]
    assert torch.equal(given, plain[:, : given.shape[1]])
    assert isinstance(cache.self_attention_cache.layers[0], WindowLayer)
    model.set_path("dense")
    assert torch.equal(model.decode(ids, 30), plain)
    model.set_path("auto")
    beams = model.generate(ids, max_new_tokens=12, num_beams=3, do_sample=False)
    model.set_path("dense")
    assert torch.equal(beams, model.generate(ids, max_new_tokens=12, num_beams=3, do_sample=False))


def test_a_long_output_is_scored_in_parts(source, monkeypatch):
    """With any size of the parts the same, for a right row and for one wrong near its end."""
    options = TransformerOptions(width=16, heads=2, feedforward=20, decoder_layers=2, scheme="none")
    model = build_model("transformer", options, source, 1).eval()
    model.set_lines(random_lines(1, 2, 2, 2, 2))
    batch = source.test(50, 6)
    steps = batch.target.shape[1]
    target = model.decode(batch.source, steps).clone()
    target[1, -2] = (target[1, -2] + 1) % 10
    batch = Batch(batch.source, target, batch.problems)
    expected = [True, False, True, True, True, True]
    for size in (7, 20, steps - 1, steps):
        monkeypatch.setattr(evaluation, "ROWS_AT_ONCE", size)
        assert evaluation.exact_matches(model, batch).tolist() == expected, size
