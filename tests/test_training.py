"""Training: repeatable, and an interruption costs nothing, wherever it falls."""

from __future__ import annotations

import json
import math
import signal
from typing import Any

import pytest
import torch
from conftest import assert_same_weights
from safetensors.torch import load_file

from abc_calib.config import TrainOptions
from abc_calib.errors import AbcError, UsageError
from abc_calib.nn.build import build_model
from abc_calib.runs import Run
from abc_calib.training import trainer as training
from abc_calib.training.trainer import (
    Interrupted,
    Trainer,
    learning_rate,
    resolve_device,
)


@pytest.fixture(autouse=True)
def few_validation_samples(monkeypatch):
    monkeypatch.setattr(training, "VALIDATION_SIZE", 37)


@pytest.fixture
def start(make_config, tmp_path):
    """``start("a", steps=7)``: a new run in a folder of that name."""

    def make(name: str, model: dict | None = None, **train) -> Run:
        return Run.create(make_config(model=model, **train), tmp_path / name)

    return make


def trainer(run: Run, bias=None, ending=None) -> Trainer:
    """What a command makes of a run folder, in a process of its own."""
    run = Run.open(run.path)
    model = build_model(run.config.kind, run.config.model, run.data, run.config.train.seed)
    model.set_lines(bias)
    return Trainer(run, model, "cpu", ending and ending(model, run.data, run.config.train.seed))


def weights(run: Run) -> dict[str, torch.Tensor]:
    return load_file(run.path / "model" / "model.safetensors")


def interrupt_at(step: int):
    def on_step(progress) -> None:
        if progress.step == step:
            raise KeyboardInterrupt

    return on_step


# Repeating


