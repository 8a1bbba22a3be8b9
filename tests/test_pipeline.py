"""From a trained run to its lines: which samples, which lines, and how a choice is made."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import CALIBRATED, VANILLA, assert_same_weights, digit_data, in_stream

from abc_calib.calibration import capture as module
from abc_calib.calibration import extend_bias, pipeline
from abc_calib.calibration import trial as check
from abc_calib.calibration.capture import (
    average_attention,
    capture,
    correct_samples,
    same_shape,
)
from abc_calib.calibration.fits import base as evidence
from abc_calib.calibration.fits.base import sinks
from abc_calib.calibration.fits.mean import dense_bias
from abc_calib.calibration.fits.nnls import Nnls
from abc_calib.calibration.pipeline import calibrate, full_length
from abc_calib.calibration.trial import Aim, Check, carries_over, choose, every_place, lines_of
from abc_calib.calibration.windows import undecided
from abc_calib.config import MODEL_OPTIONS, CalibrationOptions
from abc_calib.data import DigitData
from abc_calib.errors import AbcError, UsageError
from abc_calib.evaluation.exact import exact_matches, greedy_matches
from abc_calib.geometry import CORNER, DIRECTIONS, Line, LineBias
from abc_calib.nn.build import build_model
from abc_calib.runs import Run


@pytest.fixture(scope="module")
def vanilla(trained) -> Run:
    return Run(trained.root / VANILLA)


@pytest.fixture(scope="module")
def model(vanilla):
    return vanilla.load_model()


def options(**given) -> CalibrationOptions:
    threshold = 1.5 if given.get("fit") == "mean" else 0.3
    return CalibrationOptions(**{"threshold": threshold, "samples": 500, **given})


@pytest.fixture(scope="module")
def find(vanilla, model):
    """``find(**options)``: the calibration of the trained model with these options."""
    return lambda **given: calibrate(model, vanilla.data, options(**given))


FITS = pytest.mark.parametrize("fit", ["nnls", "mean"])


# The default fit


@pytest.fixture(scope="module")
def found(find):
    """Lines by the default fit at a given threshold."""
    return find()


def test_every_head_of_every_layer_gets_one_line_and_the_table_has_it(found):
    assert set(found.bias.sites) == {"self", "cross"}
    for layers in found.bias.sites.values():
        assert [[len(lines) for lines in heads] for heads in layers] == [[1] * 8] * 2
    assert found.bias.transparent() == []
    rows = [(row.site, row.layer, row.head, row.line, row.value) for row in found.table]
    assert rows == [
        (s, layer, h, line.label(s), line.value)
        for s, layer, h, lines in found.bias.each()
        for line in lines
    ]
    assert {row.note for row in found.table} <= {"", "sink", "assigned"}
    closed = ("vert +0", "diag +0")  # what a sink reads, and what is no sink but weak
    own = [row for row in found.table if not row.note and not row.line.startswith(closed)]
    assert own and all(0.3 <= row.weight <= 1.05 for row in own)


@FITS
def test_only_the_asked_sites_and_directions_have_lines(find, fit):
    whole = find(fit=fit).bias
    assert set(whole.sites) == {"self", "cross"}
    part = find(fit=fit, sites=("cross",)).bias
    assert part.sites == {"cross": whole.sites["cross"]}
    for direction in DIRECTIONS:
        found = find(fit=fit, dirs=(direction,)).bias
        lines = {line for line in found.every() if line not in sinks(1).values()}
        assert {line.direction for line in lines} == {direction}


def test_no_head_rests_on_the_first_row(find):
    """It has read digits, from the second layer on, that no later row's answer depends on."""
    bias = find(threshold=0.05).bias
    own = [line for site, *_, lines in bias.each() for line in lines if site == "self"]
    assert own and not any(line.direction == "vert" for line in own)


# Which samples


