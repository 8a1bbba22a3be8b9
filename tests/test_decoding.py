"""Decoding in passes writes what decoding token by token writes, and never costs much more."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from conftest import TOKENS, additions, digit_data, view_of
from hypothesis import given, settings
from hypothesis import strategies as st
from test_transformer import CASES
from torch import Tensor

from abc_calib.config import TransformerOptions
from abc_calib.data import Batch, DigitData
from abc_calib.evaluation.exact import exact_matches
from abc_calib.geometry import CORNER, Line, LineBias
from abc_calib.nn.build import build_model
from abc_calib.nn.lines import Lines
from abc_calib.nn.transformer import decoding
from abc_calib.nn.transformer import model as transformer
from abc_calib.nn.transformer.cache import Cache, kept_rows
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


# The cache


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


def small(data: DigitData, seed: int, **options) -> Transformer:
    """A small model without positions, unless told otherwise."""
    shape = {"width": 16, "heads": 2, "feedforward": 20, "decoder_layers": 2, "scheme": "none"}
    model = build_model("transformer", TransformerOptions(**{**shape, **options}), data, seed)
    assert isinstance(model, Transformer)
    return model.eval()


@torch.inference_mode()
def stepwise(model: Transformer, source: Tensor, steps: int) -> tuple[Tensor, Cache]:
    """Logits of each greedy step with a cache, ``(b, t, v)``, and the cache."""
    encoded, cache = model.encode(source), Cache(model.kept_rows)
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
@pytest.mark.parametrize("seed", range(4))
def test_cached_steps_equal_one_pass(data, seed, most):
    model = small(data, seed, heads=4, decoder_layers=3)
    model.set_lines(short_lines(seed, 3, 4, most))
    batch = data.test(9, 5)
    steps = 90  # beyond the length from which lines are gathered
    logits, cache = stepwise(model, batch.source, steps)
    once = in_one_pass(model, batch.source, logits.argmax(-1))
    torch.testing.assert_close(logits, once, atol=1e-4, rtol=1e-4)
    kept = model.kept_rows
    assert kept is not None and kept.recent <= 2 and kept.pinned <= 2
    assert len(cache.output) == 3
    for keys, values in cache.output.values():
        assert keys.shape[2] == values.shape[2] == kept.pinned + kept.recent
    assert cache.seen == steps
    assert cache.held.position[0].tolist() == [
        *range(kept.pinned),
        *range(steps - kept.recent, steps),
    ]
    model.set_path("dense")
    assert model.kept_rows is None  # dense attention reads every row


def test_heads_that_may_read_any_row_keep_them_all(data):
    model = small(data, 0, decoder_layers=1)
    lines = short_lines(0, 1, 2).sites
    here = (Line("diag", 0, 0),)
    for other in ((), (Line("diag", CORNER, 0),), (Line("anti", 0, 0),)):
        model.set_lines(LineBias({**lines, "self": ((other, here),)}))
        assert model.kept_rows is None
    model.set_lines(LineBias({**lines, "self": ((here, here),)}, off_line_bias=-5.0))
    assert model.kept_rows is None
    model.set_lines(None)
    assert model.kept_rows is None
    _, cache = stepwise(model, data.test(3, 2).source, 7)
    assert cache.kept is None and cache.held.size == 7
    assert next(iter(cache.output.values()))[0].shape[2] == 7


OWN = st.builds(Line, st.sampled_from(["diag", "vert"]), st.just(0), st.integers(-5, 5))


@given(st.lists(OWN, min_size=1, max_size=3), st.lists(OWN, min_size=1, max_size=3))
def test_no_row_reads_one_that_is_left_out_and_no_smaller_window_would_do(first, second):
    """Against the keys themselves, row by row."""
    rows, biases = 40, [Lines({"self": (tuple(head),)}) for head in (first, second)]
    frame = view_of("self", torch.arange(rows), rows, torch.tensor([3]))
    read = [
        {int(key) for bias in biases for key in bias.positions(frame)[0][0, 0, row]}
        for row in range(rows)
    ]
    kept = kept_rows(biases)
    assert kept is not None
    for row in range(rows):
        for key in read[row] - {row}:
            assert key < kept.pinned or key >= row - kept.recent, (row, key)
    if kept.recent:
        assert any(row - kept.recent in read[row] for row in range(kept.recent, rows))
    if kept.pinned:
        assert all(kept.pinned - 1 in read[row] for row in range(rows // 2, rows))


def test_a_long_output_is_scored_in_parts(data, monkeypatch):
    """With any size of the parts the same, for a right row and for one wrong near its end."""
    model = small(data, 1)
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
