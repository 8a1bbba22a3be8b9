"""Schemes of others for longer numbers, beside the numbers of their public code.

The expected ids and biases were printed by that code: github.com/HanseulJo/position-coupling
(``AdditionDatasetWithCoupledPositions``) and github.com/mcleish7/arithmetic (``Abacus``, ``FIRE``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from conftest import digit_data, standing, view_of
from hypothesis import given
from hypothesis import strategies as st

from abc_calib import stages
from abc_calib.calibration import trial
from abc_calib.errors import UsageError
from abc_calib.geometry.coords import AttentionView, Coords, output_coords, source_coords
from abc_calib.nn.positions import build_scheme
from tasks import get_task

TINY: dict[str, Any] = {"decoder_layers": 1, "heads": 2, "width": 16, "feedforward": 16}


def scheme_of_ids(name: str, training: bool = False) -> Any:
    """A scheme that adds the number of its row of the table."""
    scheme: Any = build_scheme(name, 1, 1)
    scheme.table.data = (
        torch.arange(scheme.table.shape[-2]).float()[:, None].expand_as(scheme.table)
    )
    return scheme.train(training)


def of_source(problem: str, task: str = "addition") -> Coords:
    data = digit_data(task)
    return source_coords(data.lay_out(data.task.parse(problem)).source, data.vocabulary.delimiters)


def written(steps: int, start: Any = None) -> Coords:
    return replace(output_coords(torch.zeros(1, steps)), start=start)


def ids(scheme: Any, at: Coords) -> list[int]:
    x = torch.zeros(*at.column.shape, 1)
    return scheme.embed(x, at)[0, :, 0].long().tolist()


def test_coupled_ids_are_those_of_the_public_code():
    """``0183+2119`` there: 5 4 3 2, 1, 5 4 3 2, then 1 for ``=`` and 2 3 4 5 6 for ``20320``."""
    scheme, at = scheme_of_ids("coupled"), of_source("183+2119")
    operands = [5, 4, 3, 2, 1, 5, 4, 3, 2]
    assert ids(scheme, at) == [0, *operands, 1]
    assert ids(scheme, written(6)) == [1, 2, 3, 4, 5, 6]
    moved = replace(at, start=torch.tensor([[5]]))  # another sample of theirs, which starts at 6
    assert ids(scheme, moved) == [0, *(i + 5 for i in operands), 6]
    assert ids(scheme, written(6, moved.start)) == [6, 7, 8, 9, 10, 11]
    # in their copying, word k and output k + 1 share an id
    words = source_coords(torch.tensor([[8, 1, 2, 3, 9]]), (8, 9), words=True)
    assert ids(scheme, words) == [0, 2, 3, 4, 1]


def test_coupled_ids_start_anywhere_but_within_the_table():
    """The public code draws from 1 to ``max_position`` less the answer's digits, all alike."""
    scheme, at = scheme_of_ids("coupled:size=12", training=True), of_source("183+2119")
    each = scheme.starts(at.samples(torch.zeros(400).long()))[:, 0].tolist()
    assert set(each) == set(range(7))  # ids 1 to 6 become at most 7 to 12
    assert scheme.eval().starts(at) is None
    tight = scheme_of_ids("coupled:size=4", training=True)
    assert {int(tight.starts(at)) for _ in range(20)} == {0}
    assert max(ids(tight, at)) == 4, "beyond the table it is the last row"


def test_abacus_places_are_those_of_the_public_code():
    """``305+720=035`` there, numbers backwards: 1 2 3, 0, 1 2 3, 0, 1 2 3; moved on by 3: 4 5 6."""
    scheme, at = scheme_of_ids("abacus:size=32,offset=9"), of_source("503+27")
    assert ids(scheme, at) == [0, 3, 2, 1, 0, 3, 2, 1, 0]
    assert ids(scheme, written(4)) == [0, 1, 2, 3]
    moved = replace(at, start=torch.tensor([[3]]))
    assert ids(scheme, moved) == [0, 6, 5, 4, 0, 6, 5, 4, 0]
    assert ids(scheme, written(4, moved.start)) == [0, 4, 5, 6]
    # a batch in training is moved by one number
    many = at.samples(torch.zeros(7).long())
    draws = [scheme.train().starts(many) for _ in range(200)]
    assert all(len(draw) == 7 and len(draw.unique()) == 1 for draw in draws)
    assert {int(draw[0]) for draw in draws} == set(range(10))
    assert scheme.eval().starts(many) is None


