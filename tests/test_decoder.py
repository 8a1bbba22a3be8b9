"""The decoder-only Transformer: one causal stream, and everything that other models do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import TOKENS, additions, assert_greedy, digit_data, in_stream
from torch import Tensor

from abc_calib import stages
from abc_calib.config import DecoderOptions
from abc_calib.errors import UsageError
from abc_calib.geometry import ALONE, Line, LineBias
from abc_calib.nn.base import in_float64
from abc_calib.nn.positions import SCHEMES
from abc_calib.nn.positions.absolute import waves
from abc_calib.nn.transformer.decoder import DecoderOnly

NAMES = (*SCHEMES, "rpe:clip=3")
BIASED = ["none", "lines", "some transparent", "one line a head"]


@pytest.fixture
def build(random_bias):
    """``build(scheme, biased, seed)``: a tiny model, with random lines where asked for."""

    def make(scheme: str = "none", biased: str = "none", seed: int = 0) -> DecoderOnly:
        torch.manual_seed(seed)
        sizes: dict[str, Any] = {"width": 20, "heads": 2, "feedforward": 23, "decoder_layers": 3}
        model = DecoderOnly(DecoderOptions(scheme=scheme, **sizes), TOKENS).eval()
        if biased != "none":
            empty, single = 0.5 * (biased == "some transparent"), biased == "one line a head"
            drawn = random_bias(model.attention_layers, 2, seed, empty, single=single)
            model.set_lines(in_stream(drawn, seed, single))
        return model

    return make


# The stream


def plain(model: DecoderOnly, tokens: Tensor) -> Tensor:
    """Logits ``(n, v)`` of one stream ``tokens (n,)``: an ordinary causal Transformer, no parts."""
    weight, heads = model.state_dict(), model.options.heads
    width, n = model.options.width, len(tokens)

    def linear(name: str, x: Tensor) -> Tensor:
        return x @ weight[name + ".weight"].T + weight[name + ".bias"]

    def norm(name: str, x: Tensor) -> Tensor:
        x = (x - x.mean(1, keepdim=True)) / (x.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
        return x * weight[name + ".weight"] + weight[name + ".bias"]

    x = weight["embed.weight"][tokens]
    if model.options.scheme == "sinusoidal":
        x = x + waves(torch.arange(n), width, torch.float64)
    distance = (torch.arange(n)[:, None] - torch.arange(n)).double()
    slope = torch.tensor([2.0**-4, 2.0**-8], dtype=torch.float64)[:, None, None]
    penalty = -slope * distance if model.options.scheme == "alibi" else 0.0 * distance
    for i in range(model.options.decoder_layers):
        name, y = f"layers.{i}.attention", norm(f"layers.{i}.norms.0", x)
        q, k, v = (
            linear(f"{name}.{what}", y).view(n, heads, -1).transpose(0, 1)
            for what in ("query", "key", "value")
        )
        scores = q @ k.transpose(1, 2) / (width / heads) ** 0.5 + penalty
        mixed = scores.masked_fill(distance < 0, -torch.inf).softmax(-1) @ v
        x = x + linear(f"{name}.output", mixed.transpose(0, 1).reshape(n, width))
        hidden = linear(f"layers.{i}.feedforward.0", norm(f"layers.{i}.norms.1", x)).relu()
        x = x + linear(f"layers.{i}.feedforward.3", hidden)
    return linear("head", norm("norm", x))


@pytest.mark.parametrize("scheme", ["none", "sinusoidal", "alibi"])
@torch.no_grad()
def test_it_is_a_causal_transformer_on_source_and_output(build, scheme):
    model, data = build(scheme).double(), digit_data()
    batch = data.training(0, 7)
    logits = model(batch.source, batch.target)
    for row, target in enumerate(batch.target):
        source = batch.source[row][batch.source[row] != 14]
        stream = torch.cat([source, torch.tensor([12]), target[:-1]])
        expected = plain(model, stream)[len(source) :]
        there = target != 14
        torch.testing.assert_close(logits[row][there], expected[there], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("scheme", "biased"),
    [*(("none", biased) for biased in BIASED), *((name, "some transparent") for name in NAMES)],
)
def test_decoding_with_a_cache_is_the_argmax_step_by_step(build, scheme, biased):
    model = build(scheme, biased, 1)
    assert_greedy(in_float64(model), additions(), model.decode(additions(), 12).ids)


@torch.no_grad()
def test_weights_of_both_parts_are_of_one_softmax(build):
    batch = digit_data().training(0, 7)
    found = build("rope", "lines").attention(batch.source, batch.target)
    for own, crossed in zip(found.weights["self"], found.weights["cross"], strict=True):
        total = own.sum(-1) + crossed.sum(-1)
        torch.testing.assert_close(total, torch.ones_like(total), rtol=1e-5, atol=1e-5)
    assert len(found.weights["encoder"]) == 2
    for layer in found.weights["encoder"]:
        assert (layer.triu(1) == 0).all()


# Lines


def test_lines_that_do_not_fit_are_refused(build, make_model):
    model, alone = build(), (((ALONE,),) * 2,) * 2
    later = (((Line("diag", 0, 1),),) * 2,) * 2
    nothing: Any = (((),) * 2,) * 3
    with pytest.raises(UsageError, match=r"diag \+1 .* leads to later tokens"):
        sites: Any = {"encoder": later, "self": nothing, "cross": nothing}
        model.set_lines(LineBias(sites, stream=True))
    fitting: Any = {"encoder": alone, "self": nothing, "cross": nothing}
    with pytest.raises(UsageError, match="bias is of a model with an encoder"):
        model.set_lines(LineBias(fitting))
    with pytest.raises(UsageError, match="bias is of a decoder-only model"):
        make_model().set_lines(LineBias(fitting, stream=True))


def test_a_bias_says_that_it_is_of_a_stream(build):
    lines = build("none", "lines").lines
    assert lines.stream and not lines.transparent()
    with pytest.raises(TypeError, match="in place of true or false"):
        LineBias.from_dict({"stream": 1})


# From nothing


@pytest.mark.slow
def test_it_is_trained_calibrated_and_certified(tmp_path, monkeypatch, abc):
    monkeypatch.setenv("ABC_RUNS", str(tmp_path))
    shape = {"width": 32, "heads": 4, "feedforward": 64, "decoder_layers": 2}
    run = stages.train("successor", model="decoder", length=5, **shape)
    assert run.config.kind == "decoder"
    assert abc("calibrate", "-q").code == 0
    assert abc("verify", "--json").json()["outcome"] == "certified"
    assert abc("predict", "9" * 60).out.strip().startswith("1" + "0" * 60)
    assert abc("heatmap", "--digits", 12).code == 0
