"""From a trained run to its lines: which samples, which lines, and how a choice is made."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch
from conftest import CALIBRATED, VANILLA, digit_data

from abc_calib.calibration import pipeline
from abc_calib.calibration import trial as check
from abc_calib.calibration.fits import base as evidence
from abc_calib.calibration.fits.nnls import Nnls
from abc_calib.calibration.pipeline import calibrate, full_length
from abc_calib.calibration.trial import Check, Trial, carries_over, choose, every_place
from abc_calib.config import CalibrationOptions
from abc_calib.data import Data, DigitData
from abc_calib.errors import AbcError
from abc_calib.evaluation.exact import exact_matches
from abc_calib.geometry import DIRECTIONS, Line, LineBias
from abc_calib.runs import Run


@pytest.fixture(scope="module")
def vanilla(trained) -> Run:
    return Run(trained.root / VANILLA)


@pytest.fixture(scope="module")
def model(vanilla):
    return vanilla.load_model()


@pytest.fixture(scope="module")
def found(vanilla, model):
    """Lines by the default fit at a given threshold."""
    return calibrate(model, vanilla.data, CalibrationOptions(threshold=0.3, samples=500))


def options(**given) -> CalibrationOptions:
    return CalibrationOptions(**{"threshold": 0.3, "samples": 500, **given})


def longer(source: DigitData, length: int) -> Data:
    return source.shortened(length)


def all_lines(bias: LineBias) -> list:
    """(site, layer, head, line) of every line."""
    return [
        (site, layer, head, line)
        for site, layers in bias.sites.items()
        for layer, heads in enumerate(layers)
        for head, lines in enumerate(heads)
        for line in lines
    ]


# The default fit


def test_every_head_of_every_layer_gets_one_line(found):
    assert set(found.bias.sites) == {"self", "cross"}
    for layers in found.bias.sites.values():
        assert [[len(lines) for lines in heads] for heads in layers] == [[1] * 8] * 2
    assert found.bias.transparent() == []


def test_the_table_has_the_lines_of_the_bias(found):
    rows = [(row.site, row.layer, row.head, row.line, row.value) for row in found.table]
    lines = all_lines(found.bias)
    assert rows == [(s, layer, h, line.label(s), line.value) for s, layer, h, line in lines]
    assert {row.note for row in found.table} <= {"", "sink", "assigned"}
    closed = ("vert +0", "diag +0")  # what a sink reads, and what is no sink but weak
    own = [row for row in found.table if not row.note and not row.line.startswith(closed)]
    assert own and all(0.3 <= row.weight <= 1.05 for row in own)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_only_the_asked_directions_are_followed(vanilla, model, direction):
    found = calibrate(model, vanilla.data, options(dirs=(direction,)))
    followed = {row.line.split()[0] for row in found.table if row.note != "sink"}
    assert followed <= {direction}


@pytest.mark.parametrize("values", ["hard", "soft"])
@pytest.mark.parametrize("fit", ["nnls", "mean"])
def test_no_head_rests_on_the_first_row(vanilla, model, fit, values):
    """It has read digits, from the second layer on, that no later row's answer depends on."""
    asked = options(fit=fit, values=values, empty="sink", anchors="segment", threshold=0.05)
    bias = calibrate(model, vanilla.data, asked).bias
    own = [line for site, _, _, line in all_lines(bias) if site == "self"]
    assert own and not any(line.direction == "vert" for line in own)


# Which samples


def test_lines_are_read_from_samples_that_the_model_gets_right(vanilla, model, monkeypatch):
    seen, capture = [], evidence.capture

    def watched(model, batch):
        seen.append(batch)
        return capture(model, batch)

    monkeypatch.setattr(evidence, "capture", watched)
    found = calibrate(model, longer(vanilla.data, 7), options(), force=True)
    batch, *_ = seen
    assert exact_matches(model, batch).all()
    assert found.samples == len(batch) == round(500 * found.accuracy) < 495


def test_samples_of_full_length_have_one_shape_and_are_right(vanilla, model):
    batch = full_length(vanilla.data, 300, model)
    assert set(batch.problems.operands[0].lengths) == {5}
    assert (batch.source != vanilla.data.vocabulary.pad).all()
    assert exact_matches(model, batch).all()


