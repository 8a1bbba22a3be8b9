"""The model: what is saved comes back, and caches, padding and paths change no number."""

from __future__ import annotations

import warnings

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor
from torch.nn import functional
from transformers import AutoConfig, AutoModelForSeq2SeqLM

from abc_calib.errors import UsageError
from abc_calib.geometry import CORNER, Line, LineBias
from abc_calib.nn.biases import MASKED
from abc_calib.nn.positions import SCHEMES
from abc_calib.nn.transformer.model import AbcConfig, AbcTransformer
from abc_calib.nn.window import window_lines

SHAPES = [
    pytest.param({"encoder_layers": 0, "decoder_layers": 2}, id="no-encoder"),
    pytest.param({"encoder_layers": 1, "decoder_layers": 2, "scheme": "none"}, id="encoder"),
]
BIASED = ["none", "lines", "some transparent", "one line a head", "window"]
SCHEMED = [
    pytest.param({"encoder_layers": 1, "decoder_layers": 2, "scheme": name}, biased, id=name + end)
    for name in (*SCHEMES, "alibi:cross=end", "rpe:clip=3,values=true", "randomized:base=learned")
    if name not in ("sinusoidal", "none")  # in SHAPES
    for biased, end in (("none", ""), ("some transparent", "-lines"))
]
MODIFIED = [
    pytest.param({"encoder_layers": 1, "scheme": name, "cyclic": 3}, biased, id=f"{name}-{biased}")
    for name in SCHEMES
    if name != "none"
    for biased in ("none", "window")
]
OWN = [
    pytest.param(
        {"encoder_layers": 1, "scheme": "sinusoidal", "own_schemes": own}, "none", id="own-" + name
    )
    for name, own in {
        "encoder": {"encoder": "rpe:clip=3"},
        "decoder": {"self": "t5"},
        "cross": {"cross": "rope"},
        "each": {"encoder": "none", "self": "learned", "cross": "xl"},
    }.items()
]
CASES = [
    *(
        pytest.param(*shape.values, biased, id=f"{shape.id}-{biased}")
        for shape in SHAPES
        for biased in BIASED
    ),
    *SCHEMED,
    *MODIFIED,
    *OWN,
]
"""Shapes and biases: each with each for the plain schemes, every scheme free and restricted, with
cyclic positions, in a window, and at one site only."""


def windows(layers: dict, heads: int) -> LineBias:
    """The window of aligned operands in every layer."""
    return LineBias(
        {site: ((window_lines(site, 1, 2, 2),) * heads,) * n for site, n in layers.items() if n}
    )


@pytest.fixture
def build(make_model, random_bias):
    """``build(shape, biased, seed)``: a model, with random lines where asked for."""

    def make(shape: dict, biased: str, seed: int = 0, **options) -> AbcTransformer:
        model = make_model(seed, **{**shape, **options})
        if biased != "none":
            config = model.config
            layers = {
                "encoder": config.encoder_layers,
                "self": config.decoder_layers,
                "cross": config.decoder_layers,
            }
            if biased == "window":
                model.set_lines(windows(layers, config.heads))
                return model
            empty = 0.4 if biased == "some transparent" else 0.0
            single = biased == "one line a head"
            model.set_lines(random_bias(layers, config.heads, seed, empty, single=single))
        return model

    return make


@pytest.fixture
def sources(make_source) -> Tensor:
    """Additions of unequal length, padded."""
    ids = make_source("addition").training(0, 7).source
    assert len({int((row != 14).sum()) for row in ids}) > 2
    return ids


@pytest.fixture
def outputs() -> Tensor:
    torch.manual_seed(1)
    return torch.cat([torch.full((7, 1), 12), torch.randint(0, 10, (7, 10))], 1)


# Saving