# fmt: off
FIRE = [
    [-0.55, 0.15519, 0.649319, 1.044136, 1.409681, 1.749995, 2.068337],
    [0.15519, -0.55, 0.15519, 0.649319, 1.044136, 1.409681, 1.749995],
    [0.649319, 0.15519, -0.55, 0.15519, 0.649319, 1.044136, 1.409681],
    [1.044136, 0.649319, 0.15519, -0.55, 0.15519, 0.649319, 1.044136],
    [1.409681, 1.044136, 0.649319, 0.15519, -0.55, 0.15519, 0.649319],
    [1.749995, 1.409681, 1.044136, 0.649319, 0.15519, -0.55, 0.15519],
    [1.749996, 1.475366, 1.181782, 0.866432, 0.537914, 0.058357, -0.55],
]
# fmt: on
"""Of the first head, as the public ``FIRE`` gives it for the weights below."""


def test_fire_biases_are_those_of_the_public_code():
    scheme: Any = build_scheme("fire:hidden=3,threshold=4", 4, 2, ("self", "cross"))
    with torch.no_grad():
        scheme.stretch.fill_(1.25)
        scheme.into[:] = torch.tensor([[1.0, -2.0, 0.5], [0.1, 0.7, -0.2]])
        scheme.out[:] = torch.tensor([[1.0, -1.0, 2.0], [0.3, 0.4, -0.5]])
        scheme.out_bias[:] = torch.tensor([0.05, -0.1])
        q = torch.zeros(1, 2, 7, 2)
        found = scheme.score_bias(q, q, view_of("self", range(7), 7, [7]))
        across = scheme.score_bias(q, q, view_of("cross", range(7), 7, [7]))
    torch.testing.assert_close(found[0, 0], torch.tensor(FIRE), rtol=0, atol=2e-6)
    second = [0.08, 0.073134, 0.065795, 0.057911, 0.046374, 0.108607, 0.21]
    torch.testing.assert_close(found[0, 1, 6], torch.tensor(second), rtol=0, atol=2e-6)
    below = torch.ones(7, 7).tril().bool()
    assert torch.equal(across[0, :, below], found[0, :, below]), "keys before a row are as there"
    assert not torch.isclose(across[0, 0, 0, 3], found[0, 0, 0, 3]), "those behind have a sign"


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.floats(1.0, 10**6))
def test_fire_follows_the_formula_anywhere(row, key, threshold):
    scheme: Any = build_scheme(f"fire:hidden=1,threshold={threshold:.3f}", 2, 1).double()
    with torch.no_grad():
        scheme.into[:] = torch.tensor([[1.0], [1.5]])  # so that its value is the ratio + 1.5
        scheme.out.fill_(1.0)
        scheme.out_bias.zero_()
        one = torch.zeros(1, 1, 1, 2, dtype=torch.float64)
        at = AttentionView("self", standing([row]), standing([key]))
        found = float(scheme.score_bias(one, one, at)) - 1.5
    most = max(row, round(threshold, 3))
    c, high = torch.tensor([0.1 * abs(row - key), 0.1 * most], dtype=torch.float64).log1p()
    assert abs(found - float(c / (high + 1e-6))) < 1e-4


@pytest.mark.parametrize(
    ("name", "task"),
    [
        *(("coupled", "copy"), ("coupled:size=4", "addition"), ("fire", "copy")),
        *(("abacus", "addition"), ("abacus:size=8,offset=2", "copy")),
    ],
)
def test_they_train_and_go_on_beyond_their_tables(name, task):
    short = {"length": 3} if task == "addition" else {}
    run = stages.train(task, scheme=name, steps=3, batch=8, **TINY, **short)
    rows = stages.evaluate(run, [20, 60], samples=3)
    assert rows["n"].tolist() == [3, 3]
    model, data = run.load_model(), run.data
    batch = data.test(60, 2)
    with torch.inference_mode():
        steps = batch.target.shape[1]
        decoded = model.decode(batch.source, steps).ids
        again = model(batch.source, decoded).argmax(-1)
    ended = (decoded == model.eos).cumsum(1) - (decoded == model.eos).long() > 0
    assert ((again == decoded) | ended).all(), "cached decoding is one pass over what was written"


def test_what_is_drawn_for_a_source_holds_for_its_output(model_for):
    data = digit_data()
    model = model_for(data, scheme="coupled").train()
    source = data.training(0, 30).source
    drawn = model.encode(source).drawn
    assert len(drawn) == 30 and len(drawn.unique()) > 1
    assert model.eval().encode(source).drawn is None


def test_what_counts_columns_takes_no_other_order():
    for name in ("coupled", "abacus"):
        for options, reason in (
            ({"scheme": name, "format": "aligned"}, "digits of a number, which do not stand toge"),
            ({"scheme": name, "cyclic": 3}, "cyclic = 3: a scheme that counts columns"),
        ):
            with pytest.raises(UsageError, match=reason):
                stages.train("addition", **options, **TINY)
    stages.train("successor", scheme="coupled", format="aligned", steps=1, **TINY)


