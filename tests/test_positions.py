"""Position schemes against their formulas."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from conftest import standing, view_of
from torch import Tensor
from transformers import LlamaConfig
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention

from abc_calib.errors import UsageError
from abc_calib.geometry import SITES
from abc_calib.geometry.coords import AttentionView
from abc_calib.nn.positions import SCHEMES, Scheme, build_scheme, check_scheme
from abc_calib.nn.positions.absolute import waves
from abc_calib.nn.positions.distance import bucket, slopes
from abc_calib.nn.transformer.attention import draw

H, E = 3, 14
"""Heads and their width, where a test needs a shape of unequal sizes."""


def places(site: Any = "self", rows=range(5), keys: int = 7, lengths=(7,)) -> AttentionView:
    return view_of(site, rows, keys, lengths)


def vectors(samples: int, length: int) -> Tensor:
    return torch.randn(samples, H, length, E, dtype=torch.float64)


def slow_bias(where: AttentionView, at) -> Tensor:
    """``at(b, h, i, j)`` of indices, over 2 samples, cell by cell."""
    shape = (2, H, where.queries.size, where.keys.size)
    bias = torch.zeros(shape, dtype=torch.float64)
    for cell in torch.cartesian_prod(*map(torch.arange, shape)).tolist():
        bias[tuple(cell)] = at(*cell)
    return bias


# Absolute positions


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_places_differ_in_half_precision(dtype):
    """They are computed in float32 and rounded; in the weights' type most neighbours are equal."""
    at = standing(torch.arange(4000))
    embedded = build_scheme("sinusoidal", 64, 1).embed(torch.zeros(1, 4000, 64, dtype=dtype), at)[0]
    assert embedded.dtype == dtype
    assert (embedded[1:] == embedded[:-1]).all(1).sum() == 0
    fire = build_scheme("fire", 8, 2).to(dtype)
    view = view_of("self", [1099], 1100, (1100,))
    bias = fire.score_bias(torch.zeros(1, 2, 1, 4, dtype=dtype), torch.zeros(1), view)
    exact = fire.float().score_bias(torch.zeros(1, 2, 1, 4), torch.zeros(1), view)
    assert bias.dtype == dtype and torch.allclose(bias.float(), exact, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("width", [2, 7, 16])
def test_sinusoidal_is_the_formula_of_vaswani(width):
    """PE(p, 2k) = sin(p / 10000^(2k/d)), PE(p, 2k+1) = cos of the same."""
    scheme = build_scheme("sinusoidal", width, 1)
    positions = torch.tensor([0, 1, 5, 97, 1009])
    waves = scheme.embed(torch.zeros(1, 5, width, dtype=torch.float64), standing(positions))[0]
    for row, position in enumerate(positions.tolist()):
        for column in range(width):
            angle = position / 10000 ** (2 * (column // 2) / width)
            expected = math.cos(angle) if column % 2 else math.sin(angle)
            assert waves[row, column].item() == pytest.approx(expected, abs=2e-4)


def test_learned_positions_are_rows_of_a_table_and_beyond_it_the_last():
    scheme = build_scheme("learned:size=5", 6, 2)
    x = torch.randn(3, 4, 6)
    added = scheme.embed(x, standing([0, 4, 5, 1009])) - x
    torch.testing.assert_close(added, scheme.table[[0, 4, 4, 4]].expand(3, 4, 6))
    assert build_scheme("learned", 6, 2).table.shape == (128, 6)


def test_randomized_positions_are_an_ordered_subset_in_training():
    """Ruoss et al. 2023, section 3.1: without replacement, sorted, another one for each sample."""
    scheme = build_scheme("randomized:max=97", 6, 2).train()
    torch.manual_seed(0)
    draws = [scheme.renumber(torch.arange(7)[None], torch.tensor([[7], [7]])) for _ in range(400)]
    drawn = torch.cat(draws)
    assert drawn.shape == (800, 7)
    assert (drawn.diff(dim=1) > 0).all() and drawn.min() == 0 and drawn.max() == 96
    assert not torch.equal(draws[0][0], draws[0][1])
    means = drawn.double().mean(0)  # of the k-th of n order statistics of 0 .. L-1
    expected = torch.arange(1, 8) * 98 / 8 - 1
    torch.testing.assert_close(means, expected.double(), rtol=0, atol=2.5)


def test_randomized_positions_of_a_length_are_always_the_same_in_evaluation():
    scheme = build_scheme("randomized:max=97", 6, 2).eval()
    lengths, nine = torch.tensor([[5], [9], [5]]), torch.arange(9)[None]
    drawn = scheme.renumber(nine, lengths)
    assert torch.equal(drawn[0], drawn[2])
    assert not torch.equal(drawn[0, :5], drawn[1, :5])
    assert torch.equal(drawn[1:2], scheme.renumber(nine, lengths[1:2]))
    assert (drawn.diff(dim=1) > 0).all()
    assert torch.equal(scheme.renumber(nine[:, 3:], lengths), drawn[:, 3:])
    x = torch.randn(3, 9, 6)
    torch.testing.assert_close(scheme.embed(x, standing(drawn)) - x, waves(drawn, 6))
    largest = build_scheme("randomized:max=8", 6, 2).eval()
    assert largest.renumber(torch.arange(8)[None], torch.tensor([[8]])).tolist() == [[*range(8)]]
    with pytest.raises(UsageError, match="a source of 9 tokens, and max = 8: train with a larger"):
        largest.renumber(nine, torch.tensor([[9]]))


# ALiBi


def test_alibi_slopes_are_those_of_transformers():
    for heads in range(1, 20):
        bloom = build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)[:, 0, 1]
        torch.testing.assert_close(torch.tensor(slopes(heads)), bloom)
        mpt = build_mpt_alibi_tensor(heads, 2)[:, 0, 0]
        torch.testing.assert_close(torch.tensor(slopes(heads)), -mpt)


@pytest.mark.parametrize("site", SITES)
def test_alibi_falls_with_distance(site):
    where = places(site, rows=[4, 5, 6])
    expected = slow_bias(where, lambda b, h, i, j: -slopes(H)[h] * abs(4 + i - j))
    bias = build_scheme("alibi", H * E, H).score_bias(vectors(2, 3), vectors(2, 7), where)
    torch.testing.assert_close(bias.double().expand(2, -1, -1, -1), expected)


# RoPE


def test_rope_is_that_of_llama_with_columns_reordered():
    """Llama pairs column k with k + e/2, the paper 2k with 2k + 1."""
    config = LlamaConfig(hidden_size=H * E, num_attention_heads=H, head_dim=E)
    positions = torch.arange(97)
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1), positions[None])
    x = torch.randn(2, H, 97, E)
    order = torch.cat([torch.arange(0, E, 2), torch.arange(1, E, 2)])
    expected, _ = apply_rotary_pos_emb(x[..., order], x[..., order], cos, sin)
    turned = build_scheme("rope", H * E, H).rotate(x, standing(positions))
    torch.testing.assert_close(turned[..., order], expected, rtol=1e-4, atol=1e-4)