@pytest.mark.parametrize(("shape", "biased"), CASES)
def test_what_is_saved_comes_back_through_the_auto_class(
    build, sources, outputs, tmp_path, shape, biased
):
    """No buffer is lost on the way, and the lines come with the model."""
    model = build(shape, biased, seed=3)
    model.save_pretrained(tmp_path / "model")
    loaded, info = AutoModelForSeq2SeqLM.from_pretrained(
        tmp_path / "model", output_loading_info=True
    )
    assert type(loaded) is AbcTransformer and not loaded.training
    assert not any(info.values()), info
    assert loaded.lines == model.lines
    assert (loaded.lines is None) == (biased == "none")
    state = loaded.state_dict()
    assert list(state) == list(model.state_dict())
    for name, value in model.state_dict().items():
        assert torch.equal(state[name], value), name
    with torch.no_grad():
        arguments = (sources, sources != 14, outputs)
        assert torch.equal(loaded(*arguments).logits, model(*arguments).logits)
    assert torch.equal(decode(loaded, sources, 9), decode(model, sources, 9))


def test_the_configuration_comes_back_through_the_auto_class(build, tmp_path):
    model = build({"encoder_layers": 1, "scheme": "none"}, "lines")
    model.save_pretrained(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path)
    assert isinstance(config, AbcConfig)
    kept = model.config.to_dict()
    for name in ("d_model", "heads", "feedforward", "scheme", "delimiter_ids", "line_bias"):
        assert config.to_dict()[name] == kept[name], name
    assert (config.pad_token_id, config.eos_token_id) == (14, 13)
    assert config.num_hidden_layers == config.decoder_layers == 2


def test_the_encoder_shares_the_embedding_after_loading(build, tmp_path):
    build({}, "none").save_pretrained(tmp_path)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert loaded.encoder.embed.weight is loaded.embed.weight


def test_saving_and_loading_twice_changes_nothing(build, tmp_path):
    model = build({}, "lines")
    model.save_pretrained(tmp_path / "one")
    AbcTransformer.from_pretrained(tmp_path / "one").save_pretrained(tmp_path / "two")
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_a_value_of_the_wrong_type_in_the_configuration_is_refused():
    """Strict validation of transformers' configurations has to be asked for."""
    with pytest.raises(StrictDataclassError, match="heads"):
        AbcConfig(heads="eight")


# Decoding


def decode(model: AbcTransformer, source: Tensor, steps: int, **options) -> Tensor:
    written = model.generate(
        source, attention_mask=(source != 14).long(), max_new_tokens=steps, do_sample=False,
        **options,
    )  # fmt: skip
    return functional.pad(written[:, 1:], (0, steps + 1 - written.shape[1]), value=14)


@torch.no_grad()
def step_by_step(model: AbcTransformer, source: Tensor, steps: int) -> Tensor:
    """The argmax of a whole pass a step, and padding behind EOS."""
    written = torch.full((len(source), 1), 12)
    done = torch.zeros(len(source), dtype=torch.bool)
    for _ in range(steps):
        best = model(source, source != 14, decoder_input_ids=written).logits[:, -1].argmax(-1)
        written = torch.cat([written, best.masked_fill(done, 14)[:, None]], 1)
        done |= best == 13
    return written[:, 1:]


@pytest.mark.parametrize(("shape", "biased"), CASES)
def test_generate_with_a_cache_is_the_argmax_step_by_step(build, sources, shape, biased):
    written = []
    for seed in (0, 1):
        model = build(shape, biased, seed)
        expected = step_by_step(model, sources, 17)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert torch.equal(decode(model, sources, 17), expected)
        assert torch.equal(decode(model, sources, 17, use_cache=False), expected)
        written.append(len(expected.unique()))
    assert max(written) > 2 or biased == "one line a head"  # not one symbol again and again


@pytest.mark.parametrize(("shape", "biased"), CASES)
def test_beams_do_not_depend_on_the_cache(build, sources, shape, biased):
    model = build(shape, biased, seed=5)
    cached = decode(model, sources, 7, num_beams=3)
    assert torch.equal(cached, decode(model, sources, 7, num_beams=3, use_cache=False))