def test_lines_are_read_from_samples_that_the_model_gets_right(vanilla, model, monkeypatch):
    seen, capture = [], evidence.capture

    def watched(model, batch, **layers):
        seen.append(batch)
        return capture(model, batch, **layers)

    monkeypatch.setattr(evidence, "capture", watched)
    source = vanilla.data.shortened(7)
    found = calibrate(model, source, options(), Aim(copy.deepcopy(model), source, force=True))
    batch, *_ = seen
    assert exact_matches(model, batch).all()
    assert found.samples == len(batch) == round(500 * found.accuracy) < 495


def test_each_fit_has_its_own_defaults(find):
    for fit, own in (
        ("nnls", {"layer": "own"}),
        ("mean", {"layer": "last", "average": "all", "attention": "weights"}),
    ):
        assert find(fit=fit).bias == find(fit=fit, **own).bias


def test_samples_of_full_length_have_one_shape_and_are_right(vanilla, model):
    batch = full_length(vanilla.data, 300, model)
    assert set(batch.problems.operands[0].lengths) == {5}
    assert (batch.source != vanilla.data.vocabulary.pad).all()
    assert exact_matches(model, batch).all()


def test_a_model_that_is_often_wrong_is_refused_with_its_accuracy(vanilla, model):
    source = vanilla.data.shortened(7)
    batch = source.training(pipeline.UNREACHED_STEP, 500)
    right = 100 * exact_matches(model, batch).float().mean()
    with pytest.raises(
        AbcError, match=f"its training problems: {100 - right:.1f} % of 500 are wrong"
    ):
        calibrate(model, source, options())


def test_a_model_that_never_ends_is_told_so(vanilla, model):
    """More training would not help: its answers are right, and go on."""
    endless = copy.deepcopy(model)
    with torch.no_grad():
        endless.head.bias[endless.eos] = -1e4
    with pytest.raises(AbcError, match=r"then go on, mostly with .* not learned to end them"):
        calibrate(endless, vanilla.data, options())


# The choice between candidates


@dataclass(frozen=True)
class Wanted:
    """What a choice asks of what will be trained: how many windows there are, which optimisers."""

    windows: Callable[[LineBias], float] = lines_of
    optimizer: str = "adam"
    optimizers: tuple[str, ...] = ("adam",)
    force: bool = True

    @property
    def model(self) -> Wanted:
        return self


@pytest.fixture
def biases(random_bias) -> list[LineBias]:
    return [random_bias({"cross": 1}, 2, seed, segments=1, single=True) for seed in range(4)]


def chosen_of(candidates, on_check=lambda _: None, data=None, weights=None, **wanted):
    """The choice, without weights of lines unless they are given."""
    aim: Any = Wanted(**wanted)
    return choose(candidates, data, aim, lambda _: weights or {}, on_check)


@pytest.mark.parametrize(
    ("scores", "tried", "chosen"),
    [([0.2, 0.995, 1.0, 1.0], 2, 1), ([0.2, 0.9, 0.99, 0.1], 4, 2), ([0.3, 0.1, 0.3, 0.2], 4, 0)],
)
def test_the_first_that_carries_over_is_taken_or_else_the_best(
    biases, monkeypatch, scores, tried, chosen
):
    accuracy = {id(bias): score for bias, score in zip(biases, scores, strict=True)}
    monkeypatch.setattr(check, "carries_over", lambda bias, *_: (accuracy[id(bias)], None))
    thresholds, seen = (0.4, 0.3, 0.2, 0.1), list[Check]()
    found = chosen_of(zip(thresholds, biases, strict=True), seen.append)
    assert found.bias is biases[chosen] and found.checks == seen
    expected = list(zip(thresholds, scores, strict=True))[:tried]
    assert [(c.threshold, c.accuracy) for c in seen] == expected


