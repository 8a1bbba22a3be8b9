"""A retraining ends when all windows are right by more than a little, and not before."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import CALIBRATED, VANILLA, assert_same_weights
from random_models import drawn
from test_training import interrupt_at, trainer, weights

from abc_calib import stages
from abc_calib.calibration import trial
from abc_calib.calibration.plan import plan_calibration, retrained_shape
from abc_calib.calibration.trial import every_place, without
from abc_calib.errors import AbcError, AbcWarning, Interrupted
from abc_calib.evaluation.failures import margins
from abc_calib.geometry import Line, LineBias
from abc_calib.nn.base import in_float64
from abc_calib.nn.build import build_model
from abc_calib.proof import until
from abc_calib.proof.prove import check, prepare, windows_inside
from abc_calib.proof.search import failing_sources
from abc_calib.proof.until import certain
from abc_calib.reporting.page.commands import commands
from abc_calib.runs import Run
from abc_calib.stages import running
from abc_calib.stages.making import planned
from abc_calib.training import trainer as training
from abc_calib.training.trainer import Progress, Trainer

LINES = LineBias(
    {
        "self": (((Line("diag", 0, -1),), (Line("diag", 0, 0),)),),
        "cross": (((Line("anti", 1, 0),), (Line("anti", 1, 1),)),),
    }
)


@pytest.fixture(scope="module")
def run(trained) -> Run:
    return Run.open(trained.root / CALIBRATED)


def test_over_where_the_smallest_margin_of_all_windows_is_above_the_floor(run, monkeypatch):
    model, found = run.load_model(), certain(run.load_model(), run.data, 0)
    least = min(one.margin for one in check(prepare(model, run.data)))
    for samples in ((), (2**6, 2**9)):
        monkeypatch.setattr(until, "SAMPLES", samples)
        for floor, over in ((least - 0.01, True), (least + 0.01, False)):
            monkeypatch.setattr(until, "FLOOR", floor)
            assert found.look(model, 7) == over


def test_what_is_below_the_floor_is_put_into_training_numbers(run, monkeypatch):
    """Each of them holds a row whose margin is too small; none is longer, or held out."""
    model, data = run.load_model(), run.data
    least = min(one.margin for one in check(prepare(model, data)))
    monkeypatch.setattr(until, "FLOOR", least + 0.5)
    found = certain(model, data, 0)
    assert not found.look(model, 7) and found.hard
    for text in found.hard:
        one = data.task.parse(text)
        assert data.size_of(one) <= data.length
        assert data.split.allows(one, held_out=False)[0]
        assert float(margins(in_float64(model), data.lay_out(one)).min()) <= least + 0.5


def test_sources_are_looked_for_of_so_many_windows(run):
    proof = prepare(run.load_model(), run.data)
    checked = check(proof, floor=1e9)
    sources = failing_sources(proof, checked, 2, 6, np.random.default_rng(0), windows=3)
    assert 1 <= len({(node, number) for node, number, _ in sources}) <= 3


def test_all_of_very_many_windows_are_looked_at_now_and_then(run, monkeypatch):
    """After a pause, and only once the problems that were too close before are so no more."""
    model = run.load_model()
    least = min(one.margin for one in check(prepare(model, run.data)))
    monkeypatch.setattr(until, "MANY", 10)
    monkeypatch.setattr(until, "SAMPLES", (1,))  # one of each node
    monkeypatch.setattr(until, "FLOOR", least - 0.01)
    looked = []

    def counted(proof, **how):
        looked.append(sum(map(len, proof.codes.values())))
        return check(proof, **how)

    monkeypatch.setattr(until, "check", counted)
    found = certain(model, run.data, 0)
    assert found.scale == until.LIMIT
    every, few = found.proof.size, len(found.proof.codes)
    assert found.look(model, 100) and looked == [few, every]
    monkeypatch.setattr(until, "FLOOR", least + 0.01)
    later = 100 + until.PAUSE
    assert not found.look(model, later - 1) and looked == [few, every, few] and not found.hard
    again = certain(model, run.data, 0)
    again.load(found.state())  # an interruption does not end the pause
    assert not again.look(model, later - 1) and looked[3:] == [few]
    assert not found.look(model, later) and looked[4:] == [few, every]
    known = list(found.hard)
    assert known and not found.look(model, 2 * later) and found.hard == known
    assert len(looked) == 6  # not even a sample


def test_nothing_is_certain_of_a_model_that_sees_all(trained):
    vanilla = Run.open(trained.root / VANILLA)
    assert certain(vanilla.load_model(), vanilla.data, 0) is None


@pytest.mark.parametrize("stop", [3, 5])
def test_an_interrupted_retraining_ends_with_the_same_weights(
    make_config, tmp_path, monkeypatch, stop
):
    """Though what it trains on depends on what was looked at before."""
    monkeypatch.setattr(training, "VALIDATION_SIZE", 37)
    monkeypatch.setattr(training, "accuracy_of", lambda *_: 0.9)
    how = {"steps": 6, "validate_every": 2, "batch": 20}
    whole, parts = (
        Run.create(
            make_config(model={"scheme": "none"}, **how).model_copy(update={"base": 2}),
            tmp_path / name,
        )
        for name in ("whole", "parts")
    )

    trainer(whole, LINES, certain).train()
    with pytest.raises(Interrupted):
        trainer(parts, LINES, certain).train(interrupt_at(stop))
    resumed = trainer(parts, LINES, certain)
    resumed.train()
    assert resumed.ending is not None and resumed.ending.hard
    assert_same_weights(weights(whole), weights(parts))


def test_a_retraining_ends_once_it_is_certain(trained, tmp_path):
    how = {"threshold": 0.3, "steps": 600, "validate_every": 50, "learning_rate": 8e-3}
    made = stages.calibrate(trained.root / VANILLA, out=tmp_path / "made", cooldown=200, **how)
    assert made.result and made.result["steps"] < 600
    assert [entry.get("over") for entry in made.history()][-1] == "windows"
    certificate = stages.certify(made)
    assert certificate.outcome == "certified", certificate.reason
    assert certificate.margin > until.FLOOR


@pytest.mark.parametrize(
    ("how", "goes_on"),
    [({"stop_early": True}, True), ({"stop_early": True, "scheme": "learned"}, False)],
    ids=["ended by its certificate", "with positions"],
)
def test_a_retraining_goes_on_from_the_trial_that_chose_its_lines(
    trained, tmp_path, monkeypatch, how, goes_on
):
    """Where its certificate ends it: the others are as long as the paper's."""
    trials, began = [], []

    def passed(bias, vanilla, data, *_):
        model = build_model("transformer", retrained_shape(vanilla.options), data, 7)
        trials.append(dict(model.state_dict()))
        return 1.0, trials[-1]

    def begin(trainer, on_step):
        weights = {name: value.clone() for name, value in trainer.model.state_dict().items()}
        began.append((weights, trainer.options))
        return train(trainer, on_step)

    train = Trainer.train
    monkeypatch.setattr(trial, "carries_over", passed)
    monkeypatch.setattr(Trainer, "train", begin)
    run = stages.calibrate(
        trained.root / VANILLA, out=tmp_path / "made", steps=2, retrain=False, **how
    )
    run = stages.retrain(run)
    assert Run.open(run.path).result is not None
    ((weights, options),) = began
    assert goes_on == (
        {*weights} == {*trials[-1]}
        and all(torch.equal(value, trials[-1][name]) for name, value in weights.items())
    )
    own = run.config.train
    going_on = running.GOING_ON * own.learning_rate, running.WARM_UP
    assert own.warmup > running.WARM_UP
    rates = options.learning_rate, options.warmup
    assert rates == (going_on if goes_on else (own.learning_rate, own.warmup))
    ran = run.result["ran"]
    assert ran["start"] == ("trial" if goes_on else "fresh")
    assert (ran["learning_rate"], ran["warmup"], ran["stop_early"]) == (*rates, True)
    assert ran["ends"] == ("windows" if goes_on else "held out")
    if goes_on:
        (run.path / "trial.safetensors").write_bytes(b"damaged")
        with pytest.raises(AbcError, match=r"trial.safetensors"):
            Run.open(run.path)


