"""Rows that read the same are computed once, and give what all layers give."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from conftest import digit_data
from hypothesis import given, settings
from hypothesis import strategies as st
from random_models import drawn, sources
from torch import Tensor

import abc_calib as abc
from abc_calib import memory
from abc_calib.config import TransformerOptions
from abc_calib.data import Batch
from abc_calib.errors import AbcError
from abc_calib.evaluation import Evaluator
from abc_calib.geometry import Line, LineBias
from abc_calib.nn import evaluator
from abc_calib.nn.base import in_float64
from abc_calib.nn.transformer import rows, windows
from abc_calib.nn.transformer.model import Transformer
from abc_calib.nn.transformer.rows import Numbering
from abc_calib.runs import Run

slow = pytest.mark.slow


@torch.inference_mode()
def plain(model: Any, batch: Batch, steps: int) -> tuple[Tensor, Tensor]:
    """Logits of the right output, and what is decoded: through all layers, in float64.

    By dense attention and along lines the same.
    """
    exact, logits = in_float64(model), []
    for path in ("dense", "lines", "auto"):
        exact.set_path(path)
        logits.append(exact(batch.source, batch.target))
    torch.testing.assert_close(logits[1:], logits[:1] * 2)
    return logits[0], exact.decode(batch.source, steps).ids


def compare(model: Any, frozen: Any, batch: Batch) -> None:
    steps = batch.target.shape[1] + 3
    logits, decoded = plain(model, batch, steps)
    there = batch.target != model.pad
    with torch.inference_mode():
        torch.testing.assert_close(frozen.logits(batch.source, batch.target)[there], logits[there])
        assert torch.equal(frozen.best(batch.source, batch.target), logits.argmax(-1))
    for draft in (decoded, batch.target, batch.target[:, :0], (decoded + 1) % model.tokens.size):
        assert torch.equal(frozen.decode(batch.source, steps, draft=draft).ids, decoded)
    assert torch.equal(frozen.decode(batch.source, steps).ids, decoded)


@pytest.mark.parametrize(
    ("seeds", "most", "few", "least"),
    [(range(20), 20, 5, 900), pytest.param(range(30, 230), 400, None, 100_000, marks=slow)],
)
def test_any_lines_any_rule(seeds, most, few, least):
    """Random lines of every kind on random weights: encoders, streams, rows, words, cycles."""
    count = 0
    for seed in seeds:
        model, data = drawn(seed)
        frozen = Evaluator(model)
        for problems in islice(sources(data, most), few):
            if not len(problems):
                continue
            batch = data.lay_out(problems)
            compare(model, frozen, batch)
            count += len(batch)
        assert frozen.table is not None or most > 100
    assert count > least


def test_each_row_is_numbered_once_whatever_the_length(tiny):
    run = Run.open(tiny.calibrated)
    model, batch = run.load_model(), run.data.test(60, 300)
    frozen: Any = Evaluator(model)
    compare(model, frozen, batch)
    assert batch.target.numel() > 5 * frozen.table.layers[-1].numbering.count


def narrow(seed: int, more: int = 0) -> Transformer:
    """Random weights on lines as a calibrated model has them: a row back, and a sink.

    ``more``: lines of each head beside those.
    """
    torch.manual_seed(seed)
    options = TransformerOptions(decoder_layers=3, heads=2, width=20, feedforward=23, scheme="none")
    model = Transformer(options, digit_data().vocabulary.tokens).eval()
    own: Any = ((Line("diag", 0, -1), Line("vert", 0, 1, -0.5)), (Line("diag", 0, -2),))
    crossed = ((Line("anti", 1, 0), Line("anti", 1, 2)), (Line("anti", 2, -1),))
    beside = tuple(Line("vert", 0, k, -0.1 * k) for k in range(2, 2 + more))
    own = tuple((*head, *beside) for head in own)
    model.set_lines(LineBias({"self": (own,) * 3, "cross": (crossed,) * 3}))
    return model


@pytest.mark.parametrize("limit", ["MOST_BYTES", "NUMBER", "TRIED"])
def test_a_table_that_does_not_fit_or_pay_is_given_up(monkeypatch, limit):
    """In the middle of an output, too; and what is written stays the same."""
    model, data = narrow(1), digit_data()
    small = {"MOST_BYTES": 2**19, "NUMBER": 8, "TRIED": 64}[limit]
    monkeypatch.setattr(rows if limit == "NUMBER" else windows, limit, small)
    batch = data.test(20, 30)
    frozen: Any = Evaluator(model)
    compare(model, frozen, batch)
    assert frozen.table is None


def test_a_table_belongs_to_weights_and_lines():
    model, data = narrow(2), digit_data()
    batch = data.test(9, 20)
    before: Any = Evaluator(model)
    first = before.decode(batch.source, 12).ids
    with torch.no_grad():
        model.head.weight.copy_(-model.head.weight)
    after: Any = Evaluator(model)
    assert not torch.equal(after.decode(batch.source, 12).ids, first)
    assert torch.equal(model.decode(batch.source, 12).ids, after.decode(batch.source, 12).ids)
    assert torch.equal(before.decode(batch.source, 12).ids, first)
    model.set_lines(narrow(3).lines)
    compare(model, Evaluator(model), batch)
    model.register_forward_hook(lambda *_: None)
    assert Evaluator(model).table is None  # it may compute anything


def test_fields_that_do_not_fit_a_number_are_numbered_in_parts(monkeypatch):
    wide = narrow(4, 11)  # pairs of its lines would be taken for each other
    assert Evaluator(wide).table is None
    monkeypatch.setattr(rows, "NUMBER", 24)
    model = narrow(3)
    frozen: Any = Evaluator(model)
    compare(model, frozen, digit_data().test(10, 30))
    assert frozen.table.layers[-1].partial


@given(st.lists(st.lists(st.integers(0, 2**61)), max_size=6), st.integers(0, 2**32))
@settings(max_examples=50)
def test_numbers_are_those_of_a_dict(parts, seed):
    numbering, known = Numbering(), dict[int, int]()
    parts = [*parts, np.random.default_rng(seed).integers(0, 5000, 3000).tolist()]
    for part in parts:
        codes = torch.tensor(part, dtype=torch.long)
        found = numbering.find(codes).tolist()
        assert found == [known.get(code, -1) for code in part]
        new = [code for code in dict.fromkeys(part) if code not in known]
        numbering.add(torch.tensor(new, dtype=torch.long))
        known |= {code: len(known) + k for k, code in enumerate(new)}
        assert numbering.count == len(known)


def test_outputs_of_a_batch_end_each_for_itself():
    model = narrow(2)
    with torch.no_grad():
        model.head.bias[model.eos] += 1.5
    batch = digit_data().test(7, 20, seed=2)
    _, written = plain(model, batch, 60)
    compare(model, Evaluator(model), Batch(batch.source, written, batch.problems))
    assert len(written.eq(model.eos).int().argmax(1).unique()) > 5


def test_dense_never_looks_up(tiny, monkeypatch):
    def refuse(*_: object) -> None:
        raise AssertionError

    def judged(**how: Any) -> list[Any]:
        rows = [
            abc.evaluate(tiny.calibrated, [3, 30], samples=20, greedy=greedy, **how)
            for greedy in (False, True)
        ]
        found = abc.stress(tiny.calibrated, [9], samples=20, search=50, **how)
        return [*(one["correct"].tolist() for one in rows), found["wrong"].tolist()]

    once = judged()
    monkeypatch.setattr(evaluator, "Windows", refuse)
    assert judged(dense=True) == once


def test_without_a_table_a_model_on_lines_is_evaluated_in_float64(tiny):
    """In which it is certified: large weights may have other answers in float32."""
    vanilla, calibrated = (Run.open(path).load_model() for path in (tiny.vanilla, tiny.calibrated))
    assert Evaluator(calibrated, dense=True).model.embed.weight.dtype == torch.float64
    assert Evaluator(vanilla, dense=True).model is vanilla


def test_what_the_table_gives_up_is_put_through_in_parts_or_refused(monkeypatch):
    """It takes many more tokens at once than all layers may."""
    model, data, together = narrow(5), digit_data(), list[int]()
    monkeypatch.setattr(windows, "TRIED", 64)
    batch = data.test(40, 90)
    frozen: Any = Evaluator(model)
    assert len([*frozen.chunks(torch.arange(90), 2**12)]) == 1

    def encode(source: Tensor, *more: Any, **how: Any) -> Any:
        together.append(source.numel())
        return Transformer.encode(frozen.model, source, *more, **how)

    frozen.model.tokens_at_once, frozen.model.encode = 1000, encode
    likely = plain(model, batch, 1)[0].argmax(-1)
    assert torch.equal(frozen.best(batch.source, batch.target), likely)
    frozen.decode(batch.source, 5)
    assert max(together) <= 1000 < batch.source.numel()
    monkeypatch.setattr(memory, "available_memory", lambda: 2**14)
    with pytest.raises(AbcError, match=r"different windows, too many to keep, and a source of 83"):
        Evaluator(model).best(batch.source, batch.target)