def test_where_none_carries_over_all_are_tried_with_the_next_optimizer(biases, monkeypatch):
    """What the retraining trains with comes first."""

    large: list[bool] = []

    def accuracy(bias, model, data, how, takes_longer):
        large.append(takes_longer)
        return 0.9 + 0.1 * (how.startswith("muon") and biases.index(bias) == 2), None

    monkeypatch.setattr(check, "carries_over", accuracy)
    both: Any = {"optimizers": ("adam", "muon")}
    candidates = list(zip((0.4, 0.3, 0.2, 0.1), biases, strict=True))
    found = chosen_of(candidates, **both)
    assert found.bias is biases[2]
    assert [c.threshold for c in found.checks] == [0.4, 0.3, 0.2, 0.1, 0.4, 0.3, 0.2]
    assert [c.optimizer for c in found.checks] == ["adam"] * 4 + ["muon"] * 3
    assert chosen_of(candidates[:2], **both).bias is biases[0]
    both["optimizer"] = "muon"
    first = chosen_of(candidates, **both)
    assert first.bias is biases[2]
    assert [c.optimizer for c in first.checks] == ["muon, cooled"] * 3
    ends = chosen_of(candidates[:2], **both).checks
    assert [c.optimizer for c in ends[::2]] == ["muon, cooled", "muon", "adam"]
    assert not any(large)
    del large[:]  # a large table is not learned with a cooldown, and takes longer
    many = chosen_of(candidates[:1], windows=lambda _: 1e6, **both).checks
    assert [c.optimizer for c in many] == ["muon", "adam"]
    assert all(large)
    monkeypatch.setattr(check, "carries_over", lambda *_: (0.985, None))
    assert len(chosen_of(candidates[:1], windows=lambda _: 1e6, **both).checks) == 1
    assert len(chosen_of(candidates[:1], windows=lambda _: 1e3, **both).checks) == 3


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2)])
def test_of_those_that_carry_over_the_smallest_is_taken(biases, monkeypatch, order):
    """And of smaller ones that do not carry over, none."""
    taken = lambda bias, *_: (float(biases.index(bias) > 0), None)  # noqa: E731
    monkeypatch.setattr(check, "carries_over", taken)
    candidates = [(0.1 * n, biases[n]) for n in order]
    found = chosen_of(candidates, windows=lambda bias: 10.0 * biases.index(bias))
    assert found.bias is biases[1]
    assert [c.windows for c in found.checks] == [0.0, 10.0]


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
    taken = lambda bias, *_: (float(needed <= kept(bias)), None)  # noqa: E731
    monkeypatch.setattr(check, "carries_over", taken)

    def kept(bias):
        return {line for *_, line in every_place(bias)} - {sink}

    def windows(bias):
        return 10.0 ** len(kept(bias)) * check.FEW / 1e3

    needed = {lines[k] for k in needed}
    weights = {("cross", 0, lines[k]): float(w) for k, w in enumerate((9, 4, 1, 3, 2, 8))}
    data = digit_data("addition")
    found = chosen_of([(0.4, start)], data=data, weights=weights, windows=windows)
    bias, checks = found.bias, found.checks
    assert kept(bias) == needed | {lines[5]}, "the strongest of those that are not needed is left"
    assert [len(head) for head in bias.sites["cross"][0]] == [1] * 6 + [2, 1]
    assert [c.accuracy for c in checks] == accuracies
    assert [c.lines for c in checks] == lines_left


def test_a_choice_tries_the_fewest_lines_first_and_never_looks_beyond_the_training_lengths(
    vanilla, model, monkeypatch
):
    """Candidates train on lengths up to three of five and are judged on four and five."""
    monkeypatch.setattr(check, "STEPS", 1)
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
    seen: list[Check] = []
    found = calibrate(model, vanilla.data, options(threshold=None), on_check=seen.append)
    assert trained_on == {1, 2, 3}
    assert judged_on == {4, 5}
    assert found.checks == seen
    thresholds = [c.threshold for c in found.checks if c.optimizer == "adam"]
    assert thresholds == sorted(thresholds, reverse=True)
    assert set(thresholds) <= set(Nnls.thresholds)
    assert [c.threshold for c in found.checks if c.optimizer == "muon"] == thresholds


