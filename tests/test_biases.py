"""Biases against a slow definition of every line, and attention along lines against dense."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from conftest import digit_data, random_heads, view_of
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from abc_calib import stages
from abc_calib.config import RETRAIN
from abc_calib.data import Data
from abc_calib.geometry import CORNER, SITES, Line, LineBias
from abc_calib.geometry.coords import AttentionView, source_coords
from abc_calib.geometry.window import window_bias, window_lines
from abc_calib.nn.attend import MASKED
from abc_calib.nn.lines import LineGather
from abc_calib.nn.positions import build_scheme
from abc_calib.nn.transformer.attention import Attention
from abc_calib.runs import Run
from abc_calib.training.plan import plan_training

SEEDS = st.integers(0, 2**32)


def key_of(line: Line, site: str, row: int, last: int, places: list[int]) -> int | None:
    """The key of a line in a row, from the table in ``geometry.lines``; None if it has left.

    ``last`` is the last key that exists: in self-attention the row's own. There, and in the
    encoder, a segment line is counted as a corner line and then clamped; an encoder's vertical
    is the delimiter itself.
    """
    sign = {"diag": 1, "anti": -1, "vert": 0}[line.direction] * line.stride
    start = {"diag": line.offset, "anti": last - line.offset, "vert": line.offset}
    low, high = 0, last
    if line.segment != CORNER and site == "cross":
        low, high = places[max(line.segment - 1, 0)], places[line.segment]
        start = {
            "diag": low + 1 + line.offset,
            "anti": high - 1 - line.offset,
            "vert": high - line.offset,
        }
    elif line.segment != CORNER and site == "encoder" and line.direction == "vert":
        return places[line.segment]
    key = start[line.direction] + sign * row
    if line.segment == CORNER:
        return key if low <= key <= high else None
    return min(max(key, low), high)


def slow_dense(heads: tuple, frame: AttentionView) -> np.ndarray:
    """``Lines.dense``, cell by cell."""
    b = max(len(frame.keys.length[:, 0]), 1)
    bias = np.full((b, len(heads), frame.queries.size, frame.keys.size), MASKED, np.float32)
    for s, h, i in np.ndindex(bias.shape[:3]):
        row = int(frame.queries.position[0][i])
        last = row if frame.site == "self" else int(frame.keys.length[:, 0][s]) - 1
        places = [] if frame.site == "self" else frame.keys.marks[s].tolist()
        for line in heads[h]:
            key = key_of(line, frame.site, row, last, places)
            if key is not None:
                bias[s, h, i, key] = max(bias[s, h, i, key], np.float32(line.value))
        if not heads[h]:
            bias[s, h, i] = 0.0
    return bias


def random_frame(
    rng: random.Random, site: Any, samples: int, past: int, steps: int
) -> AttentionView:
    """Sources ``$ digits + digits &`` of unequal length, padded to a common one."""
    operands = [(rng.randint(1, 7), rng.randint(1, 7)) for _ in range(samples)]
    places = torch.tensor([[0, a + 1, a + b + 2] for a, b in operands])
    lengths = places[:, -1] + 1
    keys = int(lengths.max()) + rng.randint(0, 2)
    if site == "self":
        return view_of("self", torch.arange(past, past + steps), past + steps, lengths)
    rows = torch.arange(keys) if site == "encoder" else torch.arange(past, past + steps)
    return view_of(site, rows, keys, lengths, places)


# The matrix


@given(SEEDS, st.sampled_from(SITES), st.integers(0, 5), st.integers(1, 11), st.booleans())
def test_dense_is_the_slow_definition(seed, site, past, steps, transparent):
    rng = random.Random(seed)
    frame = random_frame(rng, site, 3, past, steps)
    heads = random_heads(rng, site, 5, 0.4 if transparent else 0.0)
    dense = LineGather({site: heads}).dense([frame])
    expected = slow_dense(heads, frame)
    assert np.array_equal(np.broadcast_to(dense.numpy(), expected.shape), expected)


def test_layers_know_how_few_keys_their_rows_read():
    line, corner = (Line("diag", 0, 0),), (Line("diag", CORNER, 0),)
    for heads, restricted, single in (
        ((line, line), True, True),
        ((line, line * 2), True, False),
        ((line, corner), True, False),
        ((line, ()), False, False),
    ):
        bias = LineGather({"self": heads})
        assert (bias.restricted, bias.single) == (restricted, single)


# Masks and delimiters


def test_delimiters_are_found_in_every_row_and_samples_that_stand_alike_are_one():
    ids = torch.tensor([[9, 1, 8, 1, 9, 0, 0], [9, 1, 1, 1, 8, 1, 9], [9, 1, 9, 0, 0, 0, 0]])
    assert source_coords(ids, (8, 9)).marks.tolist() == [[0, 2, 4], [0, 4, 6], [0, 2, 2]]
    assert source_coords(ids).marks.shape == (3, 0)
    ids = torch.tensor([[9, 1, 8, 1, 9], [9, 2, 8, 0, 9]])
    assert source_coords(ids, (8, 9)).alike.marks.tolist() == [[0, 2, 4]]
    assert len(source_coords(ids, (2, 8, 9)).alike.marks) == 2


# Attention


def attend(
    attention: Attention,
    frame: AttentionView,
    bias: LineGather | None,
    path: str,
    given: Tensor,
    memory: Tensor,
) -> tuple[Tensor, list[Tensor]]:
    """The output, and the gradients of a fixed function of it."""
    scheme = build_scheme("none", attention.query.in_features, attention.heads)
    x, source = given.clone().requires_grad_(), memory.clone().requires_grad_()
    attention.path = path
    attention.lines = {} if bias is None else {frame.site: bias}
    part = attention.project(source, frame.keys, scheme, frame.site)
    out = attention(x, [part], [frame], scheme)
    mix = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out).sin()
    wanted = [x, source, *attention.parameters()]
    # where each row reads one key, no query is compared, and its gradient is nought
    gradients = torch.autograd.grad((out * mix).sum(), wanted, materialize_grads=True)
    return out.detach(), list(gradients)


def inputs(seed: int, frame: AttentionView, samples: int) -> tuple[Attention, Tensor, Tensor]:
    torch.manual_seed(seed % 1009)
    attention = Attention(15, 5, 0.0).double()
    x = torch.randn(samples, frame.queries.size, 15, dtype=torch.float64)
    return attention, x, torch.randn(samples, frame.keys.size, 15, dtype=torch.float64)


@given(SEEDS, st.sampled_from(SITES), st.booleans(), st.integers(0, 4), st.booleans())
def test_attention_along_lines_is_dense_attention(seed, site, shared, past, single):
    """In value and in gradient, whether the samples are laid out alike or not."""
    rng = random.Random(seed)
    frame = random_frame(rng, site, 1 if shared else 3, past, 7)
    bias = LineGather({site: random_heads(rng, site, 5, single=single)})
    assert bias.single or not single
    attention, x, memory = inputs(seed, frame, 3)
    dense, dense_gradients = attend(attention, frame, bias, "dense", x, memory)
    lines, lines_gradients = attend(attention, frame, bias, "lines", x, memory)
    torch.testing.assert_close(lines, dense, rtol=1e-9, atol=1e-10)
    for a, b in zip(lines_gradients, dense_gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-9)


@given(SEEDS, st.sampled_from(SITES))
def test_attention_is_softmax_of_scores_and_bias(seed, site):
    """Against the formula, row by row; a row without a key gives nothing but the output's bias."""
    rng = random.Random(seed)
    frame = random_frame(rng, site, 2, 0, 5)
    heads = random_heads(rng, site, 5)
    attention, x, memory = inputs(seed, frame, 2)
    out, _ = attend(attention, frame, LineGather({site: heads}), "auto", x, memory)
    bias = slow_dense(heads, frame)
    with torch.no_grad():
        q, k, v = attention.query(x), attention.key(memory), attention.value(memory)
        for s in range(2):
            for i in range(frame.queries.size):
                mixed = torch.zeros(15, dtype=torch.float64)
                for h in range(5):
                    part = slice(3 * h, 3 * h + 3)
                    opened = [j for j in range(frame.keys.size) if bias[s, h, i, j] > MASKED]
                    if not opened:
                        continue
                    scores = torch.stack(
                        [
                            q[s, i, part] @ k[s, j, part] / 3**0.5 + float(bias[s, h, i, j])
                            for j in opened
                        ]
                    )
                    mixed[part] = scores.softmax(0) @ v[s, opened][:, part]
                torch.testing.assert_close(out[s, i], attention.output(mixed), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("lines", [1, 2])
def test_the_gathered_path_scores_the_lines_only(monkeypatch, lines):
    """Beyond ``GATHER_FROM`` keys ``auto`` builds no matrix of rows by keys."""
    bias = LineGather({"cross": ((Line("vert", 1, 0), Line("anti", 1, 2, -0.5))[:lines],) * 5})
    rows, keys = 101, 211
    frame = view_of("cross", range(rows), keys, [keys], [[0, keys - 1]])
    attention, x, memory = inputs(0, frame, 1)
    expected, _ = attend(attention, frame, bias, "dense", x, memory)
    monkeypatch.setattr(LineGather, "dense", lambda *_: pytest.fail("built a matrix"))
    out, _ = attend(attention, frame, bias, "auto", x, memory)
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-10)


