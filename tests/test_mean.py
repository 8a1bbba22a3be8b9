"""The paper's calibration against a literal transcription of its steps 2.1 to 2.3."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from conftest import view_of
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from abc_calib.calibration import extend_bias
from abc_calib.calibration.fits.mean import corner_means, dense_bias, line_means, outstanding
from abc_calib.errors import UsageError
from abc_calib.geometry import CORNER, DIRECTIONS, SITES, Line
from abc_calib.nn.attend import MASKED
from abc_calib.nn.lines import LineGather

DELTA = {"diag": 1, "anti": -1, "vert": 0}
DIRS = st.lists(st.sampled_from(DIRECTIONS), min_size=1, max_size=3, unique=True)


def line_through(i: int, j: int, delta: int, m: int, n: int) -> list[tuple[int, int]]:
    """The cells of an ``m`` by ``n`` matrix on the (1, delta)-line through (i, j)."""
    cells = [(i + k, j + k * delta) for k in range(-m - n - i - j, m + n + i + j)]
    return [(row, column) for row, column in cells if 0 <= row < m and 0 <= column < n]


def brute_force(
    attention: np.ndarray, shape: tuple[int, int], dirs: list[str], threshold: float
) -> tuple[np.ndarray, float]:
    """The extended bias, and how near a line's mean came to a limit."""
    heads, m, n = attention.shape
    rows, keys = shape
    result = np.full((heads, rows, keys), -math.inf)
    nearest = math.inf
    for h in range(heads):
        any_line = False
        for direction in dirs:
            delta = DELTA[direction]
            shift = keys - n if delta < 0 else 0  # align the top-right corners
            means = {}
            for i in range(m):
                for j in range(n):
                    cells = line_through(i, j, delta, m, n)
                    mean = math.fsum(attention[h][cell] for cell in cells) / len(cells)
                    means[min(cells)] = mean
            values = list(means.values())
            mu = math.fsum(values) / len(values)
            sigma = math.sqrt(math.fsum((v - mu) ** 2 for v in values) / len(values))
            limit = mu + threshold * sigma
            nearest = min([nearest, *(abs(v - limit) for v in values)])
            for (i, j), mean in means.items():
                if mean > limit:
                    any_line = True
                    for cell in line_through(i, j + shift, delta, rows, keys):
                        result[h][cell] = max(result[h][cell], mean - max(values))
        if not any_line:
            result[h] = 0.0
    return result, nearest


@st.composite
def attentions(draw) -> tuple[np.ndarray, tuple[int, int]]:
    """An averaged attention ``(h, m, n)``, often with a strong line, and a shape to extend to."""
    h, m, n = draw(st.sampled_from([1, 2])), draw(st.integers(1, 7)), draw(st.integers(1, 11))
    values = draw(hnp.arrays(np.float64, (h, m, n), elements=st.integers(0, 64))) / 64
    direction, offset = draw(st.sampled_from([*DIRECTIONS, None])), draw(st.integers(-3, 8))
    if direction:
        kept = dense_bias(((Line(direction, CORNER, offset),),), (m, n))[0] == 0
        values[draw(st.integers(0, h - 1))][kept] += 3
    return values, (m + draw(st.integers(0, 6)), n + draw(st.integers(0, 6)))


@given(attentions(), DIRS, st.sampled_from([-0.5, 0.0, 0.5, 1.0, 1.5, 2.3, 4.0]))
def test_extend_bias_is_the_papers_algorithm(given_, dirs, threshold):
    attention, shape = given_
    expected, nearest = brute_force(attention, shape, dirs, threshold)
    assume(nearest > 1e-9)  # equality is a matter of rounding
    bias = extend_bias(attention, shape, dirs, threshold)
    assert bias.dtype == np.float64
    assert (np.isinf(bias) == np.isinf(expected)).all()
    np.testing.assert_allclose(bias, expected, rtol=0, atol=1e-12)


@given(attentions(), DIRS, st.sampled_from([0.0, 1.0, 1.5]))
def test_the_models_corner_lines_are_the_papers_matrix(given_, dirs, threshold):
    """The bias that the model adds in cross-attention, transparent heads included."""
    attention, (rows, keys) = given_
    expected = extend_bias(attention, (rows, keys), dirs, threshold)
    frame = view_of("cross", torch.arange(rows), keys, torch.tensor([keys]))
    heads = tuple(outstanding(corner_means(matrix, dirs), threshold) for matrix in attention)
    bias = LineGather({"cross": heads}).dense([frame])[0].numpy()
    assert ((bias <= MASKED) == np.isinf(expected)).all()
    opened = np.isfinite(expected)
    np.testing.assert_allclose(bias[opened], expected[opened], rtol=0, atol=1e-6)


