"""The Transformer: caches, padding and paths change no number."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import additions, assert_greedy, digit_data
from torch import Tensor, nn

from abc_calib.geometry import Line, LineBias
from abc_calib.nn.attend import MANY, MASKED, SHORT, attend, opened
from abc_calib.nn.positions import SCHEMES, Scheme
from abc_calib.nn.positions.absolute import waves
from abc_calib.nn.transformer.attention import GATHER_FROM, Cache
from abc_calib.nn.transformer.model import Transformer
from abc_calib.nn.transformer.windows import window_period

SHAPES = [
    pytest.param({"encoder_layers": 0, "decoder_layers": 2}, id="no-encoder"),
    pytest.param({"encoder_layers": 1, "decoder_layers": 2, "scheme": "none"}, id="encoder"),
    pytest.param({"encoder_layers": 1, "decoder_layers": 2, "post_norm": True}, id="post-norm"),
]
BIASED = ["none", "lines", "some transparent", "one line a head", "window"]
SCHEMED = [
    pytest.param({"encoder_layers": 1, "decoder_layers": 2, "scheme": name}, biased, id=name + end)
    for name in (*SCHEMES, "rpe:clip=3")
    if name not in ("sinusoidal", "none")  # in PLAIN
    for biased, end in (("none", ""), ("some transparent", "-lines"))
    if biased != "none" or SCHEMES[name.partition(":")[0]].score_bias is not Scheme.score_bias
]
MODIFIED = [
    pytest.param({"encoder_layers": 1, "scheme": name, "cyclic": 3}, biased, id=f"cyclic-{name}")
    for name, biased in zip(
        ("sinusoidal", "learned", "rope", "rpe", "xl"),
        ("window", "none", "window", "none", "window"),
        strict=True,
    )
]
PLAIN = [
    *(pytest.param(*SHAPES[1].values, biased, id=f"encoder-{biased}") for biased in BIASED),
    *(pytest.param(*SHAPES[0].values, biased, id=f"no-encoder-{biased}") for biased in BIASED[::2]),
]
CASES = [*PLAIN, *SCHEMED, *MODIFIED]
"""Shapes and biases: the plain schemes with each bias, every scheme with lines and, if it changes
scores, without; and with cyclic positions."""


@pytest.fixture
def sources() -> Tensor:
    return additions()


@pytest.fixture
def outputs() -> Tensor:
    """What the decoder reads, SOS first."""
    torch.manual_seed(1)
    return torch.cat([torch.full((7, 1), 12), torch.randint(0, 10, (7, 10))], 1)


def logits_of(model: Transformer, source: Tensor, read: Tensor) -> Tensor:
    """In one pass, without a cache."""
    return model.run(model.encode(source), read)


# Decoding


@pytest.mark.parametrize(("shape", "biased"), CASES)
@torch.no_grad()
def test_a_cache_changes_neither_logits_nor_what_is_decoded(build, sources, outputs, shape, biased):
    """Also where the cache is fed several tokens at once."""
    model = build(shape, biased, seed=2)
    encoded = model.encode(sources)
    expected = model.run(encoded, outputs)
    cache = Cache()
    parts = [model.run(encoded, part, cache) for part in outputs.split([1, 4, 1, 5], 1)]
    torch.testing.assert_close(torch.cat(parts, 1), expected, rtol=1e-4, atol=1e-5)
    assert cache.at.size == 11
    assert_greedy(model, sources, model.decode(sources, 13).ids)


@pytest.mark.parametrize("biased", ["lines", "one line a head"])
@torch.no_grad()
def test_a_cache_of_many_keys_gathers_them(build, sources, biased):
    """Beyond ``GATHER_FROM`` keys, token by token: what dense attention gives in one pass."""
    model = build({"encoder_layers": 1, "scheme": "none"}, biased, seed=2).double()
    read = torch.randint(0, 10, (7, GATHER_FROM + 6), generator=torch.Generator().manual_seed(0))
    encoded, cache = model.encode(sources), Cache()
    steps = [model.run(encoded, token, cache) for token in read.split(1, 1)]
    model.set_path("dense")
    expected = logits_of(model, sources, read)
    torch.testing.assert_close(torch.cat(steps, 1), expected, rtol=1e-9, atol=1e-9)


# Padding


@pytest.mark.parametrize(("shape", "biased"), CASES)
@torch.no_grad()
def test_logits_depend_neither_on_padding_nor_on_later_tokens(
    build, sources, outputs, shape, biased
):
    model = build(shape, biased, seed=4)
    together = logits_of(model, sources, outputs)
    for row in range(7):
        length = int((sources[row] != 14).sum())
        alone = logits_of(model, sources[row : row + 1, :length], outputs[row : row + 1])
        torch.testing.assert_close(together[row : row + 1], alone, rtol=1e-4, atol=1e-5)
    changed = outputs.clone()
    changed[:, 6] = (changed[:, 6] + 1) % 10
    after = logits_of(model, sources, changed)
    torch.testing.assert_close(together[:, :6], after[:, :6], rtol=0, atol=1e-6)
    assert not torch.allclose(together[:, 6], after[:, 6])


@torch.no_grad()
def test_post_norm_layers_and_embeddings_are_those_of_vaswani(model_for, sources, outputs):
    """Against torch's own decoder layer, with the same weights."""
    model = model_for(digit_data(), encoder_layers=0, post_norm=True)
    (block,) = model.layers
    theirs = nn.TransformerDecoderLayer(16, 2, 32, batch_first=True).eval()
    for mine, other in zip(
        block.attentions, (theirs.self_attn, theirs.multihead_attn), strict=True
    ):
        parts = [mine.query, mine.key, mine.value]
        other.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        other.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
        other.out_proj.load_state_dict(mine.output.state_dict())
    for mine, other in zip(block.norms, (theirs.norm1, theirs.norm2, theirs.norm3), strict=True):
        other.load_state_dict(mine.state_dict())
    theirs.linear1.load_state_dict(block.feedforward[0].state_dict())
    theirs.linear2.load_state_dict(block.feedforward[3].state_dict())
    source, read = (
        4 * model.embed(ids) + waves(torch.arange(ids.shape[1]), 16) for ids in (sources, outputs)
    )
    mask = nn.Transformer.generate_square_subsequent_mask(outputs.shape[1])
    states = theirs(read, source, mask, memory_key_padding_mask=sources == model.pad)
    expected = model.head(model.norm(states))
    torch.testing.assert_close(logits_of(model, sources, outputs), expected, rtol=1e-4, atol=1e-5)