@pytest.mark.parametrize(("shape", "biased"), CASES)
@torch.no_grad()
def test_cached_logits_are_those_of_one_pass(build, sources, outputs, shape, biased):
    """Also where the cache is fed several tokens at once."""
    model = build(shape, biased, seed=2)
    mask = sources != 14
    expected = model(sources, mask, outputs).logits
    encoded = model.encoder(sources, mask)
    cache, parts = None, []
    for part in outputs.split([1, 4, 1, 5], 1):
        step = model(
            attention_mask=mask, encoder_outputs=encoded, decoder_input_ids=part,
            past_key_values=cache, use_cache=True,
        )  # fmt: skip
        cache = step.past_key_values
        parts.append(step.logits)
    torch.testing.assert_close(torch.cat(parts, 1), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("shape", "biased"), CASES)
def test_weights_can_be_asked_for_while_decoding(build, sources, shape, biased):
    model = build(shape, biased, seed=5)
    output = model.generate(
        sources,
        attention_mask=(sources != 14).long(),
        max_new_tokens=5,
        do_sample=False,
        output_attentions=True,
        return_dict_in_generate=True,
    )
    written = output.sequences[:, 1:]
    assert torch.equal(written, decode(model, sources, 5)[:, : written.shape[1]])
    for step, layers in enumerate(output.cross_attentions):
        assert [layer.shape for layer in layers] == [(7, 2, 1, sources.shape[1])] * 2
        assert output.decoder_attentions[step][0].shape == (7, 2, 1, step + 1)


def test_decoding_ends_with_eos_and_padding(half_trained):
    source, model = half_trained
    vocabulary = source.vocabulary
    batch = source.training(0, 53)
    mask = (batch.source != vocabulary.pad).long()
    written = model.generate(batch.source, attention_mask=mask, max_new_tokens=20)[:, 1:]
    for row in written.tolist():
        assert vocabulary.eos in row
        end = row.index(vocabulary.eos)
        assert set(row[end + 1 :]) <= {vocabulary.pad}


# Padding


