"""Lines in models of transformers: neutral when zero, the same in every path, found when loaded."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers as tf
from families import FAMILIES, SHAPES, of_family, tiny
from others import WORDS

import abc_calib as abc
from abc_calib.config import ForeignOptions
from abc_calib.data.vocabulary import TokenIds
from abc_calib.errors import UsageError
from abc_calib.geometry import Line, LineBias
from abc_calib.nn.foreign.checks import try_out
from abc_calib.nn.foreign.inject import detach, inject
from abc_calib.nn.foreign.model import Foreign
from abc_calib.nn.saved import read_weights

PLUS, EQUALS = 14, 15
MARKS = [PLUS, EQUALS]
SOURCES = torch.tensor(
    [[4, 5, 6, PLUS, 7, 8, 9, EQUALS], [10, 11, PLUS, 4, 5, 6, 7, EQUALS]]  # 012+345= and so on
)
OUTPUTS = torch.tensor([[6, 12, 5, 9, 4], [8, 8, 7, 10, 11]])


def anti(segment, offset=0):
    return (Line("anti", segment, offset),)


OWN = (Line("diag", 0, 0),)
BEFORE = (Line("diag", 0, -1),)


def lines_for(model, layers=2):
    """A line in every head: both operands, what was written before, the row itself."""
    if model.config.is_encoder_decoder:
        read = (anti(1), anti(2), anti(1, -1), (Line("vert", 2, 0),))
        inner = (OWN, (Line("vert", 1, 0),), OWN, OWN)
        own = (OWN, BEFORE, OWN, BEFORE)
        depth = 1 if model.config.model_type == "bart" else layers
        return LineBias(
            {"encoder": (inner,) * depth, "self": (own,) * layers, "cross": (read,) * layers}
        )
    read = (anti(1), anti(2), (), ())
    return LineBias({"cross": (read,) * layers, "self": (((), (), BEFORE, OWN),) * layers})


def soft_lines_for(model):
    """Several lines of different values in some heads; one head is open."""
    bias = lines_for(model).to_dict()
    for layer in bias["cross"]:
        layer[0].append({"direction": "vert", "segment": 1, "offset": 0, "value": -1.5})
        layer[0].append({"direction": "anti", "segment": 2, "offset": 1, "value": -0.5})
    return LineBias.from_dict(bias)


def stream(model):
    return not model.config.is_encoder_decoder


@pytest.fixture(params=FAMILIES)
def model(request):
    torch.manual_seed(0)
    return tiny(request.param).eval()


@torch.no_grad()
def logits(model, source=SOURCES, output=OUTPUTS, **how):
    """Of the tokens of an output; more of the call's outcome with ``whole``."""
    if model.config.is_encoder_decoder:
        start = torch.full_like(output[:, :1], model.config.decoder_start_token_id)
        read = torch.cat([start, output[:, :-1]], 1)
        found = model(source, attention_mask=source.ge(0).long(), decoder_input_ids=read, **how)
        return found.logits if not how else found
    ids = torch.cat([source, output[:, :-1]], 1)
    found = model(ids, attention_mask=torch.ones_like(ids), **how)
    return found.logits[:, source.shape[1] - 1 :] if not how else found


def attentions(found):
    """All weights that a call gives."""
    names = ("attentions", "decoder_attentions", "cross_attentions", "encoder_attentions")
    return [layer for name in names for layer in getattr(found, name, None) or ()]


def test_a_bias_of_zeros_changes_nothing(model):
    own = logits(model)
    model.set_attn_implementation("eager")
    eager = attentions(logits(model, output_attentions=True))
    inject(model, LineBias({}), MARKS)
    assert (logits(model) - own).abs().max() < 1e-5
    captured = attentions(logits(model, output_attentions=True))
    assert len(captured) == len(eager) >= 2
    for one, other in zip(captured, eager, strict=True):
        assert (one - other).abs().max() < 1e-6
    # the causal mask is not lost: with open heads a later token changes no earlier row
    changed = OUTPUTS.clone()
    changed[:, 2] = 13
    before, after = logits(model), logits(model, output=changed)
    assert torch.allclose(before[:, :3], after[:, :3], atol=1e-6)
    assert not torch.allclose(before[:, 3:], after[:, 3:], atol=1e-4)


@pytest.mark.parametrize("lines", [lines_for, soft_lines_for])
def test_gathered_attention_is_dense_attention(model, lines):
    """Asked for weights, a model computes all scores; the weights stand on its lines alone."""
    inject(model, lines(model), MARKS, neutral=True)
    assert model.config.abc_calib["restricted"]
    found = logits(model, output_attentions=True)
    dense = found.logits if not stream(model) else found.logits[:, SOURCES.shape[1] - 1 :]
    assert (logits(model) - dense).abs().max() < 1e-5
    layer = (found.attentions if stream(model) else found.cross_attentions)[0]
    rows = layer[:, 1, -len(OUTPUTS[0]) :]  # the head that reads the second operand
    assert rows[0].argmax(-1).tolist() == [6, 5, 4, 3, 3]
    assert rows[1].argmax(-1).tolist() == [6, 5, 4, 3, 2]
    assert torch.allclose(rows.amax(-1), torch.ones(2, 5))
    ids = torch.cat([SOURCES, OUTPUTS], 1) if stream(model) else SOURCES
    at = torch.arange(ids.shape[1])
    labels = ids.masked_fill(at < SOURCES.shape[1], -100) if stream(model) else OUTPUTS
    (found,) = abc.capture(model, {"input_ids": ids, "labels": labels}, delimiters=MARKS)
    for cross in found.weights["cross"]:
        assert torch.allclose(cross[:, 1, :4].amax(-1), torch.ones(2, 4))