def test_the_same_seed_gives_the_same_weights(start):
    first, second, other = start("a"), start("b"), start("c", seed=1)
    for run in (first, second, other):
        trainer(run).train()
    assert_same_weights(weights(first), weights(second))
    assert not torch.equal(weights(first)["head.weight"], weights(other)["head.weight"])


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_a_step_is_torchs_on_the_batch_of_its_number(start, monkeypatch, optimizer):
    """AdamW's; of Muon its own on the matrices inside, and AdamW's on the rest."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)  # so that it can be compared
    run = start("a", optimizer=optimizer, model={"encoder_layers": 1})
    mine = trainer(run)
    plain = build_model("transformer", run.config.model, run.data, 0).train()
    named = dict(plain.named_parameters())
    matrices = {name for name, p in named.items() if p.ndim == 2}
    inside = {name for name in matrices if "layers." in name and optimizer == "muon"}
    assert optimizer == "adam" or matrices - inside == {"embed.weight", "head.weight"}
    rest = [p for name, p in named.items() if name not in inside]
    theirs: list[Any] = [torch.optim.AdamW(rest, betas=(0.9, 0.98), fused=True)]
    if inside:
        ordered = [named[name] for name in named if name in inside]
        theirs.append(torch.optim.Muon(ordered, momentum=0.9, weight_decay=0.01))
    for step in range(3):
        mine.one_step()
        for times, one in zip((1, 8), theirs, strict=False):
            one.param_groups[0]["lr"] = times * learning_rate(run.config.train, step)
        batch = run.data.training(step, 5)
        plain.zero_grad()
        plain.loss(batch.source, batch.target).backward()
        torch.nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        for one in theirs:
            one.step()
    for name, value in mine.model.named_parameters():
        if not name.endswith("key.bias"):  # a gradient of rounding, which Adam makes a step of
            torch.testing.assert_close(value, named[name], rtol=1e-5, atol=1e-5)


def test_the_learning_rate_warms_up_and_falls_to_zero_or_cools_down_to_a_twentieth():
    options = TrainOptions(steps=1000, warmup=10, learning_rate=0.5)
    rates = [learning_rate(options, step) for step in range(1001)]
    assert [rates[k] for k in (0, 4, 500)] == pytest.approx([0.05, 0.25, 0.25], rel=1e-3)
    assert rates[1000] == pytest.approx(0.0, abs=1e-12)
    assert max(rates) == rates[9] and rates[9:] == sorted(rates[9:], reverse=True)
    assert learning_rate(TrainOptions(steps=10, warmup=0, learning_rate=0.5), 0) == 0.5
    options = TrainOptions(steps=10**9, warmup=0, learning_rate=1.0, cooldown=100)
    rates = [learning_rate(options, 7 + step, cooling_from=7) for step in (0, 25, 50, 95, 10**4)]
    assert rates == pytest.approx([1.0, 0.75, 0.5, 0.05, 0.05])
    never = options.model_copy(update={"cooldown": 0})
    assert learning_rate(never, 50, cooling_from=7) == pytest.approx(1.0)


# Interrupting


DROPOUT = {"model": {"dropout": 0.3}}


@pytest.mark.parametrize(
    ("stops", "how"),
    [
        ((4,), {}),
        ((2, 5), DROPOUT),
        ((1,), DROPOUT),
        ((2, 5), {"optimizer": "muon"}),
        ((2, 5), {"cooldown": 9}),
        ((2, 5), {"lines": 1}),
    ],
    ids=str,
)
def test_an_interrupted_run_ends_with_the_weights_of_one_that_was_not(
    start, monkeypatch, random_bias, stops, how
):
    """Between validations, at one, at the first step, twice; dropout draws random numbers."""
    lined = "lines" in how
    bias = random_bias({"self": 1, "cross": 1}, 2, segments=1) if lined else None
    options = {"steps": 8, "validate_every": 4, **({} if lined else how)}
    if "cooldown" in how:
        options["validate_every"] = 2
        monkeypatch.setattr(training, "accuracy_of", lambda *_: 0.9)
    whole, parts = start("whole", **options), start("parts", **options)
    trainer(whole, bias).train()
    for stop in stops:
        with pytest.raises(Interrupted, match=f"stopped at step {stop}.*abc train --resume"):
            trainer(parts, bias).train(interrupt_at(stop))
        assert parts.result is None
    torch.manual_seed(12345)
    seen, resumed = [], trainer(parts, bias)
    resumed.train(lambda progress: seen.append(progress.step))
    assert seen == list(range(stops[-1] + 1, 9))
    assert resumed.cooling_from == (2 if "cooldown" in how else None)
    assert_same_weights(weights(parts), weights(whole))
    shown = [[{**entry, "seconds": 0} for entry in run.history()] for run in (whole, parts)]
    assert shown[0] == shown[1]
    assert parts.result["steps"] == whole.result["steps"] == 8


class Killed(BaseException):
    """What cannot be caught, such as a lost machine."""


STOPS = {
    "before the update": KeyboardInterrupt,
    "after the update": KeyboardInterrupt,
    "a validation": KeyboardInterrupt,
    "a step": Killed,
    "a checkpoint": Killed,
}


@pytest.mark.parametrize("where", STOPS)
def test_a_stop_within_a_step_costs_nothing_either(start, monkeypatch, where):
    """Ctrl-C hardly ever falls between two steps; a killed run begins with its last checkpoint.

    A validation is made up for, since it decides on the cooldown, and none is listed twice.
    """
    monkeypatch.setattr(training, "accuracy_of", lambda *_: 0.9)
    options = {**DROPOUT, "steps": 8, "validate_every": 3, "cooldown": 9}
    whole, parts = start("whole", **options), start("parts", **options)
    trainer(whole).train()
    stopped = trainer(parts)
    update, save, at = stopped.optimizer.step, stopped.save_checkpoint, 6 if "a " in where else 4

    def stop(*names: str) -> None:
        if where in names and stopped.step >= at - ("update" in where):
            if STOPS[where] is Killed:
                raise Killed
            signal.raise_signal(signal.SIGINT)

    def updated() -> None:
        stop("before the update")
        update()
        stop("after the update")

    def saved() -> None:
        stop("a checkpoint")
        save()

    with monkeypatch.context() as patch:
        patch.setattr(stopped.optimizer, "step", updated)
        patch.setattr(stopped, "save_checkpoint", saved)
        patch.setattr(training, "accuracy_of", lambda *_: stop("a validation") or 0.9)
        with pytest.raises(Killed if STOPS[where] is Killed else Interrupted):
            stopped.train(lambda _: stop("a step"))
    trainer(parts).train()
    assert [entry["step"] for entry in parts.history()] == [3, 6, 8]
    assert_same_weights(weights(parts), weights(whole))


# Damage


def checkpoint(start, name: str = "a", **options):
    run = start(name, **options)
    with pytest.raises(Interrupted):
        trainer(run).train(interrupt_at(2))
    return run, run.path / "checkpoint.safetensors"


KEPT = (
    "model.head.weight",
    "random.cpu",
    "step",
    "history",
    ".exp_avg",
    ".step",
    ".momentum_buffer",
)


def test_a_checkpoint_without_one_of_its_parts_is_refused(start):
    """A tensor, an entry, or all that an optimiser keeps of one kind."""
    run, _ = checkpoint(start, optimizer="muon")
    tensors, state = run.load_checkpoint()
    for missing in KEPT:
        left = {name: value for name, value in tensors.items() if not name.endswith(missing)}
        assert len(left) < len(tensors) or missing in state
        run.save_checkpoint(left, {name: state[name] for name in state if name != missing})
        with pytest.raises(AbcError, match="checkpoint"):
            trainer(run).train()


@pytest.mark.parametrize("what", ["loss", "weights", "validation"])
def test_a_training_that_diverges_stops_with_its_last_good_checkpoint(start, monkeypatch, what):
    options = {"steps": 9, "validate_every": 2, "monitor": "loss"}
    run = start("a", **options)
    mine = trainer(run)
    step, loss_of = mine.one_step, training.loss_of

    def diverging():
        loss = step()
        if mine.step == 6 and what == "weights":
            with torch.no_grad():
                next(mine.model.parameters()).fill_(math.nan)
        return loss * math.inf if mine.step == 6 and what == "loss" else loss

    monkeypatch.setattr(mine, "one_step", diverging)
    if what == "validation":
        bad = lambda *given: math.nan if mine.step == 6 else loss_of(*given)  # noqa: E731
        monkeypatch.setattr(training, "loss_of", bad)
    told = r"diverged at step 6 .*; the checkpoint of step 4 is kept\. Train again with a lower"
    with pytest.raises(AbcError, match=told):
        mine.train()
    assert run.result is None and not (run.path / "model").exists()
    _, state = run.load_checkpoint()
    assert state["step"] == 4
    monkeypatch.undo()
    trainer(run).train()
    assert run.result["steps"] == 9


# What a run leaves


def test_the_history_has_a_line_for_every_validation_and_the_result_says_how_it_ended(start):
    run, seen = start("a", steps=7, validate_every=3), []
    mine = trainer(run)
    result = mine.train(seen.append)
    entries = [json.loads(line) for line in (run.path / "history.jsonl").read_text().splitlines()]
    assert entries == run.history()
    assert [entry["step"] for entry in entries] == [3, 6, 7]
    keys = {"step", "loss", "validation_accuracy", "validation_samples", "seconds"}
    for entry in entries:
        assert set(entry) == keys
        progress = seen[entry["step"] - 1]
        assert entry["loss"] == pytest.approx(progress.loss, abs=1e-6)
        assert entry["validation_accuracy"] == pytest.approx(100 * progress.accuracy, abs=1e-3)
    assert [p.accuracy is None for p in seen] == [True, True, False, True, True, False, False]
    assert all(p.steps == 7 and math.isfinite(p.loss) for p in seen)
    assert run.result == result == json.loads((run.path / "result.json").read_text())
    assert (result["steps"], result["validation_samples"], result["interpolated"]) == (7, 37, False)
    assert result["validation_accuracy"] == entries[-1]["validation_accuracy"]
    assert not (run.path / "checkpoint.safetensors").exists()
    assert not mine.model.training
    assert_same_weights(run.load_model(), mine.model)


@pytest.mark.parametrize(
    ("options", "held_out", "others", "steps"),
    [
        # two validations in a row, from 99.9 % on
        ({}, {2: 0.5, 4: 1.0, 6: 0.9989, 8: 0.999, 10: 1.0}, {}, 10),
        # right at all training lengths
        ({}, {}, {4: 0.98, 6: 0.9899, 8: 0.99}, 8),
        ({"early_stop_at": 0.5, "early_stop_after": 2}, {2: 0.5, 4: 0.49, 6: 0.5, 8: 0.51}, {}, 8),
        ({"stop_early": False, "steps": 9}, {}, {}, 9),
    ],
)
def test_training_ends_where_it_is_told_to(start, monkeypatch, options, held_out, others, steps):
    """``held_out`` and ``others``: the exact match at steps where it is not 1, and elsewhere."""
    mine = trainer(start("a", **{"steps": 100, "validate_every": 2, **options}))

    def scores(_, batch):
        return (held_out if batch is mine.validation else others).get(mine.step, 1.0)

    monkeypatch.setattr(training, "accuracy_of", scores)
    ended = mine.train()
    assert ended["steps"] == steps
    assert ended["interpolated"] == (100 * held_out.get(steps, 1.0) >= 99.9)
    if others:
        assert [entry.get("over") for entry in mine.history] == [None, None, None, "held out"]


def test_until_nearly_all_held_out_problems_are_right_a_few_stand_for_all(start, monkeypatch):
    sizes = []

    def scores(_, batch):
        sizes.append(len(batch))
        return 0.96 if len(sizes) < 3 else 0.98

    monkeypatch.setattr(training, "accuracy_of", scores)
    mine = trainer(start("a", steps=8, validate_every=2))
    mine.validation = mine.data.test(3, 600)
    mine.train()
    # two glances; one that is not enough, and so all; all at the end
    assert sizes == [200, 200, 200, 600, 600]
    assert [one["validation_samples"] for one in mine.history] == [200, 200, 600, 600]
    sizes.clear()
    kept = trainer(start("b", steps=4, validate_every=2, keep_best=True))
    kept.validation = kept.data.test(3, 600)
    kept.train()
    assert set(sizes) == {600}


def test_a_result_is_of_all_held_out_problems_where_a_glance_ended_the_training(start, monkeypatch):
    class Ended:
        least, ends = 0.0, "windows"

        def look(self, model, step):
            return True

        def batch(self, usual, step):
            return usual

        def state(self):
            return {}

    monkeypatch.setattr(training, "accuracy_of", lambda _, batch: {200: 0.9, 600: 0.8}[len(batch)])
    run = start("a", steps=8, validate_every=2)
    mine = trainer(run)
    mine.ending = Ended()
    mine.validation = mine.data.test(3, 600)
    result = mine.train()
    assert result["steps"] == 2 and mine.history[-1]["validation_accuracy"] == 90.0
    assert (result["validation_accuracy"], result["validation_samples"]) == (80.0, 600)


def test_a_training_that_was_over_when_interrupted_takes_no_step_more(start, monkeypatch):
    monkeypatch.setattr(training, "accuracy_of", lambda *_: 1.0)
    run = start("a", steps=100, validate_every=2)
    with pytest.raises(Interrupted):
        trainer(run).train(interrupt_at(4))
    assert trainer(run).train()["steps"] == 4


# Messages


def test_a_missing_cuda_device_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match="device cuda: this torch sees no such device; choose"):
        resolve_device("cuda")
    assert resolve_device("auto") == torch.device("cpu")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(UsageError, match="device mps: this torch sees no such device; choose"):
        resolve_device("mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert resolve_device("mps").type == "mps" and resolve_device("auto").type == "cpu"
    assert resolve_device("mps", doubles=True).type == "cpu"


def test_a_checkpoint_of_another_model_is_refused(start):
    _, small = checkpoint(start, "a")
    run, path = checkpoint(start, "b", model={"width": 16})
    path.write_bytes(small.read_bytes())
    with pytest.raises(AbcError, match=r"config\.json is not the file of this run"):
        trainer(run).train()
