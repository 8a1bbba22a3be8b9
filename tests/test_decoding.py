"""The cache of decoding token by token: the same answers."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest
import torch
from conftest import digit_data
from torch import Tensor

from abc_calib.data import Batch, DigitData
from abc_calib.evaluation.exact import exact_matches
from abc_calib.geometry import Line, LineBias
from abc_calib.nn.transformer import model as transformer
from abc_calib.nn.transformer.cache import Cache
from abc_calib.nn.transformer.model import Transformer


@pytest.fixture
def data() -> DigitData:
    return digit_data("addition")


def short_lines(seed: int, layers: int, heads: int, most: int = 1) -> LineBias:
    """Segment lines near the row's own, up to ``most`` a head."""
    rng = random.Random(seed)

    def own() -> Line:
        if rng.random() < 0.7:
            return Line("diag", 0, rng.choice([0, -1, -2]))
        return Line("vert", 0, rng.choice([0, 1]))

    def crossed() -> Line:
        direction: Any = rng.choice(["anti", "vert", "diag"])
        return Line(direction, rng.randint(0, 2), rng.randint(0, 1), rng.choice([0.0, -0.5]))

    def layer(line):
        return tuple(tuple(line() for _ in range(rng.randint(1, most))) for _ in range(heads))

    own_lines, source_lines = (tuple(layer(line) for _ in range(layers)) for line in (own, crossed))
    return LineBias({"self": own_lines, "cross": source_lines})


@pytest.fixture
def small(data, model_for) -> Any:
    """A small model of the data without positions."""
    return partial(model_for, data, decoder_layers=2, feedforward=20, scheme="none")


@torch.inference_mode()
def stepwise(model: Transformer, source: Tensor, steps: int) -> tuple[Tensor, Cache]:
    """Logits of each greedy step with a cache, ``(b, t, v)``, and the cache."""
    encoded, cache = model.encode(source), Cache()
    read, logits = torch.full((len(source), 1), model.sos), []
    for _ in range(steps):
        logits.append(model.run(encoded, read, cache).logits)
        read = logits[-1].argmax(-1)
    return torch.cat(logits, 1), cache


@torch.inference_mode()
def in_one_pass(model: Transformer, source: Tensor, written: Tensor) -> Tensor:
    """The logits of what was written, by dense attention."""
    model.set_path("dense")
    logits = model(source, written)
    model.set_path("auto")
    return logits


@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("seed", range(2))
def test_cached_steps_equal_one_pass(data, small, seed, most):
    model = small(seed=seed, heads=4)
    model.set_lines(short_lines(seed, 2, 4, most))
    batch = data.test(9, 3)
    steps = 70  # beyond the length from which lines are gathered
    logits, cache = stepwise(model, batch.source, steps)
    once = in_one_pass(model, batch.source, logits.argmax(-1))
    torch.testing.assert_close(logits, once, atol=1e-4, rtol=1e-4)
    assert len(cache.output) == 2 and cache.size == steps


def test_a_long_output_is_scored_in_parts(data, small, monkeypatch):
    """With any size of the parts the same, for a right row and for one wrong near its end."""
    model = small(seed=1)
    model.set_lines(short_lines(1, 2, 2, 2))
    batch = data.test(50, 6)
    steps = batch.target.shape[1]
    target = model.decode(batch.source, steps).ids.clone()
    target[1, -2] = (target[1, -2] + 1) % 10
    batch = Batch(batch.source, target, batch.problems)
    expected = [True, False, True, True, True, True]
    for size in (7, 20, steps - 1, steps):
        monkeypatch.setattr(transformer, "ROWS_AT_ONCE", size)
        assert exact_matches(model, batch).tolist() == expected, size