@pytest.mark.parametrize(("shape", "biased"), CASES)
@torch.no_grad()
def test_a_padded_row_gives_the_logits_that_it_gives_alone(build, sources, outputs, shape, biased):
    model = build(shape, biased, seed=4)
    together = model(sources, sources != 14, outputs).logits
    for row in range(7):
        length = int((sources[row] != 14).sum())
        one = sources[row : row + 1, :length]
        alone = model(one, one != 14, outputs[row : row + 1]).logits
        torch.testing.assert_close(together[row : row + 1], alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("biased", ["none", "lines"])
@pytest.mark.parametrize("shape", SHAPES)
@torch.no_grad()
def test_without_a_mask_the_pad_id_is_padding(build, sources, outputs, shape, biased):
    """As the encoder takes it: the decoder must not look at what the encoder leaves out."""
    model = build(shape, biased, seed=4)
    expected = model(sources, sources != 14, outputs).logits
    torch.testing.assert_close(model(sources, decoder_input_ids=outputs).logits, expected)


def test_generate_without_a_mask_takes_the_pad_id_as_padding(build, sources):
    """``generate`` makes no mask of its own for an encoder-decoder."""
    model = build({"scheme": "none"}, "none", seed=4)
    written = model.generate(sources, max_new_tokens=7, do_sample=False)[:, 1:]
    assert torch.equal(written, decode(model, sources, 7)[:, : written.shape[1]])


@pytest.mark.parametrize(("shape", "biased"), CASES)
@torch.no_grad()
def test_no_logit_depends_on_a_later_token(build, sources, outputs, shape, biased):
    model = build(shape, biased, seed=6)
    changed = outputs.clone()
    changed[:, 6] = (changed[:, 6] + 1) % 10
    before = model(sources, sources != 14, outputs).logits
    after = model(sources, sources != 14, changed).logits
    torch.testing.assert_close(before[:, :6], after[:, :6], rtol=0, atol=1e-6)
    assert not torch.allclose(before[:, 6], after[:, 6])


# Attention weights and paths


@pytest.mark.parametrize(("shape", "biased"), CASES)
@torch.no_grad()
def test_attention_weights_are_there_and_sum_to_one(build, sources, outputs, shape, biased):
    """Asking for weights switches away from the fused kernel, which has none, in silence."""
    model = build(shape, biased, seed=7)
    mask = sources != 14
    plain = model(sources, mask, outputs)
    assert plain.decoder_attentions is plain.cross_attentions is plain.encoder_attentions is None
    seen = model(sources, mask, outputs, output_attentions=True)
    torch.testing.assert_close(seen.logits, plain.logits, rtol=1e-4, atol=1e-5)
    s, t = sources.shape[1], outputs.shape[1]
    for attentions, layers, size in (
        (seen.decoder_attentions, 2, (t, t)),
        (seen.cross_attentions, 2, (t, s)),
        (seen.encoder_attentions, model.config.encoder_layers, (s, s)),
    ):
        assert len(attentions) == layers
        for layer in attentions:
            assert layer.shape == (7, 2, *size)
            torch.testing.assert_close(layer.sum(-1), torch.ones(7, 2, size[0]))
    if biased == "none":
        for layer in seen.cross_attentions:
            assert not layer.permute(0, 3, 1, 2)[~mask].any()
    for layer in seen.decoder_attentions:
        assert not layer.triu(1).any()


@pytest.mark.parametrize("biased", ["lines", "one line a head", "window"])
@pytest.mark.parametrize("shape", SHAPES)
@torch.no_grad()
def test_dense_and_gathered_paths_give_the_same_logits(build, make_source, shape, biased):
    """In a batch padded to unequal lengths and in one of a single shape, short and long."""
    model = build(shape, biased, seed=8).double()
    data = make_source("addition")
    for batch in (data.training(0, 7), data.validation(5), data.test(53, 3)):
        logits = {}
        for path in ("dense", "lines", "auto"):
            model.set_path(path)
            mask = batch.source != 14
            logits[path] = model(batch.source, mask, model.shifted(batch.target)).logits
        for path in ("lines", "auto"):
            torch.testing.assert_close(logits[path], logits["dense"], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("biased", ["lines", "one line a head"])
def test_dense_and_gathered_paths_give_the_same_gradients(build, make_source, biased):
    model = build({"encoder_layers": 1}, biased, seed=9).double()
    batch = make_source("addition").training(0, 7)
    gradients = {}
    for path in ("dense", "lines"):
        model.set_path(path)
        loss = model(batch.source, batch.source != 14, labels=batch.target).loss
        gradients[path] = torch.autograd.grad(
            loss, list(model.parameters()), materialize_grads=True
        )
    for dense, lines in zip(*gradients.values(), strict=True):
        torch.testing.assert_close(lines, dense, rtol=1e-7, atol=1e-10)


# Calibrated lines


@torch.no_grad()
def test_a_restricted_model_reads_nothing_but_its_lines(make_model):
    """Without positions a step depends on a bounded window of the source, whatever the length."""
    model = make_model(decoder_layers=1, scheme="none")
    digit, end = Line("anti", 1, 0), Line("vert", 1, 0)
    model.set_lines(
        LineBias({"cross": (((digit,), (end,)),), "self": (((Line("diag", 0, 0),),) * 2,)})
    )
    source = torch.tensor([[12, 1, 2, 3, 4, 5, 13]])
    outputs = torch.tensor([[12, 7, 7]])
    logits = model(source, decoder_input_ids=outputs).logits
    for place, row in ((5, 0), (4, 1), (3, 2)):
        changed = source.clone()
        changed[0, place] = 9
        moved = (model(changed, decoder_input_ids=outputs).logits != logits).any(-1)[0]
        assert moved.tolist() == [r == row for r in range(3)]
    longer = torch.tensor([[12, 8, 8, 8, 1, 2, 3, 4, 5, 13]])
    torch.testing.assert_close(model(longer, decoder_input_ids=outputs).logits, logits)


@torch.no_grad()
def test_lines_can_be_set_and_taken_away(build, random_bias, sources, outputs):
    model = build({}, "none")
    before = model(sources, sources != 14, outputs).logits
    model.set_lines(random_bias({"cross": 2}, 2))
    assert not torch.allclose(model(sources, sources != 14, outputs).logits, before)
    model.set_lines(None)
    assert model.config.line_bias is None
    assert torch.equal(model(sources, sources != 14, outputs).logits, before)


@torch.no_grad()
def test_transparent_heads_are_no_bias(build, sources, outputs):
    model = build({}, "none")
    before = model(sources, sources != 14, outputs).logits
    model.set_lines(LineBias({"cross": (((), ()),) * 2, "self": (((), ()),) * 2}))
    after = model(sources, sources != 14, outputs).logits
    torch.testing.assert_close(after, before)


@torch.no_grad()
def test_a_row_without_a_key_reads_nothing(make_model):
    """A corner line that has left the matrix leaves numbers, and no trace of the source."""
    model = make_model(decoder_layers=1)
    gone = ((Line("vert", CORNER, 50),),) * 2
    model.set_lines(LineBias({"cross": (gone,)}))
    outputs = torch.tensor([[12, 3, 4]])
    one = model(torch.tensor([[12, 1, 2, 13]]), decoder_input_ids=outputs).logits
    other = model(torch.tensor([[12, 9, 8, 7, 13]]), decoder_input_ids=outputs).logits
    assert one.isfinite().all()
    torch.testing.assert_close(one, other)


def test_lines_that_do_not_fit_are_refused(make_model, random_bias):
    model = make_model()
    with pytest.raises(UsageError, match="3 cross-attention layers and the model 2"):
        model.set_lines(random_bias({"cross": 3}, 2))
    with pytest.raises(UsageError, match="4 heads and the model 2"):
        model.set_lines(random_bias({"cross": 2}, 4))
    assert model.lines is None


# Training


@pytest.mark.parametrize(("shape", "biased"), CASES)
def test_every_weight_is_trained(build, make_source, shape, biased):
    model = build(shape, biased, seed=10).train()
    batch = make_source("addition").training(0, 31)
    model(batch.source, batch.source != 14, labels=batch.target).loss.backward()
    for name, weight in model.named_parameters():
        # where softmax is over one key, it is 1 whatever the query: its weights are not needed
        compares = any(part in name for part in (".query.", ".key.", ".norms.1.", ".scheme."))
        if biased == "one line a head" and compares and weight.grad is None:
            continue
        assert weight.grad is not None and weight.grad.isfinite().all(), name
        if not name.endswith("key.bias"):  # softmax ignores what all keys have in common
            assert weight.grad.any(), name


def test_the_loss_is_cross_entropy_without_padding(build, make_source):
    model = build({}, "none")
    batch = make_source("addition").training(0, 11)
    mask = batch.source != 14
    output = model(batch.source, mask, labels=batch.target)
    shifted = torch.cat([torch.full((11, 1), 12), batch.target[:, :-1]], 1)
    assert torch.equal(model.shifted(batch.target), shifted)
    chances = output.logits.log_softmax(-1).gather(-1, batch.target[..., None])[..., 0]
    counted = batch.target != 14
    torch.testing.assert_close(output.loss, -chances[counted].mean())
    ignored = batch.target.masked_fill(~counted, -100)
    torch.testing.assert_close(model(batch.source, mask, labels=ignored).loss, output.loss)


def test_lines_hold_no_weights(build):
    plain, biased = build({}, "none"), build({}, "lines")
    assert list(plain.state_dict()) == list(biased.state_dict())


def test_a_closed_key_weighs_nothing_in_single_precision():
    assert torch.tensor([0.0, MASKED]).softmax(0).tolist() == [1.0, 0.0]
    assert torch.tensor([MASKED, MASKED]).softmax(0).isfinite().all()