@pytest.mark.parametrize("seed", [8, 10])
def test_a_line_less_is_never_counted_as_more_windows(seed):
    """Unless two kinds of queries become one, which has the windows of both."""
    model, data = drawn(seed)
    whole = model.lines
    size = windows_inside(model, data, whole)
    assert size >= 1
    for place in set(every_place(whole)):
        assert windows_inside(model, data, without(whole, place, data)) <= size


@pytest.mark.parametrize(
    ("task", "options", "length", "width"),
    [
        ("long_multiplication", {}, 6, 64),  # four digits lack many windows
        ("long_multiplication", {"base": 2}, 4, 64),
        ("multiplication", {"base": 36}, 6, 128),  # a large table
        ("multiplication", {}, 6, 64),
        ("automaton", {"machine": "s5"}, 12, 64),
        ("solve_equation", {}, 8, 64),  # a larger one, but of rows
    ],
)
def test_what_a_first_training_trains_on(task, options, length, width):
    config = planned(task, **options)
    assert (config.train.length, config.model.width) == (length, width)
    assert (plan_calibration(config).train.steps == 6000) == (width == 128)


@pytest.mark.parametrize(
    ("task", "base", "steps"),
    [("sum", 10, 200), ("long_multiplication", 2, 200), ("long_multiplication", 10, 0)],
)
def test_retrainings_of_rows_cool_down_where_a_rule_has_few_steps(task, base, steps):
    first = planned(task, base=base)
    assert plan_calibration(first).train.cooldown == steps
    assert plan_calibration(first, cooldown=7).train.cooldown == 7


