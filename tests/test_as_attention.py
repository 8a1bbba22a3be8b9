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


def test_weights_that_do_not_fit_are_refused():
    batch = reversing(4)
    with pytest.raises(UsageError, match="no attention weights"):
        abc.as_attention([], batch, delimiters=[CLOSE])
    with pytest.raises(UsageError, match="weights over other tokens than the"):
        abc.as_attention(along(5), batch, delimiters=[CLOSE])
    with pytest.raises(UsageError, match="holds no numbers"):
        abc.as_attention([along(4)[0] + torch.nan], batch, delimiters=[CLOSE])
    with pytest.raises(UsageError, match="give whole sources"):
        abc.as_attention(along(4), batch, delimiters=[CLOSE, END + 1])


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
