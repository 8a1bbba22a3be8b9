"""Position schemes against their formulas."""

from __future__ import annotations

import math

import pytest
import torch

from abc_calib.errors import UsageError
from abc_calib.nn.positions import SCHEMES, build_scheme


@pytest.mark.parametrize("width", [2, 7, 16])
def test_sinusoidal_is_the_formula_of_vaswani(width):
    """PE(p, 2k) = sin(p / 10000^(2k/d)), PE(p, 2k+1) = cos of the same."""
    scheme = build_scheme("sinusoidal", width, 1)
    positions = torch.tensor([0, 1, 5, 97, 1009])
    waves = scheme.embed(torch.zeros(1, 5, width, dtype=torch.float64), positions)[0]
    for row, position in enumerate(positions.tolist()):
        for column in range(width):
            angle = position / 10000 ** (2 * (column // 2) / width)
            expected = math.cos(angle) if column % 2 else math.sin(angle)
            assert waves[row, column].item() == pytest.approx(expected, abs=2e-4)


def test_sinusoidal_adds_to_the_embeddings_of_every_sample():
    scheme = build_scheme("sinusoidal", 6, 2)
    x = torch.randn(3, 5, 6)
    added = scheme.embed(x, torch.arange(5)) - x
    torch.testing.assert_close(added[0], added[2])
    assert scheme.absolute and not scheme.has_score_bias


def test_no_positions_change_nothing():
    scheme = build_scheme("none", 6, 2)
    x, positions = torch.randn(2, 3, 6), torch.arange(3)
    queries = torch.randn(2, 2, 3, 3)
    assert torch.equal(scheme.embed(x, positions), x)
    assert torch.equal(scheme.rotate(queries, positions), queries)
    assert scheme.score_bias(queries, positions, positions) is None
    assert not scheme.absolute


@pytest.mark.parametrize("name", SCHEMES)
def test_rows_decoded_later_are_embedded_as_in_one_pass(name):
    """A row's positions are absolute: those of a cache's past are not started again."""
    scheme = build_scheme(name, 8, 2)
    x, queries = torch.randn(2, 11, 8), torch.randn(2, 2, 11, 4)
    whole = scheme.embed(x, torch.arange(11)), scheme.rotate(queries, torch.arange(11))
    later = torch.arange(4, 11)
    torch.testing.assert_close(scheme.embed(x[:, 4:], later), whole[0][:, 4:])
    torch.testing.assert_close(scheme.rotate(queries[:, :, 4:], later), whole[1][:, :, 4:])


@pytest.mark.parametrize("name", SCHEMES)
def test_schemes_hold_nothing_that_saving_could_lose(name):
    """Buffers that are not persistent come back as garbage from ``from_pretrained``."""
    scheme = build_scheme(name, 8, 2)
    assert {n for n, _ in scheme.named_buffers()} <= set(scheme.state_dict())


def test_an_unknown_scheme_is_refused():
    with pytest.raises(UsageError, match="unknown scheme 'rotary': choose one of sinusoidal, none"):
        build_scheme("rotary", 8, 2)