def test_without_its_positions_a_model_reads_tokens_not_places(model):
    """Digits that no line names may change places, and any length can be read."""
    inject(model, lines_for(model), MARKS, neutral=True)
    one = SOURCES[:1].clone()
    swapped = one.clone()
    swapped[0, [0, 1]] = one[0, [1, 0]]
    output = OUTPUTS[:1, :1]  # its row reads the last digits
    assert torch.allclose(logits(model, one, output), logits(model, swapped, output), atol=1e-6)
    long = torch.cat([torch.full((1, 40), 5), SOURCES[:1]], 1)  # beyond the tables of positions
    assert logits(model, long, OUTPUTS[:1]).isfinite().all()


def test_positions_stay_neutral_in_training(model):
    inject(model, lines_for(model), MARKS, neutral=True)
    named = [(n, w) for n, w in model.named_parameters() if "relative" in n or "embed_pos" in n]
    before = [weight.detach().clone() for _, weight in named]
    optimizer = torch.optim.AdamW([w for w in model.parameters() if w.requires_grad], lr=0.1)
    ids = torch.cat([SOURCES, OUTPUTS], 1) if stream(model) else SOURCES
    model.train()(ids, labels=ids if stream(model) else OUTPUTS).loss.backward()
    optimizer.step()
    assert all(torch.equal(w, old) for (_, w), old in zip(named, before, strict=True))
    assert not any(weight.any() for name, weight in named if "relative" in name)
    assert bool(named) == (not stream(model))


@torch.no_grad()
def greedy(model, source, steps=6):
    """Greedy outputs, everything computed again for each token."""
    given = torch.zeros(len(source), 0, dtype=torch.long)
    for _ in range(steps):
        output = torch.cat([given, given.new_zeros(len(source), 1)], 1)
        given = torch.cat([given, logits(model, source, output)[:, -1:].argmax(-1)], 1)
    return given


def generated(model, source, steps=6, **how):
    mask = source.ne(0).long()
    plain = {"do_sample": False, "min_new_tokens": steps, "max_new_tokens": steps, **how}
    ids = model.generate(source, attention_mask=mask, **plain)
    return ids[:, source.shape[1] :] if stream(model) else ids[:, 1:]


@pytest.mark.parametrize("lines", [lines_for, lambda model: LineBias({})])
def test_generate_with_a_cache_writes_what_is_written_without(model, lines):
    model.generation_config.eos_token_id = None
    inject(model, lines(model), MARKS, neutral=True)
    written = generated(model, SOURCES)
    assert torch.equal(written, greedy(model, SOURCES))
    both = generated(model, SOURCES, num_beams=2)
    alone = [generated(model, SOURCES[k : k + 1], num_beams=2) for k in range(2)]
    assert torch.equal(both, torch.cat(alone))  # beams keep to their sources
    if stream(model):
        padded = torch.cat([torch.zeros(2, 3, dtype=torch.long), SOURCES], 1)
        assert torch.equal(generated(model, padded), written)


def test_a_saved_model_has_its_lines_when_it_is_loaded(model, tmp_path):
    model.generation_config.eos_token_id = 2
    inject(model, lines_for(model), MARKS, neutral=True)
    expected, before = generated(model, SOURCES), logits(model)
    model.save_pretrained(tmp_path)
    loaded = abc.load(tmp_path)
    assert type(loaded) is type(model)
    assert torch.equal(logits(loaded), before)
    assert torch.equal(generated(loaded, SOURCES), expected)
    other = copy.deepcopy(model)  # has its own lines
    assert torch.equal(logits(other), before)
    detach(other)
    assert torch.equal(logits(model), before)
    detach(model)
    model.save_pretrained(tmp_path)
    with pytest.raises(UsageError, match="has no lines: load it with from_pretrained"):
        abc.load(tmp_path)


WITHOUT_IMPORT = """
import sys, transformers
try:
    transformers.LlamaForCausalLM.from_pretrained(sys.argv[1])
except ValueError as error:
    assert "abc_calib.load" in str(error), error
    sys.exit(7)
"""


def test_a_program_that_does_not_import_this_one_cannot_load_it(tmp_path):
    """Its logits would be others, and nothing would say so."""
    inject(tiny("llama"), lines_for(tiny("llama")), MARKS, neutral=True).save_pretrained(tmp_path)
    given = [sys.executable, "-c", WITHOUT_IMPORT, str(tmp_path)]
    assert subprocess.run(given, check=False).returncode == 7
    abc.load(tmp_path)  # from here on the attention has a name
    found = tf.LlamaForCausalLM.from_pretrained(tmp_path)
    with pytest.raises(UsageError, match=r"load the model with abc_calib.load\(folder\)"):
        logits(found)


