"""Decoding in passes writes what decoding token by token writes, and never costs much more."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import TOKENS, additions, digit_data
from hypothesis import given, settings
from hypothesis import strategies as st
from test_transformer import CASES
from torch import Tensor

from abc_calib.config import TransformerOptions
from abc_calib.geometry import Line, LineBias
from abc_calib.nn.transformer import decoding
from abc_calib.nn.transformer.cache import Cache
from abc_calib.nn.transformer.decoding import Budget, in_passes, token_by_token
from abc_calib.nn.transformer.model import Transformer
from abc_calib.runs import Run


def both(model: Transformer, source: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """What each way writes."""
    with torch.inference_mode():
        exact = model.exact()
        encoded = exact.encode(source)
        ways = (token_by_token, in_passes)
        one, other = (way(exact, encoded, steps, Cache(model.kept_rows)) for way in ways)
    return one, other


@pytest.fixture
def passes(monkeypatch) -> list[tuple[int, int]]:
    """Rows of each pass, and how many of them it fixed."""
    counted: list[tuple[int, int]] = []
    settle = Budget.settle

    def noted(self: Budget, fixed: int, rows: int) -> None:
        counted.append((rows, fixed))
        settle(self, fixed, rows)

    monkeypatch.setattr(Budget, "settle", noted)
    return counted


def spent(budget: Budget, passes: list[tuple[int, int]]) -> int:
    return sum(budget.overhead + budget.samples * rows for rows, _ in passes)


@pytest.mark.parametrize(("shape", "biased"), CASES)
def test_both_ways_write_the_same(build, passes, shape, biased):
    """Random weights, positions of every scheme, on lines and dense, alone and in a batch."""
    model = build(shape, biased)
    for source in (additions()[:3], additions()[:1]):
        one, other = both(model, source, 24)
        assert torch.equal(one, other)
        assert torch.equal(model.decode(source, 24).ids, one)
    assert max(rows for rows, _ in passes) >= decoding.FEWEST


def on_lines(model: Transformer) -> Transformer:
    """Each head on one line: the row's own token, and a digit of the first operand."""
    here, digit = Line("diag", 0, 0), Line("anti", 1, 0)
    layers, heads = model.options.decoder_layers, model.options.heads
    every: Any = {"self": (((here,),) * heads,) * layers, "cross": (((digit,),) * heads,) * layers}
    model.set_lines(LineBias(every))
    return model


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(0, 3), st.integers(0, 60))
@settings(max_examples=12)
def test_any_sizes_of_passes_write_the_same(sizes, seed, steps):
    """What a pass may have is a matter of speed alone."""
    model = narrow(seed)
    source = digit_data().test(11, 1 + seed % 2, seed=seed).source

    class Given(Budget):
        def rows(self) -> int:
            return sizes.pop() if sizes else 3

    with pytest.MonkeyPatch.context() as patch, torch.inference_mode():
        patch.setattr(decoding, "Budget", Given)
        one, other = both(model, source, steps)
    assert torch.equal(one, other)


def narrow(seed: int) -> Transformer:
    """Random weights on lines as a calibrated model has them: a row back, and a sink."""
    torch.manual_seed(seed)
    options = TransformerOptions(decoder_layers=2, heads=2, width=20, feedforward=23, scheme="none")
    model = Transformer(options, TOKENS).eval()
    own = ((Line("diag", 0, -1),), (Line("vert", 0, 0),))
    crossed = ((Line("anti", 1, 0),), (Line("anti", 2, -1),))
    model.set_lines(LineBias({"self": (own, own), "cross": (crossed, crossed)}))
    return model


def test_a_calibrated_model_answers_alike_in_few_passes(tiny, passes):
    run = Run.open(tiny.calibrated)
    model, data = run.load_model(), run.data
    for kind in ("random", "hard", "carry"):
        for length in (1, 40, 200):
            batch = data.test(length, 1, kind, 1)
            one, other = both(model, batch.source, batch.target.shape[1])
            assert torch.equal(one, other) and torch.equal(one, batch.target)
    passes.clear()
    batch = data.test(300, 1, "random", 2)
    model.decode(batch.source, batch.target.shape[1])
    assert len(passes) < 60