def test_a_model_that_is_often_wrong_is_refused_with_its_accuracy(vanilla, model):
    source = longer(vanilla.data, 7)
    batch = source.training(pipeline.UNREACHED_STEP, 500)
    right = 100 * exact_matches(model, batch).float().mean()
    with pytest.raises(AbcError, match=f"has not interpolated: {right:.1f} % of 500 training"):
        calibrate(model, source, options())


# The choice between candidates

ADAM: Any = SimpleNamespace(optimizers=("adam",))


@pytest.fixture
def biases(random_bias) -> list[LineBias]:
    return [random_bias({"cross": 1}, 2, seed, segments=1, single=True) for seed in range(4)]


@pytest.mark.parametrize(
    ("scores", "tried", "chosen"),
    [
        ([0.2, 0.995, 1.0, 1.0], 2, 1),
        ([1.0, 1.0, 1.0, 1.0], 1, 0),
        ([0.2, 0.9, 0.99, 0.1], 4, 2),
        ([0.3, 0.1, 0.3, 0.2], 4, 0),
    ],
)
def test_the_first_that_carries_over_is_taken_or_else_the_best(
    biases, monkeypatch, scores, tried, chosen
):
    accuracy = {id(bias): score for bias, score in zip(biases, scores, strict=True)}
    monkeypatch.setattr(check, "carries_over", lambda bias, *_: Trial(accuracy[id(bias)]))
    seen: list[Check] = []
    candidates = zip((0.4, 0.3, 0.2, 0.1), biases, strict=True)
    found = choose(candidates, ADAM, None, on_check=seen.append)
    bias, checks = found.bias, found.checks
    assert bias is biases[chosen]
    assert checks == seen
    assert [(c.threshold, c.accuracy) for c in checks] == list(
        zip((0.4, 0.3, 0.2, 0.1), scores, strict=True)
    )[:tried]


def test_where_none_carries_over_all_are_tried_with_the_next_optimizer(biases, monkeypatch):
    def accuracy(bias, *rest):
        return Trial(0.9 + 0.1 * (rest[-1].startswith("muon") and biases.index(bias) == 2))

    monkeypatch.setattr(check, "carries_over", accuracy)
    both: Any = SimpleNamespace(optimizers=("adam", "muon"))
    candidates = list(zip((0.4, 0.3, 0.2, 0.1), biases, strict=True))
    found = choose(candidates, both, None)
    bias, checks = found.bias, found.checks
    assert bias is biases[2]
    assert [c.threshold for c in checks] == [0.4, 0.3, 0.2, 0.1, 0.4, 0.3, 0.2]
    assert [c.optimizer for c in checks] == ["adam"] * 4 + ["muon"] * 3
    assert choose(candidates[:2], both, None).bias is biases[0]
    first = choose(candidates, both, None, optimizer="muon")
    assert first.bias is biases[2], "what the retraining trains with comes first"
    assert [c.optimizer for c in first.checks] == ["muon, cooled"] * 3
    ends = choose(candidates[:2], both, None, optimizer="muon").checks
    assert [c.optimizer for c in ends[::2]] == ["muon, cooled", "muon", "adam"]


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2)])
def test_of_those_that_carry_over_the_smallest_is_taken(biases, monkeypatch, order):
    """And of smaller ones that do not carry over, none."""
    monkeypatch.setattr(
        check, "carries_over", lambda bias, *_: Trial(float(biases.index(bias) > 0))
    )
    size = {id(bias): 10.0 * n for n, bias in enumerate(biases)}
    candidates = [(0.1 * n, biases[n]) for n in order]
    found = choose(candidates, ADAM, None, lambda bias: size[id(bias)])
    bias, checks = found.bias, found.checks
    assert bias is biases[1]
    assert [c.windows for c in checks] == [0.0, 10.0]


