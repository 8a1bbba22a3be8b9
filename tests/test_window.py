"""Windows: what each row sees, at any length, and which combinations mean something."""

from __future__ import annotations

import torch
from conftest import digit_data, view_of
from hypothesis import given
from hypothesis import strategies as st

from abc_calib import stages
from abc_calib.config import RETRAIN
from abc_calib.data import Data
from abc_calib.geometry import LineBias
from abc_calib.geometry.window import window_bias, window_lines
from abc_calib.nn.lines import Lines
from abc_calib.runs import Run
from abc_calib.training.plan import plan_training

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
    frame = view_of(
        "cross",
        torch.arange(batch.target.shape[1]),
        len(tokens),
        torch.tensor([len(tokens)]),
        torch.tensor([data.layout(problems).closes]),
    )
    heads = window_of(data, window).sites["cross"][0]
    matrix = Lines({"cross": heads}).dense([frame])[0, 0]
    return ["".join(t for t, b in zip(tokens, row, strict=True) if b == 0) for row in matrix]


def test_a_row_sees_its_digit_and_those_before_it():
    """Row 0 has EOS on the line and the last digit beside it."""
    assert seen("successor", "1234") == ["4&", "34&", "234", "123", "$12"]
    assert seen("parity", "110") == ["0&", "10&", "110", "$11"]
    assert seen("successor", "1234", window=2) == ["34&", "234&", "1234&", "$1234", "$123"]


def test_a_row_of_columns_sees_both_digits_of_its_column():
    assert seen("addition", "57+68") == ["78", "56", "+", "+"]
    assert seen("multiplication", "571*8") == ["18", "78", "58", "*", "*"]
    assert seen("addition3", "57+68+90") == ["780", "569", "+", "+"]
    assert seen("addition", "57+68", window=2) == ["678&", "+567", "+5", "+"]


def test_padded_operands_have_the_same_window():
    assert seen("successor", "34", format="fixed:4")[:4] == ["4&", "34&", "034", "003"]


@given(st.integers(1, 9), st.integers(1, 3), st.integers(1, 4), st.booleans())
def test_a_window_is_that_of_the_paper_kept_between_the_delimiters(digits, column, window, wide):
    """Figure 10: open where a key is at most ``w`` from the line, or in the row's column."""
    opened = 1 if column > 1 else 0
    last = opened + 1 + digits * column
    rows = digits + 2
    delimiters = [0, 1, last] if column > 1 else [0, last]
    keys = last + 1 + 3 * wide  # padding is never seen
    frame = view_of(
        "cross", torch.arange(rows), keys, torch.tensor([last + 1]), torch.tensor([delimiters])
    )
    lines = window_lines("cross", window, len(delimiters) - 1, column)
    matrix = Lines({"cross": (lines,)}).dense([frame])[0, 0]
    for row in range(rows):
        first = last - column * (row + 1)  # of the row's own column
        line = first + 1 if column == 1 else first + (column - 1) / 2
        among = {key for key in range(-50, 50) if abs(key - line) <= window}
        if column > 1:
            among |= set(range(first, first + column))
        expected = {min(max(key, opened), last) for key in among}
        assert set(matrix[row].eq(0).nonzero()[:, 0].tolist()) == expected


def test_self_attention_looks_back_and_the_encoder_to_both_sides():
    frame = view_of("self", torch.arange(5), 5, torch.tensor([5]))
    own = Lines({"self": (window_lines("self", 2, 1, 1),)}).dense([frame])[0, 0]
    assert torch.equal(own.eq(0), torch.ones(5, 5).tril().triu(-2).bool())
    frame = view_of("encoder", torch.arange(5), 5, torch.tensor([5]), torch.tensor([[0, 4]]))
    both = Lines({"encoder": (window_lines("encoder", 1, 1, 1),)}).dense([frame])[0, 0]
    assert torch.equal(both.eq(0), torch.ones(5, 5).tril(1).triu(-1).bool())


def test_a_windowed_run_keeps_its_window_in_the_model(runs_root):
    run = stages.train("addition", format="aligned", attention_window=1, cyclic=3, **SMALL)
    model = Run.open(run.path).load_model()
    assert model.lines == window_of(run.data, 1)
    assert model.options.cyclic == 3
    strides = {line.stride for line in model.lines.heads("cross", 0)[0]}
    assert strides == {2}


def test_a_windowed_training_runs_to_its_end_as_a_retraining_does():
    planned = plan_training("successor", attention_window=1, seed=3)
    assert planned.train == RETRAIN.model_copy(update={"length": 6, "seed": 3, "steps": 4000})
    assert plan_training("successor", seed=3).train.stop_early


def test_calibrated_lines_take_the_place_of_the_window(runs_root):
    longer = {"length": 2, "width": 16, "steps": 150, "batch": 32, "learning_rate": 1e-2}
    run = stages.train("parity", attention_window=1, cyclic=3, **{**SMALL, **longer})
    made = stages.calibrate(run, force=True, samples=64, threshold=0.5, steps=2, batch=5)
    assert made.config.model.attention_window is None and made.config.model.cyclic is None
    assert made.load_model().lines == made.bias()
