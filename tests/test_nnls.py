"""The default fit against scipy, on attention that is made of lines; and which lines heads keep."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import view_of
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import nnls
from torch import Tensor

from abc_calib.calibration.fits.nnls import candidates, fit, select
from abc_calib.geometry import DIRECTIONS, SITES, Line
from abc_calib.geometry.coords import AttentionView
from abc_calib.nn.base import AttentionWeights
from abc_calib.nn.lines import LineGather

STEPS = 8


def frame_of(site: Any, seed: int, samples: int, sites: dict | None = None) -> AttentionView:
    """Sources ``$ 4 to 6 digits + 4 to 6 digits &``."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(4, 7, (2, samples))
    places = torch.tensor(np.stack([0 * a, a + 1, a + b + 2], axis=1))
    lengths = places[:, -1] + 1
    keys = 15
    if site == "self":
        return view_of("self", torch.arange(STEPS), STEPS, lengths)
    rows = torch.arange(keys if site == "encoder" else STEPS)
    return view_of(site, rows, keys, lengths, places)


def indicator(line: Line, frame: AttentionView) -> Tensor:
    """1 on the line, 0 elsewhere: ``(b, i, j)``."""
    on = LineGather({frame.site: ((line,),)}).dense([frame])[:, 0] == line.value
    return on.float().expand(len(frame.keys.length[:, 0]), -1, -1)


def captured(
    site: Any, mixtures: list[dict[Line, float]], seed: int = 0, samples: int = 41
) -> AttentionWeights:
    """Two layers of heads made of lines, the rest of each row spread at random."""
    frame = frame_of(site, seed, samples)
    torch.manual_seed(seed)
    rows = torch.ones(samples, frame.queries.size, dtype=torch.bool)
    if site == "encoder":
        rows = frame.queries.position[0] < frame.keys.length[:, 0][:, None]
    else:
        rows[:, -2:] = torch.rand(samples, 2) < 0.5
    layers = []
    for shift in range(2):
        heads = []
        for h in range(len(mixtures)):
            mixture = mixtures[(h + shift) % len(mixtures)]
            noise = torch.rand(samples, frame.queries.size, frame.keys.size) * frame.mask[:, 0]
            noise = noise / noise.sum(-1, keepdim=True)
            made = (1 - sum(mixture.values())) * noise
            for line, weight in mixture.items():
                made = made + weight * indicator(line, frame)
            heads.append(made)
        layers.append(torch.stack(heads, dim=1))
    others: Any = {other: () for other in SITES if other != site}
    return AttentionWeights({site: tuple(layers), **others}, {site: frame}, {site: rows})


CROSS = [
    {Line("anti", 1, 0): 0.9},
    {Line("anti", 2, -1): 0.5, Line("anti", 1, 1): 0.3},
    {Line("vert", 2, 0): 0.6, Line("vert", 1, 1): 0.2},
    {Line("diag", 2, 0): 0.8},
    {},
]
OTHER = {
    "cross": CROSS,
    "self": [{Line("diag", 0, 0): 0.7}, {Line("diag", 0, -1): 0.5, Line("vert", 0, 0): 0.4}, {}],
    "encoder": [{Line("diag", 0, -1): 0.8}, {Line("vert", 1, 0): 0.5}, {}],
}


@pytest.mark.parametrize("site", SITES)
def test_the_fit_is_non_negative_least_squares_and_finds_the_lines(site):
    """Its squared error is that of scipy on all cells of all rows that are not padding."""
    mixtures = OTHER[site]
    part = captured(site, mixtures, seed=3, samples=7)
    lines = candidates(site, DIRECTIONS, 2, 6)
    found = fit([part], {site: lines})[site]
    rows = part.rows[site]
    cells = [indicator(line, part.views[site])[rows].numpy().ravel() for line in lines]
    design = np.stack(cells, 1)
    for layer, h in np.ndindex(2, len(mixtures)):
        wanted = part.weights[site][layer][:, h][rows].double().numpy().ravel()
        _, least = nnls(design.astype(np.float64), wanted)
        weights = found[layer, h]
        assert (weights >= 0).all()
        error = np.linalg.norm(design @ weights - wanted)
        assert error == pytest.approx(least, rel=1e-6)
        mixture = mixtures[(h + layer) % len(mixtures)]
        made = sorted(mixture, key=lambda line: -mixture[line])
        assert [lines[k] for k in (-weights).argsort()[: len(made)]] == made