def test_a_head_that_attends_evenly_is_transparent():
    """All its lines have one mean, and none stands out: also where that mean is rounded."""
    for (m, n), threshold in itertools.product([(7, 29), (13, 17), (23, 31)], [0.5, 1.0, 4.0]):
        bias = extend_bias(np.full((1, m, n), 1 / n), (m, n), threshold=threshold)
        assert np.count_nonzero(bias) == 0


def test_line_means_use_the_papers_indices():
    """With rows and keys from 0: ``j - i``, ``n - 1 - (i + j)`` and ``j``; without cells of NaN."""
    matrix = np.arange(6.0).reshape(2, 3)
    assert line_means(matrix, "diag") == {-1: 3.0, 0: 2.0, 1: 3.0, 2: 2.0}
    assert line_means(matrix, "anti") == {2: 0.0, 1: 2.0, 0: 3.0, -1: 5.0}
    assert line_means(matrix, "vert") == {0: 1.5, 1: 2.5, 2: 3.5}
    matrix = np.array([[1.0, 2.0, np.nan], [4.0, np.nan, np.nan]])
    assert line_means(matrix, "diag") == {-1: 4.0, 0: 1.0, 1: 2.0}
    assert line_means(matrix, "vert") == {0: 2.5, 1: 2.0}


def test_attention_shapes_and_directions_that_are_not_possible():
    plain = np.full((2, 3, 4), 0.25)
    for shape, extended, dirs, said in (
        ((5, 7), (7, 11), ["diag"], r"attention has shape \(5, 7\): give \(heads, rows, keys\)"),
        ((2, 5, 7), (7,), ["diag"], r"shape \(7,\) is not possible: give \(rows, keys\)"),
        ((2, 5, 7), (7, 11), ["down"], "unknown direction 'down': choose among diag, anti, vert"),
    ):
        with pytest.raises(UsageError, match=said):
            extend_bias(np.zeros(shape), extended, dirs)
    for value in (np.nan, np.inf):  # its means would be none, and its bias one of zeros
        plain[1, 2, 0] = value
        with pytest.raises(UsageError, match=f"head 1, row 2, key 0 is {value}"):
            extend_bias(plain, (3, 4))


def summed_by_hand(
    attention: np.ndarray, shape: tuple[int, int], dirs: list[str], k: float, site: str
) -> tuple[np.ndarray, float]:
    """The bias of the public code, cell by cell, and how near a sum came to a limit."""
    heads, m, n = attention.shape
    rows, keys = shape
    result = np.full((heads, rows, keys), -math.inf)
    nearest = math.inf
    for h in range(heads):
        for direction in dirs:
            delta = DELTA[direction]
            shift = keys - n if delta < 0 else 0
            sums = np.zeros(shape)
            for i in range(rows):
                for j in range(keys):
                    back = i  # the line's cell in row 0, which may lie outside of the matrix
                    column = j - back * delta
                    for row in range(m):
                        key = column + row * delta - shift
                        if 0 <= key < n:
                            sums[i, j] += attention[h, row, key]
            distinct = sorted({value for value in sums.flatten().tolist() if value != 0})
            if not distinct:
                continue
            mu = sum(distinct) / len(distinct)
            sigma = math.sqrt(sum((value - mu) ** 2 for value in distinct) / len(distinct))
            for i in range(rows):
                for j in range(keys):
                    nearest = min(nearest, abs(sums[i, j] - mu - k * sigma))
                    if sums[i, j] > mu + k * sigma:
                        result[h, i, j] = max(result[h, i, j], sums[i, j])
        if site == "cross":
            result[h, 0, keys - 1] = max(result[h, 0, keys - 1], 0)
        elif np.isneginf(result[h]).all():
            result[h] = 0
    return result, nearest


@given(attentions(), DIRS, st.sampled_from([0.0, 0.5, 0.87, 1.5, 2.3]), st.sampled_from(SITES[1:]))
def test_sums_extend_as_in_the_public_code(given_, dirs, threshold, site):
    attention, shape = given_
    expected, nearest = summed_by_hand(attention, shape, dirs, threshold, site)
    assume(nearest > 1e-9)
    bias = extend_bias(attention, shape, dirs, threshold, average="sum", site=site)
    assert (np.isinf(bias) == np.isinf(expected)).all()
    np.testing.assert_allclose(bias, expected, rtol=0, atol=1e-12)
