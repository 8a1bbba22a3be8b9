"""Attention that another tool has read: its lines, and their biases."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import abc_calib as abc
from abc_calib.errors import UsageError
from abc_calib.geometry import Layout

CLOSE, END = 10, 11
"""Ids: ten digits, what closes a source, the end; sequences are ``a b c = c b a end``."""


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
    attention = [
        abc.as_attention(along(width), reversing(width), delimiters=[CLOSE]) for width in (4, 6)
    ]
    return abc.fit_lines(attention, threshold=0.5)


@pytest.mark.parametrize("read", [("encoder", "self", "cross"), ("self", "cross")])
def test_weights_of_an_encoder_decoder_are_taken_by_site(read):
    width = 5
    ids = reversing(width)["input_ids"]
    batch = {"input_ids": ids[:, : width + 1], "labels": ids[:, width + 1 :]}
    anti = torch.eye(width + 1).roll(-1, 0).flip(0).expand(5, 2, -1, -1)  # the last row reads "="
    own = torch.eye(width + 1).expand(5, 2, -1, -1)
    layers = {"encoder": [own], "self": [own, own], "cross": [anti, anti]}
    weights: Any = {site: layers[site] for site in read}
    attention = abc.as_attention(weights, batch, delimiters=[CLOSE])
    bias = abc.fit_lines([attention], threshold=0.5)
    directions = [
        line.direction for layer in bias.sites["cross"] for head in layer for line in head
    ]
    assert len(directions) >= 4 and {*directions} == {"anti"}
    assert not bias.stream and {*bias.sites} >= {"self", "cross"}


LOWER = torch.ones(10, 10).tril()
SEEN = {"labels": torch.full((5, 10), -100)}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x + torch.nan, "holds no numbers"),
        (lambda x: (8 * x).where(LOWER > 0, -torch.inf), "is not weights: its smallest number is"),
        (lambda x: (8 * x).where(LOWER > 0, -3e38), "is not weights: its smallest number is -3e"),
        (lambda x: 100 * x, "a row sums to 100, not to 1: give what softmax returns"),
        (lambda x: 0.3 * x, "a row sums to 0.3, not to 1"),
        (lambda x: x.mT, "a row sums to 0, not to 1"),
        (lambda x: torch.stack([x[:, :1], x[:, 1:]]), ""),
        (lambda x: x.half(), ""),
    ],
)
def test_what_is_not_attention_is_refused(change, words):
    """Scores, percents, weights after dropout; but not a stack, or half precision."""
    layer = change(along(4)[0])
    given = [layer] if layer.dim() == 4 else layer
    if not words:
        assert abc.fit_lines(abc.as_attention(given, reversing(4), delimiters=[CLOSE])).every()
        return
    with pytest.raises(UsageError, match=words):
        abc.as_attention(given, reversing(4), delimiters=[CLOSE])


@pytest.mark.parametrize(
    ("weights", "batch", "marks", "words"),
    [
        ([], {}, {}, "no attention weights"),
        (along(5), {}, {}, "weights over other tokens than the"),
        (along(4), {}, {"delimiters": [CLOSE, END + 1]}, "give whole sources"),
        (along(4), {}, {"delimiters": CLOSE}, "give delimiters, a list of the ids"),
        (along(4), {}, {"prefix": -1}, "and as prefix a number of tokens"),
        (along(4), {"labels": SEEN["labels"][:, :3]}, {}, r"labels are .*\(5, 3\): give each as"),
        (along(4), {"input_ids": SEEN["labels"][0]}, {}, r"are \(10,\), .*: give each as"),
        ({"cross": along(4)}, {}, {}, "attention of cross: give a list"),
        ({"encoder": along(4), "self": along(4)}, {}, {}, "attention of encoder, self: give"),
        ({"self": along(4), "cross": along(5)}, {}, {}, r"a layer of cross is \(5, 2, 12, 12\)"),
    ],
)
def test_weights_that_do_not_fit_are_refused(weights, batch, marks, words):
    with pytest.raises(UsageError, match=words):
        abc.as_attention(weights, {**reversing(4), **batch}, **{"delimiters": [CLOSE], **marks})


def test_evidence_that_does_not_fit_together_is_refused():
    """No rows that count, other heads, other layers; one part, or a generator of some, is taken."""

    def read(heads=2, layers=3, **batch):
        weights, marks = along(4, heads, layers), torch.tensor([CLOSE])
        return abc.as_attention(weights, {**reversing(4), **batch}, delimiters=marks)

    for parts, words in (
        ([read(**SEEN)], "no token counts behind a source"),
        ([read(), read(heads=4)], "with 2 and 4 heads"),
        ([read(), read(layers=2)], "attention of other shapes"),
        (along(4), "give the list that abc.capture gave"),
    ):
        with pytest.raises(UsageError, match=words):
            abc.fit_lines(parts)
    bias = abc.fit_lines(iter([read()]))
    assert bias == abc.fit_lines(read())
    for rows, layout in (([], Layout((4,), ("", "="))), ([5], Layout((), ("",)))):
        with pytest.raises(UsageError, match="give rows of 1 or more tokens"):
            bias.matrix("cross", 0, layout, rows)


def test_padding_is_not_written_though_labels_keep_it():
    batch = {name: F.pad(x, (0, 6)) for name, x in reversing(4).items()}
    batch |= {"attention_mask": F.pad(torch.ones(5, 10), (0, 6)), "labels": batch["input_ids"]}
    weights = [F.pad(x, (0, 6, 0, 6)) for x in along(4)]
    for layer in weights:
        layer[:, :, 10:, 0] = 1
    attention = abc.as_attention(weights, batch, delimiters=[CLOSE])
    assert int(attention.rows["self"].sum()) == 25
    assert abc.fit_lines([attention], threshold=0.5) == reading_lines()


def test_the_guide_runs_and_its_biases_follow_the_lines():
    docs = Path(__file__).parents[1] / "docs"
    shown, *_ = re.findall(r"```python\n(.*?)```", (docs / "any-module.md").read_text(), re.DOTALL)
    code = (docs / "my_module.py").read_text()
    assert code.endswith(shown)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["maps"].shape == (2, 4, 5) and names["logits"].shape == (64, 103, 13)
    module, width = names["module"], 9
    batch = names["reversed_digits"](width)
    biases = [*names["biases_of"](reading_lines(), width)][:2]
    module(batch["input_ids"], biases)
    for weights in module.weights:
        for t in range(width):
            wanted = F.one_hot(torch.tensor(width - t), 2 * width + 3).float()
            assert torch.equal(weights[:, :, width + 1 + t], wanted.expand(64, 2, -1))