def test_a_trial_depends_on_the_seed_alone_and_draws_no_one_elses_numbers(
    vanilla, model, found, monkeypatch
):
    monkeypatch.setattr(check, "STEPS", 3)
    monkeypatch.setattr(check, "JUDGED", 50)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    scores = []
    for _ in range(2):
        scores.append(carries_over(found.bias, model, vanilla.data)[0])
        torch.rand(3)
        torch.set_rng_state(state)
    assert scores[0] == scores[1]
    carries_over(found.bias, model, vanilla.data)
    assert torch.equal(torch.get_rng_state(), state)
    assert_same_weights(model, weights)


def test_a_bias_that_reads_no_digit_does_not_carry_over(trained, vanilla, model, monkeypatch):
    """While the chosen one does, at least in part."""
    monkeypatch.setattr(check, "STEPS", 100)
    sinks = calibrate(model, vanilla.data, options(threshold=1.0)).bias
    chosen = pd.read_csv(trained.root / CALIBRATED / "check.csv").accuracy.max()
    assert carries_over(sinks, model, vanilla.data)[0] < 0.1 < 0.5 < chosen


def test_one_digit_leaves_nothing_to_judge(vanilla, model, found, monkeypatch):
    monkeypatch.setattr(check, "STEPS", 1)
    assert carries_over(found.bias, model, vanilla.data.shortened(1)) == (1.0, None)


# Captured attention


@pytest.fixture
def chunks_of_three(monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 3)


