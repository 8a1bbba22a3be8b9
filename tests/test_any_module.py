"""Modules of a user's own: their attention is read, and lines are put in, at their softmax."""

from __future__ import annotations

import itertools
import re
import warnings
from collections import defaultdict
from importlib import util
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import abc_calib as abc
from abc_calib.errors import AbcWarning, UsageError

CLOSE, END, SIZE = 10, 11, 12
"""Ids: ten digits, what closes a source, the end; sequences are ``a b c = c b a end``."""


class Plain(nn.Module):
    """A decoder-only Transformer as one writes it by hand; it notes its weights."""

    def __init__(self, how: str, heads: int = 2, layers: int = 3, width: int = 16):
        super().__init__()
        self.how, self.heads = how, heads
        self.embedding, self.head = nn.Embedding(SIZE, width), nn.Linear(width, SIZE)
        self.projections = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.noted: list[Tensor] = []

    def forward(self, ids: Tensor) -> Tensor:
        x, self.noted = self.embedding(ids), []
        n, heads = ids.shape[1], self.heads
        later = torch.ones(n, n, dtype=torch.bool).triu(1)
        for projection in self.projections:
            q, k, v = projection(x).view(*ids.shape, 3, heads, -1).permute(2, 0, 3, 1, 4)
            scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(later, -torch.inf)
            self.noted.append(scores.exp() / scores.exp().sum(-1, keepdim=True))
            if self.how == "fused":
                mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            elif self.how == "flat":
                weights = scores.flatten(0, 1).softmax(dim=2)
                mixed = (weights @ v.flatten(0, 1)).view(v.shape)
            else:
                mixed = torch.softmax(scores, dim=-1) @ v
            x = x + mixed.transpose(1, 2).flatten(2)
        return self.head(x)


