"""The ``transformers`` face: what a run folder holds loads through the Auto classes, the same."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import additions, assert_same_weights, change_json
from random_models import drawn
from safetensors.torch import load_file, save_file
from test_recurrent import model_of
from test_transformer import CASES
from torch import Tensor
from torch.nn import functional
from transformers import AutoModelForSeq2SeqLM, PreTrainedModel

import abc_calib as abc
from abc_calib import stages
from abc_calib.data.vocabulary import Vocabulary
from abc_calib.errors import AbcError, UsageError
from abc_calib.nn import hub
from abc_calib.nn.recurrent.attenders import ATTENDERS
from abc_calib.nn.recurrent.backbones import BACKBONES
from abc_calib.nn.saved import save_weights
from abc_calib.runs import Run
from tasks import get_task

SOURCE = torch.tensor([[12, 3, 1, 4, 10, 5, 13], [12, 9, 10, 2, 13, 14, 14]])
TARGET = torch.tensor([[3, 1, 4, 13], [9, 13, 14, 14]])


def saved(model: Any, folder: Path) -> Path:
    """The folder ``model`` of a run."""
    save_weights(folder / "model", model, Vocabulary(get_task("addition")))
    return folder / "model"


def generated(model: Any, source: Tensor, steps: int, **options: Any) -> Tensor:
    """What ``generate`` writes, without SOS and filled up."""
    pad = model.config.pad_token_id
    how = {"attention_mask": (source != pad).long(), "do_sample": False, **options}
    written = model.generate(source, max_new_tokens=steps, **how)
    return functional.pad(written[:, 1:], (0, steps + 1 - written.shape[1]), value=pad)


# Loading what a run saved


@pytest.mark.parametrize(("shape", "biased"), CASES)
def test_what_a_run_saves_comes_back_through_the_auto_class(build, tmp_path, shape, biased):
    """No buffer is lost on the way, the lines come with the model, and ``generate`` is ``decode``.

    Whatever stands where the mask says padding, and without a mask where the pad id stands.
    """
    model, source = build(shape, biased, seed=3), additions()
    folder = saved(model, tmp_path)
    loaded, info = AutoModelForSeq2SeqLM.from_pretrained(folder, output_loading_info=True)
    assert type(loaded) is hub.FACES["abc_transformer"] and not loaded.training
    assert not any(info.values()), info
    assert loaded.network.lines == model.lines
    assert (model.lines is None) == (biased == "none")
    assert_same_weights(loaded, model)
    assert list(load_file(folder / "model.safetensors")) == sorted(model.state_dict())
    target = source[:, 1:5].clamp(max=9)
    with torch.no_grad():
        same(loaded(source, source != 14, target).logits, model(source, target))
    few = source[:3]
    expected = model.decode(few, 9).ids
    assert torch.equal(generated(loaded, few, 9), expected)
    covered, mask = few.masked_fill(few == 14, 5), (few != 14).long()
    assert torch.equal(generated(loaded, covered, 9, attention_mask=mask), expected)


def same(one: Tensor, other: Tensor) -> None:
    """But for last bits: where loaded weights lie in memory may change the order of sums."""
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("attender", ATTENDERS)
def test_so_does_every_recurrent_model(attender, backbone, tmp_path):
    model = model_of(attender, backbone=backbone)
    loaded, info = AutoModelForSeq2SeqLM.from_pretrained(
        saved(model, tmp_path), output_loading_info=True
    )
    assert type(loaded) is hub.FACES["abc_recurrent"] and not loaded.training
    assert not any(info.values()), info
    assert loaded.config.attender == attender and loaded.config.backbone == backbone
    assert loaded.network.options == model.options
    assert_same_weights(loaded, model)
    found = loaded(SOURCE, labels=TARGET)
    same(found.logits, model(SOURCE, TARGET))
    same(found.loss, model.loss(SOURCE, TARGET))
    written = loaded.generate(SOURCE, max_new_tokens=7)
    assert (written[:, 0] == 12).all()
    assert torch.equal(written[:, 1:], model.decode(SOURCE, 7).ids)


QUICK = {"steps": 2, "batch": 4, "width": 8}
SMALL = {**QUICK, "heads": 2, "feedforward": 8, "decoder_layers": 1, "length": 3}


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("successor", SMALL),
        ("addition", {**SMALL, "format": "aligned", "attention_window": 1, "cyclic": 3}),
        ("copy", {**SMALL, "length": 10}),
        ("copy", {**QUICK, "model": "gru", "embedding": 6, "d_head": 8, "value": 8}),
        ("addition", {**SMALL, "model": "decoder"}),
    ],
    ids=["free", "window", "tokens", "gru", "decoder"],
)
def test_a_run_folder_loads_as_the_run_does(task, options, runs_root):
    """Through ``load``, in another vocabulary than the default one."""
    run = stages.train(task, **options)
    model, loaded = run.load_model(), hub.load(run.path / "model")
    assert_same_weights(loaded, model)
    batch = run.data.training(0, 5)
    with torch.no_grad():
        logits = loaded(batch.source, labels=batch.target).logits
        same(logits, model(batch.source, batch.target))
    steps = batch.target.shape[1]
    expected = model.decode(batch.source, steps).ids
    assert torch.equal(generated(loaded, batch.source, steps), expected)


# What a folder may say


UNKNOWN = {
    "transformers_weights": "other.safetensors",
    "attn_implementation": "kernels-community/flash",
    "_attn_implementation": "eager",
    "quantization_config": {"quant_method": "bitsandbytes"},
    "auto_map": {"AutoModelForSeq2SeqLM": "weights.Model"},
    "no_repeat_ngram_size": 2,
}


def test_other_files_are_not_read_and_an_unknown_key_is_refused(make_model, tmp_path):
    folder = saved(make_model(), tmp_path)
    for name in ("pytorch_model.bin", "weights.py", "model.safetensors.index.json"):
        (folder / name).write_bytes(b"{}")
    loaded = AutoModelForSeq2SeqLM.from_pretrained(folder.parent, subfolder=folder.name)
    assert_same_weights(hub.load(folder), loaded)
    before = (folder / "config.json").read_text()
    for name, value in UNKNOWN.items():
        change_json(folder / "config.json", **{name: value})
        refused_by_all(folder, f"unknown key '{name}' in the configuration of a model")
        (folder / "config.json").write_text(before)


def test_fewer_weights_and_ones_that_are_not_finite_are_refused(make_model, tmp_path):
    folder = saved(make_model(), tmp_path)
    weights = load_file(folder / "model.safetensors")
    name = "head.weight"
    save_file({**weights, name: weights[name] * torch.nan}, folder / "model.safetensors")
    refused_by_all(folder, f"{name} is not finite")
    save_file({k: v for k, v in weights.items() if k != name}, folder / "model.safetensors")
    refused_by_all(folder, "its weights are another model's")


def refused_by_all(folder: Path, message: str) -> None:
    for load in (hub.load, AutoModelForSeq2SeqLM.from_pretrained):
        with pytest.raises(AbcError, match=re.escape(message)):
            load(folder)


# Saving and configurations


@pytest.mark.parametrize("kind", ["transformer", "gru"])
def test_a_run_writes_what_save_pretrained_writes(build, tmp_path, kind):
    """The configuration but for its version, the same weights, the same ids for ``generate``."""
    model = build({"encoder_layers": 1}, "lines") if kind == "transformer" else model_of()
    ours = saved(model, tmp_path)
    hub.load(ours).save_pretrained(tmp_path / "theirs")
    one, two = (
        json.loads((folder / "config.json").read_text()) for folder in (ours, tmp_path / "theirs")
    )
    assert {name: two.get(name) for name in one} == one
    assert {name for name, value in two.items() if value is not None} - set(one) == {
        "transformers_version"
    }
    folders = ours, tmp_path / "theirs"
    assert_same_weights(*(load_file(folder / "model.safetensors") for folder in folders))
    ids = json.loads((ours / "generation_config.json").read_text())
    assert (ids["pad_token_id"], ids["bos_token_id"], ids["eos_token_id"]) == (14, 12, 13)


# A face and its model


def test_a_face_shares_its_weights_with_its_network(build, tmp_path):
    """Every weight is there once; a change of either is a change of both."""
    model = build({"encoder_layers": 1}, "none")
    face = hub.load(saved(model, tmp_path))
    assert isinstance(face, PreTrainedModel)
    assert face.embed is face.network.embed and face.get_input_embeddings() is face.embed
    assert len(list(face.parameters())) == len(list(model.parameters()))
    assert face.network.embed.weight is not model.embed.weight
    with torch.no_grad():
        face.embed.weight.zero_()
        assert not face.network.embed.weight.any() and model.embed.weight.any()


def test_labels_give_the_loss(build, tmp_path):
    """With -100 or the padding where nothing counts."""
    model = build({}, "none")
    face = hub.load(saved(model, tmp_path))
    found = face(SOURCE, SOURCE != 14, labels=TARGET)
    torch.testing.assert_close(found.loss, model.loss(SOURCE, TARGET))
    assert torch.equal(found.logits, model(SOURCE, TARGET))
    ignored = TARGET.masked_fill(TARGET == 14, -100)
    torch.testing.assert_close(face(SOURCE, labels=ignored).loss, found.loss)


@torch.no_grad()
def test_attentions_are_those_of_the_model(build, tmp_path):
    model, source = build({"encoder_layers": 1}, "some transparent", seed=7), additions()
    face, target = hub.load(saved(model, tmp_path)), torch.full((7, 5), 3)
    plain = face(source, source != 14, target)
    assert plain.decoder_attentions is plain.cross_attentions is plain.encoder_attentions is None
    seen = face(source, source != 14, target, output_attentions=True)
    expected = model.attention(source, target).weights
    for site, name in (("encoder", "encoder"), ("self", "decoder"), ("cross", "cross")):
        found = getattr(seen, f"{name}_attentions" if site != "cross" else "cross_attentions")
        assert len(found) == len(expected[site]) > 0
        assert all(torch.equal(one, two) for one, two in zip(found, expected[site], strict=True))


# Generating


def test_generate_goes_on_to_the_end(tiny):
    """Not to 20 tokens, as transformers does where nothing is said."""
    run = Run.open(tiny.calibrated)
    batch = run.data.lay_out(run.task.parse("9" * 70))
    written = hub.load(run.path / "model").generate(batch.source)[0, 1:]
    assert written[-1] == run.data.vocabulary.eos and len(written) > 64
    symbols = [run.data.vocabulary.symbols[i] for i in written[:-1]]
    assert run.data.read(symbols) == abc.predict(run, "9" * 70).answer


def test_another_way_of_decoding_is_refused(make_model, tmp_path):
    face = hub.load(saved(make_model(), tmp_path))
    for name, value in {"num_beams": 3, "do_sample": True, "top_k": 5}.items():
        with pytest.raises(UsageError, match=f"{name}=.*: this model decodes greedily"):
            face.generate(SOURCE, **{name: value})
    with pytest.raises(UsageError, match="give labels"):
        face(SOURCE)
    with pytest.raises(UsageError, match="no decoder_input_ids"):
        face(SOURCE, labels=TARGET, decoder_input_ids=TARGET)
    twice = torch.cat([SOURCE[:, :1], SOURCE], 1)
    for source, told in (
        (SOURCE[0], r"have the shape \(7,\): give"),
        (SOURCE[:0], r"have the shape \(0, 7\)"),
        (SOURCE[:, 1:], "does not begin with start token 12, or has it twice"),
        (twice, "does not begin with start token 12, or has it twice"),
    ):
        with pytest.raises(UsageError, match=told):
            face.generate(source)


def test_an_output_without_an_end_is_an_error(monkeypatch, tmp_path):
    """It is not cut in silence, unless the number of tokens is given."""
    model, data = drawn(0)
    monkeypatch.setattr(hub, "ENDLESS", 64)
    with torch.no_grad():
        model.head.bias[model.eos] = -1e4
    face, source = (
        hub.load(saved(model, tmp_path)),
        data.lay_out(data.training(0, 1).problems).source,
    )
    assert face.generate(source, max_new_tokens=5).shape == (1, 6)
    with pytest.raises(AbcError, match="no end within 64 tokens: give max_new_tokens"):
        face.generate(source)


def test_padding_before_a_token_is_refused(build, tmp_path):
    face, source = hub.load(saved(build({}, "none"), tmp_path)), additions()[:2]
    labels, hole = source[:, 1:5].clamp(max=9), torch.ones_like(source)
    hole[:, 2] = 0
    with pytest.raises(UsageError, match="padding before a token of input_ids: put it behind"):
        face(source, hole, labels)
    with pytest.raises(UsageError, match="padding before a token of labels: put it behind"):
        face(source, labels=labels.masked_fill(torch.arange(4) == 1, -100))
    with pytest.raises(
        UsageError, match=r"the shapes of mask and input_ids, \(2, 3\) \(2, .* differ"
    ):
        face.generate(source, hole[:, :3])
    with pytest.raises(UsageError, match="a row of input_ids has nothing but padding"):
        face.generate(source, torch.zeros_like(source))