def test_captured_attention_is_that_of_each_sample_alone(model_for, chunks_of_three):
    source = digit_data("addition")
    model = model_for(source, encoder_layers=2, decoder_layers=2)
    batch, pad = source.training(0, 7), source.vocabulary.pad
    parts = list(capture(model, batch))
    assert [len(part.rows["cross"]) for part in parts] == [3, 3, 1]
    for n in range(len(batch)):
        part, at = parts[n // 3], n % 3
        s, t = int((batch.source[n] != pad).sum()), int((batch.target[n] != pad).sum())
        expected = model.attention(batch.source[n : n + 1, :s], batch.target[n : n + 1, :t]).weights
        for site, size in {"encoder": (s, s), "self": (t, t), "cross": (t, s)}.items():
            assert part.rows[site][at].sum() == size[0]
            assert len(part.weights[site]) == len(expected[site]) == 2
            for seen, wanted in zip(part.weights[site], expected[site], strict=True):
                small = seen[at, :, : size[0], : size[1]]
                torch.testing.assert_close(small, wanted[0], rtol=1e-4, atol=1e-6)
                assert not seen[at, :, : size[0], size[1] :].any()


def test_correct_samples_are_those_that_greedy_decoding_gets_right(half_trained):
    source, model = half_trained
    batch = source.training(10**6, 200)
    right, share = correct_samples(model, batch)
    expected = greedy_matches(model, batch)
    assert 0 < len(right) < 200
    assert share == pytest.approx(len(right) / 200)
    assert right.hash() == batch.take(expected.nonzero()[:, 0]).hash()
    again = source.lay_out(right.problems)
    s, t = again.source.shape[1], again.target.shape[1]
    assert torch.equal(right.source[:, :s], again.source)
    assert torch.equal(right.target[:, :t], again.target)


def test_same_shape_keeps_the_most_common_shape_without_padding():
    source = digit_data("addition")
    batch, pad = source.training(3, 300), source.vocabulary.pad
    kept = same_shape(batch, pad)
    assert not (kept.source == pad).any() and not (kept.target == pad).any()
    widths = [(part != pad).sum(1).tolist() for part in (batch.source, batch.target)]
    ((shape, most),) = Counter(zip(*widths, strict=True)).most_common(1)
    assert (kept.source.shape[1], kept.target.shape[1], len(kept)) == (*shape, most)
    again = source.lay_out(kept.problems)
    assert torch.equal(again.source, kept.source) and torch.equal(again.target, kept.target)


def test_the_average_is_the_mean_over_samples(model_for, chunks_of_three):
    source = digit_data("successor")
    model = model_for(source, encoder_layers=1, decoder_layers=2)
    batch = same_shape(source.training(0, 40), source.vocabulary.pad)
    average = average_attention(model, batch)
    sizes = {site: len(layers) for site, layers in average.items()}
    assert sizes == {"encoder": 1, "self": 2, "cross": 2}
    for site, layers in model.attention(batch.source, batch.target).weights.items():
        expected = torch.stack([layer.mean(0) for layer in layers])
        torch.testing.assert_close(torch.from_numpy(average[site]), expected)


@torch.no_grad()
def test_raw_attention_is_the_scores_before_softmax_where_a_query_may_look(model_for):
    data = digit_data()
    model = model_for(data, encoder_layers=1)
    batch = data.training(0, 9)
    weights = model.attention(batch.source, batch.target).weights
    for site, layers in model.attention(batch.source, batch.target, raw=True).weights.items():
        for scores, weight in zip(layers, weights[site], strict=True):
            assert (scores.isnan() == (weight == 0)).all()
            again = scores.nan_to_num(nan=-torch.inf).softmax(-1)
            torch.testing.assert_close(again, weight)
            assert float(scores.nan_to_num().min()) < 0  # and no logarithms of weights
            assert float(scores.nan_to_num().max()) > 0


def test_sums_and_directions_by_site_reach_the_lines(vanilla, model, find):
    """The bias of a calibration by sums is that of ``extend_bias``, head by head."""
    by_site = {"encoder": 1.0, "self": 0.5, "cross": 2.0}
    found = find(
        fit="mean",
        average="sum",
        threshold=by_site,
        dirs={"encoder": ("diag",), "self": ("diag",), "cross": ("anti", "vert")},
    )
    for site, dirs in (("self", ["diag"]), ("cross", ["anti", "vert"])):
        last = found.attention[site][-1]
        rows, keys = last.shape[1:]
        first = last[:, : vanilla.data.length]
        expected = extend_bias(first, (rows, keys), dirs, by_site[site], "sum", site)
        bias = dense_bias(found.bias.sites[site][0], (rows, keys))
        np.testing.assert_allclose(bias, expected, rtol=1e-6)
        assert np.isfinite(bias[:, 0, -1]).all() == (site == "cross")


# What rows see


SIZES: dict[str, Any] = {"width": 16, "feedforward": 32, "heads": 2, "decoder_layers": 2}


def by_model(model: Any, batch: Any) -> tuple[int, int]:
    """The same count: rows of equal logits, of which some have another right token."""
    there = batch.target != model.pad
    with torch.inference_mode():
        logits = model.double()(batch.source, batch.target)[there].numpy()
    _, group = np.unique(np.round(logits, 9), axis=0, return_inverse=True)
    written = batch.target[there].numpy()
    tokens = [set(written[group == g].tolist()) for g in range(group.max() + 1)]
    return sum(len(tokens[g]) > 1 for g in group), len(written)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["transformer", "encoder", "decoder"])
def test_rows_that_see_the_same_are_those_of_equal_logits(kind, seed, random_bias):
    """In a model of random weights, which nothing but what it sees can tell apart.

    Of heads with several lines some are not found: weights can be alike by another way.
    """
    data = digit_data("addition", base=2, length=4)
    more = {"encoder_layers": 1} if kind == "encoder" else {}
    name = "decoder" if kind == "decoder" else "transformer"
    options: Any = MODEL_OPTIONS[name](scheme="none", **SIZES, **more)
    model: Any = build_model(name, options, data, seed)
    layers = {"encoder": len(more), "self": 2, "cross": 2}
    lines = random_bias(layers, 2, seed, single=seed % 2 == 0)
    lines = in_stream(lines, seed) if kind == "decoder" else lines
    model.set_lines(lines)
    with torch.no_grad():  # so that sums of few terms do not meet by chance
        for weight in model.parameters():
            weight.normal_(std=0.7)
    batch = data.training(0, 200)
    found, expected = undecided(lines, model.eval(), batch), by_model(model, batch)
    assert found[1] == expected[1] and found[0] <= expected[0]
    if seed % 2 == 0:  # one line a head
        assert found[0] == expected[0] > 0