def test_parts_add_up():
    lines = {"cross": candidates("cross", DIRECTIONS, 2, 6)}
    whole = captured("cross", CROSS, samples=11)
    frame, parts = whole.views["cross"], []
    for of in (slice(0, 3), slice(3, 11)):
        keys = frame.keys.length[of, 0], frame.keys.marks[of]
        view = view_of("cross", frame.queries.position[0], 15, *keys)
        layers = tuple(layer[of] for layer in whole.weights["cross"])
        parts.append(
            AttentionWeights({"cross": layers}, {"cross": view}, {"cross": whole.rows["cross"][of]})
        )
    found, expected = (fit(some, lines)["cross"] for some in (parts, [whole]))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_of_twins_the_first_takes_all():
    """``vert 2 0`` twice; and past the operand's digits ``vert 1 9`` is SOS, as ``vert 0 0`` is."""
    lines = (Line("vert", 0, 0), Line("vert", 2, 0), Line("vert", 2, 0), Line("vert", 1, 9))
    part = captured("cross", [{Line("vert", 2, 0): 0.6, Line("vert", 0, 0): 0.4}])
    weights = fit([part], {"cross": lines})["cross"][0, 0]
    np.testing.assert_allclose(weights, [0.4, 0.6, 0, 0], atol=1e-4)


# One line a head

SINK = Line("vert", 9, 0)
KINDS = tuple(Line("anti", 1, offset) for offset in range(5))
WEIGHTS = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 2), st.integers(1, 4), st.integers(1, 5)),
    elements=st.sampled_from([0.0, 0.05, 0.15, 0.25, 0.3, 0.4, 0.6, 0.85, 1.0]),
)


def allowed(weights: np.ndarray, chosen: tuple[int, ...], threshold: float) -> set[tuple]:
    """What a layer may become: each chosen line to one head, at the greatest weight in all."""
    heads = len(weights)
    best = [int(k) for k in weights.argmax(1)]
    own = [KINDS[k] if weights[h, k] >= threshold else SINK for h, k in enumerate(best)]
    orders = list(itertools.permutations(range(heads), len(chosen)))
    totals = [sum(weights[h, k] for h, k in zip(order, chosen, strict=True)) for order in orders]
    results = set()
    for order, total in zip(orders, totals, strict=True):
        if total > max(totals) - 1e-9:
            kept = list(own)
            for h, k in zip(order, chosen, strict=True):
                kept[h] = KINDS[k]
            results.add(tuple((line,) for line in kept))
    return results


def kept_lines(lines, weights, threshold):
    """What the heads of one layer keep."""
    return tuple((SINK if k is None else lines[k],) for k in select(weights, threshold))


@given(WEIGHTS, st.sampled_from([0.2, 0.5]))
def test_every_strong_line_gets_a_head_and_every_head_one_line(weights, threshold):
    lines = KINDS[: weights.shape[2]]
    for layer in weights:
        heads = kept_lines(lines, layer, threshold)
        assert [len(head) for head in heads] == [1] * len(layer)
        strongest = layer.max(0)
        strong = {lines[k] for k in range(len(lines)) if strongest[k] >= threshold}
        kept = {head[0] for head in heads}
        assert kept - {SINK} <= strong
        if len(strong) <= len(layer):
            assert strong <= kept
            chosen = tuple(k for k in range(len(lines)) if lines[k] in strong)
            assert heads in allowed(layer, chosen, threshold)
        else:
            assert len(kept) == len(layer)
            given_up = [strongest[k] for k in range(len(lines)) if lines[k] in strong - kept]
            assert max(given_up) <= min(strongest[lines.index(line)] for line in kept)


def test_without_a_query_nothing_weighs():
    lines = tuple(candidates("cross", DIRECTIONS, 2, 6))
    attention = captured("cross", [{lines[0]: 1.0}])
    attention = replace(attention, rows={"cross": torch.zeros_like(attention.rows["cross"])})
    assert not fit([attention], {"cross": lines})["cross"].any()