# Learned relative terms


@pytest.mark.parametrize("site", SITES)
def test_rpe_is_the_key_term_of_shaw(site):
    """Equation 4: q_i . a_clip(j-i, k) / sqrt(e)."""
    scheme = build_scheme("rpe:clip=2", H * E, H).double()
    assert scheme.table.shape == (3, H, 5, E)
    where, queries = places(site, rows=[1, 2, 6]), vectors(2, 3)
    of_keys = scheme.table.detach()[SITES.index(site)]

    def score(b, h, i, j):
        clipped = max(-2, min(2, j - int(where.queries.place[0, i]))) + 2
        return queries[b, h, i] @ of_keys[h, clipped] / E**0.5

    expected = slow_bias(where, score)
    torch.testing.assert_close(scheme.score_bias(queries, vectors(2, 7), where), expected)


@pytest.mark.parametrize("both_sides", [True, False])
def test_t5_buckets_are_those_of_transformers(both_sides):
    offsets = torch.arange(-1009, 1010)[None]
    for buckets, distance in ((32, 128), (8, 20), (6, 50), (4, 3)):
        expected = T5Attention._relative_position_bucket(offsets, both_sides, buckets, distance)
        assert torch.equal(bucket(offsets, both_sides, buckets, distance), expected)


@pytest.mark.parametrize("site", SITES)
def test_t5_adds_a_number_a_head_and_bucket(site):
    scheme = build_scheme("t5:buckets=8,distance=11", H * E, H).double()
    assert scheme.table.shape == (3, 8, H)
    where = places(site, rows=[2, 3, 13], keys=17)
    table = scheme.table.detach()[SITES.index(site)]

    def at(b, h, i, j):
        offset = torch.tensor([[j - int(where.queries.place[0, i])]])
        index = T5Attention._relative_position_bucket(offset, site != "self", 8, 11)
        return table[int(index), h]

    bias = scheme.score_bias(vectors(2, 3), vectors(2, 17), where)
    torch.testing.assert_close(bias.expand(2, -1, -1, -1), slow_bias(where, at))


@pytest.mark.parametrize("site", SITES)
def test_xl_is_the_formula_of_dai(site):
    """(a) q_i k_j + (b) q_i W R_(i-j) + (c) u k_j + (d) v W R_(i-j), over sqrt(e)."""
    scheme = build_scheme("xl", H * E, H).double()
    where, queries, keys = places(site, rows=[3, 4, 9]), vectors(2, 3), vectors(2, 7)
    w, u, v = (p.detach()[SITES.index(site)] for p in scheme.parameters())
    torch.nn.init.normal_(u), torch.nn.init.normal_(v)

    def at(b, h, i, j):
        distance = where.queries.place[0, i] - j
        r = w[h] @ waves(distance[None], H * E)[0].double()
        q, k = queries[b, h, i], keys[b, h, j]
        return (q @ k + q @ r + u[h] @ k + v[h] @ r) / E**0.5

    scores = queries @ keys.transpose(-1, -2) / E**0.5
    scores = scores + scheme.score_bias(queries, keys, where)
    torch.testing.assert_close(scores, slow_bias(where, at))