class Stacked(nn.Module):
    """The same of torch's own layers."""

    def __init__(self, heads: int = 2, layers: int = 3):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, heads, 32, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.embedding, self.head = nn.Embedding(SIZE, 16), nn.Linear(16, SIZE)

    def forward(self, ids: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        return self.head(self.body(self.embedding(ids), mask=mask, is_causal=True))


def reversing(width: int, samples: int = 5) -> dict[str, Tensor]:
    digits = torch.randint(10, (samples, width), generator=torch.Generator().manual_seed(width))
    close, end = (torch.full((samples, 1), token) for token in (CLOSE, END))
    ids = torch.cat([digits, close, digits.flip(1), end], 1)
    labels = ids.clone()
    labels[:, : width + 1] = -100
    return {"input_ids": ids, "labels": labels}


def along(width: int, heads: int = 2, layers: int = 3) -> list[Tensor]:
    """Attention of heads that read what they write: of column ``t`` the digit ``width - 1 - t``."""
    n = 2 * width + 2
    weights = torch.zeros(5, heads, n, n)
    for row in range(n):
        there = width <= row < 2 * width
        weights[:, :, row, 2 * width - 1 - row if there else row] = 1
    return [weights] * layers


def reading_lines() -> abc.LineBias:
    """The lines of that attention, found in two widths."""
    found = [
        abc.as_attention(along(width), reversing(width), delimiters=[CLOSE]) for width in (4, 6)
    ]
    return abc.fit_lines(found, threshold=0.5)


def of_x_transformers(fused: bool) -> nn.Module:
    x = pytest.importorskip("x_transformers")
    layers = x.Decoder(dim=16, depth=3, heads=2, rotary_pos_emb=True, attn_flash=fused)
    return x.TransformerWrapper(num_tokens=SIZE, max_seq_len=64, attn_layers=layers)


MODULES: dict[str, Any] = {
    **{how: (lambda how=how: Plain(how)) for how in ("fused", "flat", "softmax")},
    "stacked": Stacked,
    "x-transformers": lambda: of_x_transformers(fused=False),
    "x-transformers, fused": lambda: of_x_transformers(fused=True),
}


@pytest.mark.parametrize("kind", ["fused", "flat", "softmax", "x-transformers"])
def test_its_attention_is_what_it_computes(kind):
    module, batch = MODULES[kind]().eval(), reversing(5)
    (read,) = abc.capture(abc.AnyModule(module), batch, delimiters=[CLOSE])
    plain = isinstance(module, Plain)
    every = module.noted if plain else module(batch["input_ids"], return_attn=True)[1]
    written = batch["labels"].roll(-1, 1).ge(0)
    for layer, noted in enumerate(every):
        both = read.weights["self"][layer] + read.weights["cross"][layer]
        assert torch.allclose(both, noted * written[:, None, :, None], atol=1e-6)


@pytest.mark.parametrize("kind", MODULES)
def test_lines_are_followed_at_any_length_and_taken_out_again(kind):
    torch.manual_seed(0)
    module, width = MODULES[kind](), 9
    model, batch = abc.AnyModule(module), reversing(width)
    before = module.eval()(batch["input_ids"])
    assert abc.inject(model, reading_lines(), delimiters=[CLOSE]) is model
    after = module(batch["input_ids"])
    assert not torch.allclose(before, after, atol=1e-3)
    after.sum().backward()
    (read,) = abc.capture(model, batch, delimiters=[CLOSE])
    for weights in read.weights["cross"]:
        for t in range(width):
            wanted = F.one_hot(torch.tensor(width - 1 - t), 2 * width + 2).float()
            assert torch.equal(weights[:, :, width + t], wanted.expand(5, 2, -1))
    batch["input_ids"][:, 0] = (batch["input_ids"][:, 0] + 1) % 10  # read by the last digit alone
    changed = (module(batch["input_ids"]) != after).any(-1).any(0)
    assert changed.nonzero().flatten().tolist() == [0, 2 * width - 1]
    batch = reversing(width)
    abc.inject(model, None)
    assert torch.allclose(module(batch["input_ids"]), before, atol=1e-5)


class Pair(nn.Module):
    """Torch's own encoder-decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Transformer(16, 2, 1, 2, 32, dropout=0.0, batch_first=True)
        self.embedding, self.head = nn.Embedding(SIZE, 16), nn.Linear(16, SIZE)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        return self.head(self.body(self.embedding(source), self.embedding(target), tgt_mask=mask))


def test_an_encoder_decoder_names_its_sites_in_their_order():
    module, width = Pair(), 5
    batch = reversing(width)
    ids = batch["input_ids"]
    given = {"input_ids": ids[:, : width + 1], "labels": ids[:, width + 1 :]}
    given["decoder_input_ids"] = ids[:, width:-1]
    model = abc.AnyModule(module, sites=["encoder", "self", "cross", "self", "cross"])
    (read,) = abc.capture(model, given, delimiters=[CLOSE])
    assert {site: len(x) for site, x in read.weights.items()} == {
        **{"encoder": 1, "self": 2, "cross": 2}
    }
    assert read.weights["cross"][1].shape == (5, 2, width + 1, width + 1)
    own = (((abc.Line("diag", 0, 0),),) * 2,)
    source = (((abc.Line("anti", 1, 0),),) * 2,)
    bias = abc.LineBias({"encoder": own, "self": own * 2, "cross": source * 2})
    abc.inject(model, bias)
    (read,) = abc.capture(model, given, delimiters=[CLOSE])
    for weights in read.weights["cross"]:
        for t in range(width):
            assert torch.equal(weights[:, :, t].argmax(-1), torch.full((5, 2), width - 1 - t))
    assert torch.equal(read.weights["self"][0], torch.eye(width + 1).expand(5, 2, -1, -1))


def test_contradictions_are_those_that_counting_windows_finds():
    bias, batch = reading_lines(), reversing(4, samples=400)
    assert abc.contradictions(bias, batch, delimiters=[CLOSE]) == (0, 2000)
    one = abc.LineBias({site: layers[:1] for site, layers in bias.sites.items()}, stream=True)
    ids, labels = batch["input_ids"], batch["labels"].clone()
    labels[:, 5] = (ids[:, 3] + (ids[:, 2] > 7)) % 10  # its first row would have to read two digits
    rows = [
        ((int(ids[b, row]), int(ids[b, 7 - row]) if row < 8 else -1), int(labels[b, row + 1]))
        for b, row in itertools.product(range(400), range(4, 9))
    ]
    written = defaultdict(set)
    for window, token in rows:
        written[window].add(token)
    wanted = sum(len(written[window]) > 1 for window, _ in rows)
    given = batch | {"labels": labels}
    assert wanted > 300
    assert abc.contradictions(one, given, delimiters=[CLOSE]) == (wanted, 2000)
    found = [abc.as_attention(along(4), reversing(4), delimiters=[CLOSE])]
    with pytest.warns(AbcWarning, match="no model is right in all of them"):
        abc.fit_lines(found, threshold=0.5, batches=[given], delimiters=[CLOSE])


def test_an_attention_draws_itself():
    attention = abc.as_attention(along(4), reversing(4), delimiters=[CLOSE])
    assert attention._repr_html_().count("data:image/png;base64,") == 6
    image = attention.image("cross", 1)
    assert image.shape == (160, 2 * 160 + 4, 3) and tuple(image[4 * 16, 3 * 16]) == (253, 231, 36)
    with pytest.raises(UsageError, match=r"no attention 'cross', layer 7.*layers 0 to 2"):
        attention.image("cross", 7)


class Other(nn.Module):
    """Its attention takes no softmax of torch's."""

    def forward(self, ids: Tensor) -> Tensor:
        scores = torch.ones(len(ids), 2, ids.shape[1], ids.shape[1]).exp()
        return scores / scores.sum(-1, keepdim=True)


def test_what_cannot_be_read_or_followed_is_refused():
    batch, lines = reversing(4), reading_lines()
    with pytest.raises(UsageError, match="took 0 softmaxes"):
        abc.capture(abc.AnyModule(Other()), batch, delimiters=[CLOSE])
    model = abc.AnyModule(Plain("softmax", layers=2))
    with pytest.raises(UsageError, match="does not know the delimiters"):
        abc.inject(model, lines)
    abc.inject(model, lines, delimiters=[CLOSE])
    with pytest.raises(UsageError, match="lines of 3 attentions, and 2 met"):
        model.module(batch["input_ids"])
    with pytest.raises(UsageError, match="give whole sources"):
        model.module(batch["input_ids"][:, 6:])
    abc.inject(model, None)
    assert model.module(batch["input_ids"]).shape == (5, 10, SIZE)
    many = abc.AnyModule(Plain("softmax", heads=4))
    abc.inject(many, lines, delimiters=[CLOSE])
    with pytest.raises(UsageError, match="not of a layer 0 of 4 heads"):
        many.module(batch["input_ids"])
    with pytest.raises(UsageError, match="neutral is for models of transformers"):
        abc.inject(many, lines, neutral=True)
    with pytest.raises(UsageError, match="decoder-only model, and this is an encoder-decoder"):
        abc.inject(abc.AnyModule(Pair(), sites=["encoder"]), lines, delimiters=[CLOSE])
    wrong: Any = "plain"
    with pytest.raises(UsageError, match="give Module"):
        abc.AnyModule(wrong)


def test_the_guide_runs():
    page = (Path(__file__).parents[1] / "docs" / "any-module.md").read_text()
    mine, other, *_ = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    there: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AbcWarning)  # its weights are random
        exec(mine, there)
    assert there["pixels"].shape[2] == 3 and there["model"].lines is there["bias"]
    if util.find_spec("x_transformers"):
        exec(other, there)
        assert there["net"](there["batches"][0]["input_ids"]).shape == (64, 8, 12)