# Windows of attention


SMALL = {"width": 8, "heads": 2, "feedforward": 16, "decoder_layers": 1, "steps": 3, "batch": 5}


def window_of(data: Data, window: int, **layers: int) -> LineBias:
    """The window of a model of two heads on data."""
    layout = data.layout_at(1)
    sites = {"encoder": 0, "self": 1, "cross": 1} | layers
    return window_bias(window, sites, 2, len(layout.parts), layout.stride)  # type: ignore[arg-type]


def seen(task: str, problem: str, window: int = 1, format: str = "aligned") -> list[str]:
    """The source's tokens that each row of cross-attention sees, in order."""
    data = digit_data(task, format=format)
    problems = data.task.parse(problem)
    batch = data.lay_out(problems)
    tokens = [data.vocabulary.symbols[i] for i in batch.source[0].tolist()]
    closes, steps = data.layout(problems).closes, batch.target.shape[1]
    frame = view_of("cross", range(steps), len(tokens), [len(tokens)], [closes])
    heads = window_of(data, window).sites["cross"][0]
    matrix = LineGather({"cross": heads}).dense([frame])[0, 0]
    return ["".join(t for t, b in zip(tokens, row, strict=True) if b == 0) for row in matrix]


def test_a_row_sees_its_column_and_those_before_it():
    """Row 0 has EOS on the line and the last digit beside it."""
    assert seen("successor", "1234") == ["4&", "34&", "234", "123", "$12"]
    assert seen("parity", "110") == ["0&", "10&", "110", "$11"]
    assert seen("successor", "1234", window=2) == ["34&", "234&", "1234&", "$1234", "$123"]
    assert seen("successor", "34", format="fixed:4")[:4] == ["4&", "34&", "034", "003"]
    assert seen("addition", "57+68") == ["78", "56", "+", "+"]
    assert seen("multiplication", "571*8") == ["18", "78", "58", "*", "*"]
    assert seen("addition", "57+68", window=2) == ["678&", "+567", "+5", "+"]