def chained(following: dict[int, int]) -> Transformer:
    """A model that writes a token for the one before and sees nothing else."""
    size = TOKENS.size
    wide = 2000  # as many weights as a layer of the small preset
    options = TransformerOptions(
        decoder_layers=1, heads=1, width=size, feedforward=wide, scheme="none"
    )
    model = Transformer(options, TOKENS).eval()
    with torch.no_grad():
        layers: Any = model.layers
        for layer in layers:
            parts = (layer.self_attention, layer.cross_attention)
            for last in (*(part.output for part in parts), layer.feedforward[-1]):
                last.weight.zero_()
                last.bias.zero_()
        model.embed.weight.copy_(torch.eye(size))
        model.head.weight.zero_()
        for before, after in following.items():
            model.head.weight[after, before] = 1
    return on_lines(model)


CIRCLE = {12: 0, **{digit: (digit + 1) % 10 for digit in range(10)}}
"""Each digit is one more than the one before: none is right before all before it are."""


@pytest.mark.parametrize("samples", [1, 3])
def test_where_every_row_waits_for_the_one_before_passes_cost_little_more(passes, samples):
    model, steps = chained(CIRCLE), 200
    source = digit_data().test(9, samples).source
    one, other = both(model, source, steps)
    assert torch.equal(one, other)
    assert other[0].tolist() == [row % 10 for row in range(steps)]
    assert len(passes) > 0.9 * steps
    assert max(rows for rows, _ in passes) >= decoding.FEWEST  # it goes on trying
    budget = Budget(model, samples)
    single = steps * (budget.overhead + samples)
    assert spent(budget, passes) <= decoding.SLOWEST * single + budget.overhead


def test_a_chain_that_repeats_itself_takes_few_passes(passes):
    """As a carry does that runs through all digits."""
    model, steps = chained({12: 9, 9: 9}), 1000
    source = digit_data().test(9, 1).source
    one, other = both(model, source, steps)
    assert torch.equal(one, other) and set(other[0].tolist()) == {9}
    assert len(passes) < 20


def test_after_a_long_chain_passes_are_tried_again(passes):
    """And what was saved before it is not spent on it to the end."""
    budget = Budget(chained(CIRCLE), 1)
    for _ in range(1000):  # a stretch that went well
        budget.settle(320, 320)
    in_vain = 0
    while (rows := budget.rows()) >= decoding.FEWEST and in_vain < 1000:
        budget.settle(1, rows)
        in_vain += 1
    assert decoding.PATIENCE <= in_vain < 100
    for _ in range(1000):
        budget.settle(1, budget.rows())
    budget.settle(500, 500)
    assert budget.rows() >= decoding.FEWEST


@pytest.mark.parametrize("end", [1, 2, 17, 300])
def test_outputs_of_a_batch_end_each_for_itself(passes, end):
    model = narrow(end)
    with torch.no_grad():
        model.head.bias[TOKENS.eos] += end / 40
    data = digit_data()
    ended = set()
    for n in (1, 4):
        one, other = both(model, data.test(7, n, seed=end).source, 60)
        assert torch.equal(one, other)
        ended |= {TOKENS.eos in row for row in other.tolist()}
        for row in other.tolist():
            if TOKENS.eos in row:
                assert set(row[row.index(TOKENS.eos) + 1 :]) <= {TOKENS.pad}
    assert ended


def test_only_models_with_a_bounded_field_decode_in_passes(make_model, passes):
    source = additions()[:1]
    model = on_lines(make_model(scheme="none"))
    model.decode(source, 50)
    assert passes
    passes.clear()
    for change in ("dense", "open", "none"):
        model = on_lines(make_model(scheme="none"))
        if change == "dense":
            model.set_path("dense")
        elif change == "open":
            model.set_lines(LineBias({"self": model.lines.sites["self"]}))
        else:
            model.set_lines(None)
        model.decode(source, 50)
        assert not passes, change