def test_a_calibration_warns_where_no_model_can_be_right(tiny, abc):
    words = ("--dirs", "vert", "--threshold", 0.3, "--no-retrain", "--samples", 64, "--quiet")
    said = abc("calibrate", VANILLA, *words)
    assert said.code == 0 and said.err.startswith("warning: on these lines ")
    assert "rows of training problems see what others see" in said.err
    assert "UserWarning" not in said.err


def test_fewer_layers_have_the_lines_of_the_last_ones(tiny, abc, tmp_path):
    chosen = ["calibrate", tiny.vanilla, "--no-retrain", "--threshold", "0.3"]
    abc(*chosen, "--out", tmp_path / "all")
    abc(*chosen, "--decoder-layers", 1, "--out", tmp_path / "one")
    both, last = (Run.open(tmp_path / name).bias().sites for name in ("all", "one"))
    assert len(both["cross"]) == 2 and last == {site: x[1:] for site, x in both.items()}
    abc("heatmap", tmp_path / "one", "--format", "png", "--out", tmp_path / "figures")
    abc("retrain", tmp_path / "one")
    assert Run.open(tmp_path / "one").load_model().attention_layers["cross"] == 1
    error = abc("calibrate", tiny.vanilla, "--decoder-layers", 3).error(2)
    assert error == "--decoder-layers 3: the first model has 2"


# Options


@FITS
def test_layer_says_whose_attention_is_read(find, fit):
    own, first, last = (find(fit=fit, layer=layer).bias for layer in ("own", "first", "last"))
    for site, layers in own.sites.items():
        assert first.sites[site] == (layers[0],) * len(layers)
        assert last.sites[site] == (layers[-1],) * len(layers)
    assert own != first != last


@torch.no_grad()
def test_a_head_behind_a_penalty_still_sees_the_other_keys(find, make_model):
    soft, hard = find(off_line_bias=-5.0).bias, find().bias
    assert soft.off_line_bias == -5 and soft.sites == hard.sites and hard.off_line_bias is None
    model = make_model(decoder_layers=1, scheme="none")
    source, outputs = torch.tensor([[12, 1, 2, 3, 13]]), torch.tensor([[4, 13]])
    line = ((Line("vert", 1, 0),),) * 2
    seen = []
    for closed in (None, -50.0, -3.0):
        model.set_lines(LineBias({"cross": (line,)}, closed))
        seen.append(model.attention(source, outputs).weights["cross"][0])
    assert torch.equal(seen[0][..., :-1], torch.zeros_like(seen[0][..., :-1]))
    torch.testing.assert_close(seen[1], seen[0])
    assert (seen[2][..., :-1] > 1e-3).all()
    for refused in (0.0, 3.0, -np.inf, np.nan):
        with pytest.raises(UsageError, match="give a finite number below 0, or none"):
            LineBias({}, refused)


def test_nnls_counts_from_delimiters_and_closes_what_mean_leaves_open_at_the_corners(find):
    found = {fit: find(fit=fit, sites=("cross",), layer="own").bias for fit in ("nnls", "mean")}
    assert CORNER not in {line.segment for line in found["nnls"].every()}
    assert {line.segment for line in found["mean"].every()} == {CORNER}
    assert {line.value for line in found["nnls"].every()} == {0.0}
    assert min(line.value for line in found["mean"].every()) < 0
    open_, closed = find(fit="mean", threshold=9.0), find(fit="nnls", threshold=1.0)
    assert not open_.bias.every() and open_.bias.transparent()
    assert {row.note for row in open_.table} == {"transparent"}
    assert not closed.bias.transparent()
    for site, layers in closed.bias.sites.items():
        assert {head for heads in layers for head in heads} == {(sinks(1)[site],)}
    assert "sink" in {row.note for row in closed.table} <= {"sink", ""}
