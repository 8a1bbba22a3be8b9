"""Arrays of lines are the biases of our own attention, at any size."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from conftest import digit_data, random_heads

import abc_calib as lib
from abc_calib.config import TransformerOptions
from abc_calib.errors import UsageError
from abc_calib.geometry import DIRECTIONS, Line, LineBias, Site
from abc_calib.nn.attend import MASKED
from abc_calib.nn.build import build_model
from abc_calib.nn.transformer.attention import bias_of

SHAPE: dict[str, Any] = {
    **{"width": 12, "heads": 3, "feedforward": 16, "scheme": "none"},
    **{"encoder_layers": 1, "decoder_layers": 2},
}


def rows_line(rng: random.Random, site: str) -> Line:
    """A line that goes on from row to row of an output."""
    beta, step = (0, 0) if site == "self" else (rng.randint(-1, 2), rng.randint(0, 1))
    direction, segment, offset = rng.choice(DIRECTIONS), rng.randint(0, 2), rng.randint(-3, 3)
    return Line(direction, segment, offset, beta=beta, part_step=step)


def case(name: str, seed: int) -> tuple[Any, Any]:
    """A model with random lines and its data: for one row, or for several rows."""
    rng = random.Random(seed)
    rows = name == "rows"
    data = digit_data("long_multiplication" if rows else "addition", length=4)
    model: Any = build_model("transformer", TransformerOptions(**SHAPE), data, 0).eval()
    counts: dict[Site, int] = {"encoder": 1, "self": 2, "cross": 2}
    sites = {
        site: tuple(random_heads(rng, site, 3, 0.3, segments=2) for _ in range(n))
        for site, n in counts.items()
    }
    if rows:
        for site in ("self", "cross"):
            heads = [[(rows_line(rng, site),) * rng.randint(0, 1)] for _ in range(6)]
            made = [one[0] + (rows_line(rng, site),) for one in heads]
            sites[site] = tuple(made[:3]), tuple(made[3:])
    lines = LineBias(sites, -2.5 if name == "off the lines" else None)
    model.set_lines(lines)
    return model, data


CASES = ("masked", "off the lines", "rows")


def ours(model: Any, batch: Any) -> list[tuple[str, int, torch.Tensor]]:
    """Site, layer and the bias ``(b, h, i, j)`` of every attention of a model."""
    found: list[tuple[str, int, torch.Tensor]] = []
    for site, view in model.views(batch.source, batch.target).items():
        for layer, attention in enumerate(model.attending(site)):
            x = torch.zeros(1)
            lines = attention.lines.get(site)
            bias, nowhere = bias_of(x, x, [view], model.positions, lines)
            if nowhere is not None:
                bias = bias.masked_fill(nowhere, MASKED)
            found.append((site, layer, bias))
    return found


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_arrays_are_our_biases(name, seed):
    model, data = case(name, seed)
    for number in range(4):
        size = data.sized(2 + number) if name == "rows" else 2 + number
        batch = data.test(size, 1, seed=seed)
        target = batch.target[0].numpy()
        ends = np.isin(target, [*data.vocabulary.rows, data.vocabulary.eos])
        rows = np.diff(np.flatnonzero(ends), prepend=-1).tolist()
        for site, layer, wanted in ours(model, batch):
            bias = model.lines.matrix(site, layer, data.layout(batch.problems), rows)
            np.testing.assert_array_equal(bias[None], wanted.expand(1, *bias.shape).numpy())
    with pytest.raises(UsageError, match="no lines of cross-attention in layer 2"):
        model.lines.matrix("cross", 2, data.layout_at(3))


def test_lines_are_written_as_arrays(tiny, abc, tmp_path):
    out = tmp_path / "lines.npz"
    abc("export", "lines", tiny.calibrated, "--lengths", "3,7", "--out", out)
    run, arrays = lib.Run.open(tiny.calibrated), np.load(out)
    symbols = arrays["tokens"][arrays["7/source"]]
    assert (symbols[0], symbols[-1], len(symbols)) == ("$", "&", 9)
    assert arrays["7/read"][0] == run.data.vocabulary.sos
    bias = arrays["7/cross/layer0"]
    assert bias.shape == (8, len(arrays["7/read"]), 9) and bias.dtype == np.float32
    assert set(np.unique(arrays["3/cross/layer0"])) >= {-np.inf}
    for words, said in (
        (["lines", "--out", out], "is there already"),
        (["certificate", "--lengths", "3", "--out", "x"], "takes no --lengths"),
        (["lines", tiny.vanilla], "has no lines: abc calibrate"),
    ):
        assert said in abc("export", *words).error(2)