@given(st.integers(1, 9), st.integers(1, 3), st.integers(1, 4), st.booleans())
def test_a_window_is_that_of_the_paper_kept_between_the_delimiters(digits, column, window, wide):
    """Figure 10: open where a key is at most ``w`` from the line, or in the row's column."""
    opened = 1 if column > 1 else 0
    last = opened + 1 + digits * column
    rows = digits + 2
    delimiters = [0, 1, last] if column > 1 else [0, last]
    keys = last + 1 + 3 * wide  # padding is never seen
    frame = view_of("cross", range(rows), keys, [last + 1], [delimiters])
    lines = window_lines("cross", window, len(delimiters) - 1, column)
    matrix = LineGather({"cross": (lines,)}).dense([frame])[0, 0]
    for row in range(rows):
        first = last - column * (row + 1)  # of the row's own column
        line = first + 1 if column == 1 else first + (column - 1) / 2
        among = {key for key in range(-50, 50) if abs(key - line) <= window}
        if column > 1:
            among |= set(range(first, first + column))
        expected = {min(max(key, opened), last) for key in among}
        assert set(matrix[row].eq(0).nonzero()[:, 0].tolist()) == expected


def test_self_attention_looks_back_and_the_encoder_to_both_sides():
    frame = view_of("self", range(5), 5, [5])
    own = LineGather({"self": (window_lines("self", 2, 1, 1),)}).dense([frame])[0, 0]
    assert torch.equal(own.eq(0), torch.ones(5, 5).tril().triu(-2).bool())
    frame = view_of("encoder", range(5), 5, [5], [[0, 4]])
    both = LineGather({"encoder": (window_lines("encoder", 1, 1, 1),)}).dense([frame])[0, 0]
    assert torch.equal(both.eq(0), torch.ones(5, 5).tril(1).triu(-1).bool())


def test_calibrated_lines_take_the_place_of_the_window_that_a_run_keeps(untrained, monkeypatch):
    monkeypatch.setattr("abc_calib.calibration.pipeline.correct_samples", lambda _, b: (b, 1.0))
    how = {**SMALL, "length": 2, "width": 16}
    run = stages.train("addition", format="aligned", attention_window=1, cyclic=3, **how)
    model = Run.open(run.path).load_model()
    assert model.lines == window_of(run.data, 1, encoder=model.options.encoder_layers)
    assert model.options.cyclic == 3
    assert {line.stride for line in model.lines.heads("cross", 0)[0]} == {2}
    made = stages.calibrate(run, force=True, samples=64, threshold=0.5, steps=2, batch=5)
    assert made.config.model.attention_window is None and made.config.model.cyclic is None
    assert made.load_model().lines == made.bias()


def test_a_windowed_training_runs_to_its_end_as_a_retraining_does():
    planned = plan_training("successor", attention_window=1, seed=3)
    assert planned.train == RETRAIN.model_copy(update={"length": 6, "seed": 3, "steps": 4000})
    assert plan_training("successor", seed=3).train.stop_early