@pytest.mark.parametrize(
    ("accuracies", "said"),
    [([0, 0, 0, 0], True), ([0, 40, 60, 61], False), ([50, 60, 60, 60.5], True), ([99] * 4, False)],
)
def test_a_training_that_stands_still_is_told_at_half_of_its_steps(accuracies, said):
    history = [
        {"step": 100 * n, "validation_accuracy": right} for n, right in enumerate(accuracies, 1)
    ]
    told = [
        running.stands_still(history[:n], Progress(100 * n, 800, 0.0, 0.0, 0.0))
        for n in range(1, 5)
    ]
    assert told == [False, False, False, said]


@pytest.mark.parametrize(
    ("task", "options", "again", "widths"),
    [
        ("addition", {}, {}, (16, 32)),
        ("addition", {"model": "decoder"}, {}, (16, 32)),
        ("addition", {}, {"width": 32}, (32, 64)),
        ("addition", {}, {"width": 8, "feedforward": 9}, (8, 9)),
        ("addition", {}, {"feedforward": 9}, (64, 9)),
        ("addition", {}, {"scheme": "alibi"}, (64, 256)),
        ("addition", {"width": 8, "feedforward": 16}, {}, (8, 16)),
        ("addition", {"width": 60, "heads": 6}, {}, (60, 256)),  # 16 is no multiple of 6
        ("addition", {"preset": "paper"}, {}, (128, 512)),
        ("automaton", {"machine": "s5"}, {}, (64, 256)),
    ],
)
def test_a_retrained_model_is_as_narrow_as_its_rule_allows(task, options, again, widths):
    shape = plan_calibration(planned(task, **options), **again).model
    assert (shape.width, shape.feedforward) == widths


def test_a_retrained_model_that_is_too_narrow_is_followed_by_one_as_wide_as_the_first(
    trained, tmp_path
):
    out = tmp_path / "made"
    with pytest.warns(AbcWarning, match="a narrow model does not learn .* one of width 32"):
        made = stages.calibrate(trained.root / VANILLA, out=out, threshold=0.3, steps=2)
    narrow = Run.open(f"{out}-narrow").config.model
    assert (made.path, made.config.model.width, narrow.width) == (out, 32, 16)
    assert commands(made)[-1].startswith("abc calibrate --width 32 --feedforward 64 ")