def test_no_certificate_is_about_post_norm(build):
    shape = {"encoder_layers": 0, "decoder_layers": 2, "scheme": "none"}
    assert window_period(build(shape, "one line a head")) == 1
    why = window_period(build({**shape, "post_norm": True}, "one line a head"))
    assert why == "its blocks are post-norm"


# Attention weights and paths


@pytest.mark.parametrize(("shape", "biased"), CASES)
@torch.no_grad()
def test_attention_weights_are_there_and_sum_to_one(build, sources, shape, biased):
    """Asking for weights switches away from the fused kernel, which has none, in silence."""
    model, target = build(shape, biased, seed=7), digit_data().training(0, 7).target
    plain, s, t = model(sources, target), sources.shape[1], target.shape[1]
    scores: list[Tensor] = []
    seen = model.run(model.encode(sources, scores=scores), model.shifted(target), scores=scores)
    torch.testing.assert_close(seen, plain, rtol=1e-4, atol=1e-5)
    found = model.attention(sources, target)
    for site, count, size in (
        ("encoder", model.options.encoder_layers, (s, s)),
        ("self", 2, (t, t)),
        ("cross", 2, (t, s)),
    ):
        assert len(found.weights[site]) == count
        for layer in found.weights[site]:
            assert layer.shape == (7, 2, *size)
            torch.testing.assert_close(layer.sum(-1), torch.ones(7, 2, size[0]))
        view = found.views.get(site)
        assert view is None or (view.site, view.queries.size, view.keys.size) == (site, *size)
        assert view is not None or not count
    if biased == "none":
        for layer in found.weights["cross"]:
            assert not layer.permute(0, 3, 1, 2)[sources == 14].any()
    for layer in found.weights["self"]:
        assert not layer.triu(1).any()
    assert torch.equal(found.rows["cross"], target != 14)
    assert not model.options.encoder_layers or torch.equal(found.rows["encoder"], sources != 14)


@pytest.mark.parametrize("biased", ["lines", "one line a head", "window"])
@torch.no_grad()
def test_dense_and_gathered_paths_give_the_same_logits(build, biased):
    """In a batch padded to unequal lengths and in one of a single shape, short and long."""
    model = build({"encoder_layers": 1, "scheme": "none"}, biased, seed=8).double()
    data = digit_data()
    for batch in (data.training(0, 7), data.validation(5), data.test(53, 3)):
        logits = {}
        for path in ("dense", "lines", "auto"):
            model.set_path(path)
            logits[path] = model(batch.source, batch.target)
        for path in ("lines", "auto"):
            torch.testing.assert_close(logits[path], logits["dense"], rtol=1e-9, atol=1e-9)


# Calibrated lines