def test_lines_that_cannot_be_put_in_leave_the_model_as_it_was(model):
    inject(model, lines_for(model), MARKS, neutral=True)
    before = logits(model)
    with pytest.raises(UsageError, match="of the same shape"):
        inject(model, lines_for(model, layers=3), MARKS)
    if stream(model):
        with pytest.raises(UsageError, match="choose the fit nnls"):
            inject(model, LineBias({"self": (((Line("diag", -1, 0),),) * 4,) * 2}), MARKS)
    with pytest.raises(UsageError, match=r"source 0 of the batch has 1 of the 2 delimiters"):
        logits(model, SOURCES.where(SOURCES != PLUS, 4))
    assert torch.equal(logits(model), before)
    model.set_attn_implementation("sdpa")
    with pytest.raises(UsageError, match="set to 'sdpa', which knows no lines"):
        logits(model)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_padding_on_the_left_changes_no_captured_attention(family):
    """Positions are counted from the first token on, as generate() does."""
    model = tiny(family).eval()
    ids = torch.cat([SOURCES, OUTPUTS], 1)
    labels = ids.masked_fill(torch.arange(ids.shape[1]) < SOURCES.shape[1], -100)
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}
    (plain,) = abc.capture(model, batch, delimiters=[PLUS, EQUALS])
    filled = {"input_ids": 0, "attention_mask": 0, "labels": -100}
    padded = {name: F.pad(x, (3, 0), value=filled[name]) for name, x in batch.items()}
    (moved,) = abc.capture(model, padded, delimiters=[PLUS, EQUALS])
    for one, other in zip(plain.weights["cross"], moved.weights["cross"], strict=True):
        assert torch.allclose(one, other, atol=1e-6)
    places = torch.arange(ids.shape[1]).expand(ids.shape)
    (told,) = abc.capture(model, batch | {"position_ids": places + 7}, delimiters=[PLUS, EQUALS])
    same = torch.allclose(plain.weights["cross"][1], told.weights["cross"][1], atol=1e-6)
    assert same is (family == "llama")  # whose positions are relative


def test_attention_that_lines_cannot_have_is_refused():
    model = tiny("llama").eval()
    ids = torch.cat([SOURCES, OUTPUTS], 1)
    labels = ids.masked_fill(torch.arange(ids.shape[1]) < SOURCES.shape[1], -100)
    batch = {"input_ids": ids, "labels": labels}
    with pytest.raises(UsageError, match="a batch of input_ids: give tensors"):
        abc.capture(model, {"input_ids": [1]}, delimiters=[PLUS, EQUALS])
    both_ways = torch.full((2, 4, 13, 13), 1 / 13)
    one_way = F.normalize(both_ways.tril(), p=1, dim=3)
    with pytest.raises(UsageError, match="in layer 1 is not causal"):
        abc.as_attention([one_way, both_ways], batch, delimiters=[PLUS, EQUALS])
    tf.AttentionInterface.register("of_my_own", tf.AttentionInterface()["sdpa"])
    model.set_attn_implementation("of_my_own")
    with pytest.raises(UsageError, match="is computed by 'of_my_own', a function of its own"):
        abc.capture(model, batch, delimiters=[PLUS, EQUALS])


def test_a_cache_that_does_not_hold_every_key_is_an_error():
    """As a cache of fixed size, or one that keeps the last keys alone."""
    model = tiny("llama").eval()
    inject(model, lines_for(model), MARKS, neutral=True)
    with pytest.raises(UsageError, match="its cache holds"):
        generated(model, SOURCES, cache_implementation="static")
    windowed = tf.DynamicCache(config=tf.MistralConfig(num_hidden_layers=2, sliding_window=4))
    with torch.no_grad():
        found = model(input_ids=SOURCES, past_key_values=windowed, use_cache=True)
        with pytest.raises(UsageError, match="its cache holds"):
            model(input_ids=SOURCES[:, :1], past_key_values=found.past_key_values, use_cache=True)


# Families


PAGE = (Path(__file__).parent.parent / "docs" / "foreign-models.md").read_text()
ROWS = re.findall(r"^\| (can be calibrated|refused: \"(.*)\") \| (.*) \|$", PAGE, re.MULTILINE)
TOLD = {name: words for _, words, names in ROWS for name in names.split(", ")}
SOS = len(WORDS) + 1
TOKENS = TokenIds(len(WORDS) + 2, len(WORDS), SOS, 2, (SOS, PLUS, EQUALS))


def test_the_table_names_the_families():
    assert sorted(TOLD) == sorted(SHAPES)
    count = sum(state == "can be calibrated" for state, _, names in ROWS for _ in names.split(", "))
    assert f"[{count} families]" in (Path(__file__).parent.parent / "README.md").read_text()


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
    assert other.read_weights(read_weights(tmp_path / "model.safetensors")[0])
    for (key, weight), read in zip(one.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(weight, read), key


@pytest.mark.parametrize("name", SHAPES)
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
