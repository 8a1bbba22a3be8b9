"""Folders of models whose settings or files are wrong, and figures of their pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from families import tiny
from others import as_ids, batch, saved, sums, tf, tokenizer, write_pairs

import abc_calib as abc
from abc_calib.calibration.pipeline import advice
from abc_calib.errors import AbcError, AbcWarning, UsageError
from abc_calib.reporting.attention import averaged_attention, averaged_problem, far_problem
from abc_calib.reporting.views import heatmap_figures

RAGGED = [pair for pair in sums() if pair[0].index("+") != len(pair[0]) - pair[0].index("+") - 2]


def adopted(model: Any, folder: Path, pairs: list[tuple[str, str]], **settings: Any) -> abc.Run:
    """The run of a model of sums, with settings of what it generates."""
    generation = {"pad_token_id": 0, "eos_token_id": 2, **settings}
    model.generation_config = tf.GenerationConfig(**generation)
    saved(model, tokenizer(), folder / "model")
    return abc.adopt(folder / "model", write_pairs(folder / "p.jsonl", pairs), "+,=")


def writing(*tokens: int, **shape: Any) -> Any:
    """A Llama that writes these tokens again and again, whatever it reads."""
    model = tiny("llama", num_hidden_layers=1, hidden_size=32, **shape)
    after = dict(zip((15, *tokens), (*tokens, tokens[-1]), strict=True))
    with torch.no_grad():
        for weight in model.model.layers.parameters():
            weight.zero_()
        table, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
        table.copy_(torch.eye(*table.shape))
        head.zero_()
        for token, written in after.items():
            head[written, token] = 9
    return model


def test_an_end_outside_of_the_vocabulary_is_refused(tmp_path, runs_root):
    with pytest.raises(UsageError, match=r"with the tokens \(999,\), and its model has 16"):
        adopted(tiny("llama"), tmp_path, sums(), eos_token_id=999)


def test_weights_that_are_not_finite_are_refused(tmp_path, runs_root):
    model = tiny("llama")
    model.model.layers[0].mlp.up_proj.weight.data[0, 0] = torch.nan
    with pytest.raises(UsageError, match=r"damaged \(.*up_proj.weight is not finite\)"):
        adopted(model, tmp_path, sums())


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_pointer_is_refused_whatever_it_points_to(name, tmp_path, runs_root):
    saved(tiny("llama"), tokenizer(), tmp_path)
    (tmp_path / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    with pytest.raises(UsageError, match=f"{name} is a pointer of Git LFS"):
        abc.adopt(tmp_path, write_pairs(tmp_path / "p.jsonl", sums()), "+,=")


def test_advice_names_the_token_that_ends_answers(tmp_path, runs_root):
    """As of a list of ends, of which the first one is what pairs end with."""
    sevens = [(source, "7") for source, _ in sums()]
    run = adopted(writing(11, 2), tmp_path, sevens, eos_token_id=[1, 2])
    told = advice(run.load_model(), run.data, run.data.training(0, 8))
    assert "then go on, mostly with '</s>', not with the end '<s>'" in told


def test_a_token_that_the_tokenizer_does_not_have_ends_no_answer(tmp_path, runs_root):
    run = adopted(writing(11, 25, vocab_size=32), tmp_path, sums())
    with pytest.raises(AbcError, match="wrote no end within"):
        abc.predict(run, "1+2=")
    assert heatmap_figures(run, input="1+2=")
    none = adopted(writing(25, vocab_size=32), tmp_path, sums())
    with pytest.raises(AbcError, match="writes no token of its tokenizer"):
        heatmap_figures(none, input="1+2=")


def test_pairs_of_operands_of_several_widths_are_drawn(tmp_path, runs_root):
    run = adopted(tiny("llama"), tmp_path, RAGGED)
    assert heatmap_figures(run)
    near = averaged_problem(run, *averaged_attention(run)["cross"].shape[-2:])
    assert len({*near.source.widths}) == 2 and near.labels("cross")[0][-1] == "</s>"
    far = far_problem(run, near, 8)
    assert sum(far.rows) - sum(near.rows) == 8 - max(near.source.widths)


def test_a_first_token_that_counts_as_part_of_a_source_is_told():
    words = tokenizer(bos=True)
    given = batch([0, 1], *as_ids(words, sums()), stream=True)
    with pytest.warns(AbcWarning, match="begins with token 1, the bos_token_id"):
        abc.capture(tiny("llama"), given, delimiters=[14, 15])
    abc.capture(tiny("llama"), given, delimiters=[14, 15], prefix=1)  # without a warning