@given(st.integers(1, 5), st.sampled_from("17"), st.integers(0, 3))
def test_coordinates_are_those_of_the_layout(width, other, padding):
    """Of every token of a source, however much padding stands behind it."""
    data = digit_data("multiplication")
    problems = get_task("multiplication").parse(f"{'7' * width}*{other}")
    layout, source = data.layout(problems), data.lay_out(problems).source
    source = torch.nn.functional.pad(source, (0, padding), value=data.vocabulary.pad)
    at = source_coords(source, data.vocabulary.delimiters)
    for position in range(layout.keys):
        part, _, column = layout.coordinate(position)
        assert (int(at.part[0, position]), int(at.column[0, position])) == (part, column)


# Index hints


def hinted(problem: str, format: str = "hints", task: str = "addition") -> tuple[Any, list[str]]:
    data: Any = digit_data(task, format=format)
    batch = data.lay_out(data.task.parse(problem))
    symbols = data.vocabulary.symbols
    return data, [
        " ".join(symbols[i] for i in row[0].tolist()) for row in (batch.source, batch.target)
    ]


def test_hints_stand_before_the_digits():
    """The public code counts hints up, to 14 at the last digit, and adds a zero. For ``80+7643``:

    10 0 11 0 12 0 13 8 14 0 + 10 0 11 7 12 6 13 4 14 3, and 14 3 13 2 12 7 11 7 10 0.
    """
    data, texts = hinted("42+39")
    assert texts == ["$ #1 4 #0 2 + #1 3 #0 9 &", "#0 1 #1 8 &"]
    assert " ".join(data.layout_at(2).labels()) == "$ #a1 a1 #a0 a0 + #b1 b1 #b0 b0 &"
    assert data.read(["#0", "1", "#1", "8"]) == "81" and data.read(["1", "#7", "8"]) == "81"
    assert hinted("80+7643")[1] == [
        "$ #3 0 #2 0 #1 8 #0 0 + #3 7 #2 6 #1 4 #0 3 &", "#0 3 #1 2 #2 7 #3 7 &",
    ]  # fmt: skip
    assert hinted("199", task="successor")[1] == ["$ #2 1 #1 9 #0 9 &", "#0 0 #1 0 #2 2 &"]
    assert hinted("123*4", task="multiplication")[1][0] == "$ #2 1 #1 2 #0 3 * #0 4 &"
    assert hinted("1234+1", "hints:2")[1][0] == "$ #1 1 #1 2 #1 3 #0 4 + #1 0 #1 0 #1 0 #0 1 &"


def test_hints_begin_anywhere_in_training_and_first_else():
    data: Any = digit_data(format="hints:20", length=3)
    batch, first = data.training(0, 400), data.vocabulary.ids["#0"]
    begins = (batch.target[:, 0] - first).tolist()
    assert min(begins) == 0 and 16 <= max(begins) < 20 and len(set(begins)) > 12
    assert torch.equal(batch.source, data.training(0, 400).source)
    for source, target in zip(batch.source.tolist(), batch.target.tolist(), strict=True):
        last = source[source.index(data.vocabulary.eos) - 2]
        assert last == target[0], "the last digits of operand and answer share their hint"
        hints = target[: target.index(data.vocabulary.eos) : 2]
        assert hints == list(range(hints[0], hints[0] + len(hints)))
    for other in (data.test(3, 50), data.validation(50)):
        assert set((other.target[:, 0] - first).tolist()) == {0}


def test_hints_that_cannot_be_are_refused():
    wrong = ("hints:1", "hints:", "hints:x", "hints:99999", "hints:0x3")
    number, between = (
        r"give hints:N, N from 2 to 10,000",
        "in format hints has none: choose aligned",
    )
    for task, options, reason in (
        *(("addition", {"format": format}, number) for format in wrong),
        ("copy", {"format": "hints"}, "only the format free"),
        ("addition", {"format": "hints", "scheme": "abacus"}, "do not stand together"),
        ("addition", {"format": "hints", "attention_window": 1}, between),
    ):
        with pytest.raises(UsageError, match=reason):
            stages.train(task, **options, **TINY)


def test_hints_from_training_to_a_heatmap(abc, monkeypatch, untrained):
    monkeypatch.setattr(trial, "STEPS", 1)
    how = {"steps": 150, "batch": 32, "learning_rate": 0.01, "warmup": 0, "optimizer": "adam"}
    run = stages.train("successor", base=2, length=2, format="hints:12", **how, **TINY)
    assert stages.evaluate(run, [2, 30], samples=4)["n"].tolist() == [2, 4]
    calibrated = stages.calibrate(run, threshold=0.3, steps=2, batch=8)
    assert calibrated.data.layout_at(2).hints and calibrated.lines()
    verdict = abc("certify", "--json").json()
    assert verdict["outcome"] in ("unknown", "refuted") and "index hints" in verdict["reason"]
    assert abc("predict", "1011", "--run", run.path).code in (0, 1)
    assert abc("heatmap", "--format", "png", "--digits", 3).code == 0
    assert abc("stress", "--lengths", 3, "--samples", 2, "--search", 2).code == 0