# Every scheme


@pytest.mark.parametrize("name", SCHEMES)
def test_schemes_say_what_they_are(name):
    """Unless they ``embed``, scores follow from relative positions; ``has_score_bias`` holds.

    Nothing is kept in buffers: they would come back as garbage from ``from_pretrained``.
    """
    scheme = build_scheme(name, H * E, H).double()
    assert {n for n, _ in scheme.named_buffers()} <= set(scheme.state_dict())
    x, q, k = torch.randn(2, 5, H * E), vectors(2, 5), vectors(2, 5)
    for site in SITES:
        scores = []
        for start in (0, 30):
            here = standing(torch.arange(start, start + 5), lengths=[5])
            bias = scheme.score_bias(q, k, AttentionView(site, here, here))
            assert (bias is not None) == scheme.has_score_bias
            if bias is not None:
                assert bias.shape in [(2, H, 5, 5), (1, H, 5, 5)]
            product = scheme.rotate(q, here) @ scheme.rotate(k, here).transpose(-1, -2)
            scores.append(product if bias is None else product + bias)
            assert torch.equal(scheme.embed(x, here), x) == (type(scheme).embed is Scheme.embed)
        torch.testing.assert_close(*scores, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", ["rpe", "t5", "xl"])
def test_sites_share_no_parameter_and_have_one_only_if_they_have_layers(name):
    scheme = build_scheme(name, H * E, H, ("self", "cross"))
    for parameter in scheme.parameters():
        assert len(parameter) == 2
    q, k = vectors(1, 5).float(), vectors(1, 7).float()
    bias = scheme.score_bias(q, k, places("cross"))
    for gradient in torch.autograd.grad(bias.square().sum(), list(scheme.parameters())):
        assert not gradient[0].any() and gradient[1].any()


def test_fresh_parameters_are_filled_in(make_model):
    """Whatever memory held before does not stay."""
    for name in SCHEMES:
        model = make_model(scheme=name, encoder_layers=1)
        for parameter in model.positions.parameters():
            parameter.data.fill_(torch.nan)
        model.apply(draw)
        for parameter in model.positions.parameters():
            assert parameter.isfinite().all() and parameter.abs().sum() > 0


# Cyclic positions


def test_cyclic_positions_count_the_source_from_its_end_in_one_phase(make_model):
    """So that row i and the i-th digit from the end stay in step, from any phase in training."""
    model = make_model(cyclic=3, decoder_layers=1)
    source = torch.tensor([[12, 1, 2, 3, 4, 5, 13], [12, 1, 2, 3, 13, 14, 14]])
    phases = set()
    for training in (True, False):
        model.train(training)
        drawn = [model.encode(source).phase for _ in range(30)]
        phases.add(tuple(sorted(set(drawn))))
    assert phases == {(0, 1, 2), (0,)}
    encoded = model.encode(source)
    assert encoded.at.place.tolist() == [[0, 2, 1, 0, 2, 1, 0], [1, 0, 2, 1, 0, 2, 1]]
    for phase in (0, 2):
        at = model.placed(source[:, :5], replace(encoded, phase=phase))
        assert at.place.tolist() == [[(row + phase) % 3 for row in range(5)]]
        where = AttentionView(
            "cross", at, replace(encoded.at, place=(encoded.at.place + phase) % 3)
        )
        expected = where.keys.place[:, None] - at.place[0][:, None]
        assert torch.equal(where.offsets()[:, 0], expected)


# Names and options


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "rpe:clip=0",
            "scheme 'rpe:clip=0': clip = '0': give a whole number of at least 1",
        ),
        ("rpe:clip", "'clip' is not an option; options, once each: clip=..."),
        ("randomized:max=1", "max = '1': give a whole number of at least 2"),
        ("t5:buckets=7", "buckets = '7': .*multiple of 2"),
        ("t5:buckets=8,distance=4", "distance = 4 must be more than half of buckets = 8"),
        ("abacus:size=5,offset=4", "moves places beyond size = 5"),
        ("abacus:offset=-1", "give a whole number of at least 0"),
        ("fire:threshold=nan", "give a number above 0"),
        ("fire:hidden=0", "give a whole number from 1 to 4,096"),
        ("coupled:size=1", "give a whole number of at least 4"),
        ("coupled:rows=three", "give none, operands, first, second or own"),
    ],
)
def test_a_bad_scheme_is_refused(given, message):
    for make in (build_scheme, check_scheme):
        with pytest.raises(UsageError, match=message):
            make(given, 8, 2)