@pytest.mark.parametrize(
    ("needed", "accuracies", "lines_left"),
    [
        ((0, 2), [0.0, 1.0, 0.0, 1.0, 1.0, 1.0], [4, 7, 6, 6, 5, 4]),
        ((0, 1), [1.0], [4]),
    ],
    ids=["one by one", "all at once"],
)
def test_lines_that_are_not_needed_are_taken_out_again(monkeypatch, needed, accuracies, lines_left):
    """The weakest first, where what is left carries over and there are many windows."""
    sink, lines = Line("vert", 2, 0), [Line("anti", 1, k) for k in range(6)]
    start = LineBias({"cross": ((*((x,) for x in lines), (lines[0], lines[5]), (sink,)),)})
    monkeypatch.setattr(check, "carries_over", lambda bias, *_: Trial(float(needed <= kept(bias))))

    def kept(bias):
        return {line for *_, line in every_place(bias)} - {sink}

    def size(bias):
        return 10.0 ** len(kept(bias)) * check.FEW / 1e3

    needed = {lines[k] for k in needed}
    weights = {("cross", 0, lines[k]): float(w) for k, w in enumerate((9, 4, 1, 3, 2, 8))}
    data = digit_data("addition")
    found = choose([(0.4, start)], ADAM, data, size, lambda _: weights)
    bias, checks = found.bias, found.checks
    assert kept(bias) == needed | {lines[5]}, "the strongest of those that are not needed is left"
    assert [len(head) for head in bias.sites["cross"][0]] == [1] * 6 + [2, 1]
    assert [c.accuracy for c in checks] == accuracies
    assert [c.lines for c in checks] == lines_left


def test_candidates_are_tried_from_the_fewest_lines_on(vanilla, model, monkeypatch):
    monkeypatch.setattr(check, "STEPS", 1)
    monkeypatch.setattr(check, "JUDGED", 5)
    seen: list[Check] = []
    found = calibrate(model, vanilla.data, options(threshold=None), on_check=seen.append)
    assert found.checks == seen
    thresholds = [c.threshold for c in found.checks if c.optimizer == "adam"]
    assert thresholds == sorted(thresholds, reverse=True)
    assert set(thresholds) <= set(Nnls.thresholds)
    assert [c.threshold for c in found.checks if c.optimizer == "muon"] == thresholds


def test_a_choice_never_looks_beyond_the_training_lengths(vanilla, model, monkeypatch):
    """Candidates train on lengths up to three of five and are judged on four and five."""
    monkeypatch.setattr(check, "STEPS", 2)
    monkeypatch.setattr(check, "JUDGED", 5)
    trained_on, judged_on = set(), set()
    training, test = DigitData.training, DigitData.test

    def watched_training(self, step, n, exact=False):
        batch = training(self, step, n, exact)
        if step < pipeline.UNREACHED_STEP:
            trained_on.update(batch.problems.operands[0].lengths.tolist())
        return batch

    def watched_test(self, length, *rest):
        judged_on.add(length)
        return test(self, length, *rest)

    monkeypatch.setattr(DigitData, "training", watched_training)
    monkeypatch.setattr(DigitData, "test", watched_test)
    calibrate(model, vanilla.data, options(threshold=None))
    assert trained_on == {1, 2, 3}
    assert judged_on == {4, 5}


def test_a_trial_depends_on_the_seed_alone_and_draws_no_one_elses_numbers(
    vanilla, model, found, monkeypatch
):
    monkeypatch.setattr(check, "STEPS", 3)
    monkeypatch.setattr(check, "JUDGED", 50)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    scores = []
    for _ in range(2):
        scores.append(carries_over(found.bias, model, vanilla.data).accuracy)
        torch.rand(3)
        torch.set_rng_state(state)
    assert scores[0] == scores[1]
    carries_over(found.bias, model, vanilla.data)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())


def test_a_bias_that_reads_no_digit_does_not_carry_over(trained, vanilla, model):
    """While the chosen one does, at least in part."""
    sinks = calibrate(model, vanilla.data, options(threshold=1.0)).bias
    chosen = pd.read_csv(trained.root / CALIBRATED / "check.csv").accuracy.max()
    assert carries_over(sinks, model, vanilla.data).accuracy < 0.1 < 0.5 < chosen


def test_one_digit_leaves_nothing_to_judge(vanilla, model, found, monkeypatch):
    monkeypatch.setattr(check, "STEPS", 1)
    assert carries_over(found.bias, model, longer(vanilla.data, 1)) == Trial(1.0)
