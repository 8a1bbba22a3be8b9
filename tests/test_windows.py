"""Whether what rows see decides what they write: against a model that reads it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from conftest import VANILLA, digit_data, in_stream

from abc_calib import stages
from abc_calib.calibration.windows import undecided
from abc_calib.config import MODEL_OPTIONS
from abc_calib.errors import AbcWarning
from abc_calib.geometry import Line, LineBias
from abc_calib.nn.build import build_model

SIZES: dict[str, Any] = {"width": 16, "feedforward": 32, "heads": 2, "decoder_layers": 2}


def by_model(model: Any, batch: Any) -> tuple[int, int]:
    """The same count: rows of equal logits, of which some have another right token."""
    there = batch.target != model.pad
    with torch.inference_mode():
        logits = model.double()(batch.source, batch.target)[there].numpy()
    _, group = np.unique(np.round(logits, 9), axis=0, return_inverse=True)
    written = batch.target[there].numpy()
    tokens = [set(written[group == g].tolist()) for g in range(group.max() + 1)]
    return sum(len(tokens[g]) > 1 for g in group), len(written)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", ["transformer", "encoder", "decoder"])
def test_rows_that_see_the_same_are_those_of_equal_logits(kind, seed, random_bias):
    """In a model of random weights, which nothing but what it sees can tell apart.

    Of heads with several lines some are not found: weights can be alike by another way.
    """
    data = digit_data("addition", base=2, length=4)
    more = {"encoder_layers": 1} if kind == "encoder" else {}
    name = "decoder" if kind == "decoder" else "transformer"
    options: Any = MODEL_OPTIONS[name](scheme="none", **SIZES, **more)
    model: Any = build_model(name, options, data, seed)
    layers = {"encoder": len(more), "self": 2, "cross": 2}
    lines = random_bias(layers, 2, seed, single=seed % 2 == 0)
    lines = in_stream(lines, seed) if kind == "decoder" else lines
    model.set_lines(lines)
    with torch.no_grad():  # so that sums of few terms do not meet by chance
        for weight in model.parameters():
            weight.normal_(std=0.7)
    batch = data.training(0, 200)
    found, expected = undecided(lines, model.eval(), batch), by_model(model, batch)
    assert found[1] == expected[1] and found[0] <= expected[0]
    if seed % 2 == 0:  # one line a head
        assert found[0] == expected[0] > 0


def test_addition_needs_both_operands_and_what_was_written_last():
    data = digit_data("addition", base=10, length=6)
    model: Any = build_model("transformer", MODEL_OPTIONS["transformer"](scheme="none"), data, 0)
    batch = data.training(0, 5000)

    def left(*crossed: Line) -> int:
        heads = (*((line,) for line in crossed), *((Line("vert", 2, 0),),) * 8)[:8]
        own: Any = ((Line("diag", 0, 0),),) * 8
        return undecided(LineBias({"self": (own,) * 3, "cross": (heads,) * 3}), model, batch)[0]

    needed = [Line("anti", part, by) for part in (1, 2) for by in (0, -1)]
    assert left(*needed) == 0
    for without in range(4):
        assert left(*needed[:without], *needed[without + 1 :]) > 0


def test_a_calibration_warns_where_no_model_can_be_right(trained, tiny, abc, tmp_path):
    how: Any = {"threshold": 0.3, "retrain": False, "samples": 64, "progress": False}
    with pytest.warns(AbcWarning, match="rows of training problems see what others see"):
        stages.calibrate(trained.root / VANILLA, dirs=("vert",), out=tmp_path / "made", **how)
    words = ("--dirs", "vert", "--threshold", 0.3, "--no-retrain", "--samples", 64, "--quiet")
    said = abc("calibrate", VANILLA, *words)
    assert said.code == 0 and said.err.startswith("warning: on these lines ")
    assert "UserWarning" not in said.err
