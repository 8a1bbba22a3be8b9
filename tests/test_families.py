"""Which families of transformers can be calibrated: the table in the docs, checked."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from families import FAMILIES, of_family
from others import WORDS

from abc_calib.config import ForeignOptions
from abc_calib.data.vocabulary import TokenIds
from abc_calib.errors import UsageError
from abc_calib.nn.foreign.checks import try_out
from abc_calib.nn.foreign.model import Foreign
from abc_calib.nn.saved import read_weights

PAGE = (Path(__file__).parent.parent / "docs" / "foreign-models.md").read_text()
ROWS = re.findall(r"^\| (can be calibrated|refused: \"(.*)\") \| (.*) \|$", PAGE, re.MULTILINE)
TOLD = {name: words for _, words, names in ROWS for name in names.split(", ")}
SOS, PLUS, EQUALS = len(WORDS) + 1, 14, 15
TOKENS = TokenIds(len(WORDS) + 2, len(WORDS), SOS, 2, (SOS, PLUS, EQUALS))


def test_the_table_names_the_families():
    assert sorted(TOLD) == sorted(FAMILIES)


def taken(model: Any) -> Foreign:
    """The model as a run holds it."""
    config = json.loads(json.dumps(model.config.to_dict(), default=str))
    options = ForeignOptions(folder="", architecture=type(model).__name__, config=config)
    made = Foreign(options, TOKENS).eval()
    made.network.load_state_dict(model.state_dict())
    return made


@pytest.mark.parametrize("name", ["Marian", "GPT-NeoX", "BART", "T5"])
def test_weights_are_read_as_their_class_writes_them(name, tmp_path):
    """Marian's files leave out its positions, GPT-NeoX' have other names."""
    one, other = taken(of_family(name)), taken(of_family(name))
    one.network.save_pretrained(tmp_path)
    with torch.no_grad():
        for weight in other.parameters():
            weight.fill_(0.5)
    assert other.read_weights(read_weights(tmp_path / "model.safetensors"))
    for (key, weight), read in zip(one.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(weight, read), key


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_is_calibrated_or_refused_as_the_table_says(name):
    model = of_family(name)
    rng = torch.Generator().manual_seed(0)
    source, target = (torch.randint(4, 14, (16, n), generator=rng) for n in (9, 5))
    source[:, [0, 4, 8]] = torch.tensor([SOS, PLUS, EQUALS])
    target[:, -1] = TOKENS.eos

    if not TOLD[name]:
        try_out(taken(model), source, target)
        return
    with pytest.raises(UsageError, match=TOLD[name]) as found:
        try_out(taken(model), source, target)
    assert "\n" not in str(found.value)