@pytest.mark.parametrize("keys", [5, 15, 16, 40])
@pytest.mark.parametrize("biased", [(96, 1), (1, 4)], ids=str)
def test_attention_over_few_keys_is_that_of_torch(keys, biased):
    generator = torch.Generator().manual_seed(keys)

    def drawn(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()

    b, h, i, e = 96, 4, 9, 8
    parts = drawn(b, h, i, e), drawn(b, h, keys, e), drawn(b, h, keys, e), drawn(*biased, i, keys)
    assert b * h * i * keys >= MANY and keys <= SHORT
    closed = torch.rand((*biased, i, keys), generator=generator) < 0.3
    closed[..., 0] = False
    bias = parts[3].masked_fill(closed, MASKED)
    given = (*parts[:3], bias)
    mine, theirs = attend(*given, 0.0), F.scaled_dot_product_attention(*given)
    torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-12)
    weights = torch.randn(mine.shape, generator=generator, dtype=torch.float64)
    for one, other in zip(
        torch.autograd.grad(mine, parts, weights, retain_graph=True),
        torch.autograd.grad(theirs, parts, weights),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-11)


# Training


@pytest.mark.parametrize(("shape", "biased"), CASES)
def test_every_weight_is_trained(build, shape, biased):
    model = build(shape, biased, seed=10).train()
    batch = digit_data().training(0, 31)
    model.loss(batch.source, batch.target).backward()
    for name, weight in model.named_parameters():
        # where lines leave one key, softmax is 1 whatever the query: its weights are not needed
        compares = any(part in name for part in (".query.", ".key.", ".norms.1.", ".scheme."))
        if biased != "none" and compares:
            continue
        assert weight.grad is not None and weight.grad.isfinite().all(), name
        if not name.endswith("key.bias"):  # softmax ignores what all keys have in common
            assert weight.grad.any(), name


def test_the_loss_is_cross_entropy_without_padding(build):
    model = build({}, "none")
    batch = digit_data().training(0, 11)
    loss = model.loss(batch.source, batch.target)
    shifted = torch.cat([torch.full((11, 1), 12), batch.target[:, :-1]], 1)
    assert torch.equal(model.shifted(batch.target), shifted)
    logits = model(batch.source, batch.target)
    chances = logits.log_softmax(-1).gather(-1, batch.target[..., None])[..., 0]
    counted = batch.target != 14
    torch.testing.assert_close(loss, -chances[counted].mean())
    torch.testing.assert_close(model.cross_entropy(logits, batch.target), loss)
    ignored = batch.target.masked_fill(~counted, -100)
    torch.testing.assert_close(model.loss(batch.source, ignored), loss)
    assert torch.equal(model.shifted(ignored), shifted)


def test_a_masked_key_weighs_nothing_whatever_its_score(model_for):
    """Heads of one and of two lines, scores of 1e10 and more, computed densely and along lines."""
    assert (torch.tensor([-1e30, MASKED]) + torch.tensor([0.0, 1e30])).softmax(0).tolist() == [1, 0]
    bias, nowhere = opened(torch.tensor([[MASKED, MASKED], [0.0, MASKED]]))
    assert nowhere.tolist() == [[True], [False]] and bias[0].tolist() == [0.0, 0.0]
    data: Any = digit_data("addition")
    model = model_for(data, width=8, feedforward=8, scheme="none").double()
    cross = ((Line("anti", 1, 0),), (Line("anti", 1, 0), Line("anti", 2, 0, -1.0)))
    own = ((Line("diag", 0, 0), Line("diag", 0, -1)), (Line("diag", 0, 0),))
    model.set_lines(LineBias({"self": (own,), "cross": (cross,)}))
    with torch.no_grad():
        for attention in model.layers[0].attentions:
            for part in (attention.query, attention.key):
                part.weight.mul_(1e6)
    batch, found = data.test(12, 8), []
    for path in ("dense", "lines"):
        model.set_path(path)
        found.append(model(batch.source, batch.target))
    assert found[0].isfinite().all()
    torch.testing.assert_close(*found)


PEAK = """
import re, torch
from abc_calib.geometry.window import window_bias
from abc_calib.config import TransformerOptions
from abc_calib.data.vocabulary import TokenIds
from abc_calib.nn.transformer.model import Transformer

torch.set_num_threads(1)
torch.set_grad_enabled(False)
peak = lambda: 1024 * int(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1])
for layers in (0, 1):
    options = TransformerOptions(scheme="none", encoder_layers=layers)
    model = Transformer(options, TokenIds(15, 14, 12, 13, (12, 10, 11, 13))).eval()
    lines = window_bias(3, model.attention_layers, options.heads, 2, 1)
    model.set_lines(lines)
    for tokens in (2_000, 40_000):
        before = peak()
        encoded = model.encode(torch.randint(0, 9, (1, tokens)))
    print(peak() - before, model.memory_needed(1, tokens, 1))
    del encoded
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peaks are read from /proc")
def test_a_long_source_takes_no_more_memory_than_was_said():
    """Of a model that follows lines, and no less than a twentieth."""
    out = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True)
    for taken, said in (map(int, line.split()) for line in out.stdout.splitlines()):
        assert said / 20 < taken < said
