"""The recurrent models: both backbones, decoding, training, and the metrics of outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from conftest import TOKENS, assert_same_weights, changed_copy
from hypothesis import given
from hypothesis import strategies as st

from abc_calib import stages
from abc_calib.config import RecurrentOptions, TrainOptions
from abc_calib.data import Batch, TokenData
from abc_calib.data.vocabulary import TokenIds
from abc_calib.errors import UsageError
from abc_calib.evaluation.exact import written
from abc_calib.evaluation.inspect import ALIKE_STATES, FLAT_SCORES, diagnose, inspect
from abc_calib.evaluation.metrics import compare
from abc_calib.nn.build import build_model
from abc_calib.nn.recurrent.attenders.base import Memory
from abc_calib.nn.recurrent.model import Recurrent
from abc_calib.runs import Run
from abc_calib.training.step import optimise, plateau_state
from abc_calib.training.trainer import Trainer
from tasks import get_task

TINY = {"width": 8, "embedding": 6, "d_head": 8, "value": 8}


def model_of(attender: str = "one_step", seed: int = 0, **more) -> Recurrent:
    torch.manual_seed(seed)
    options = {"backbone": "ray_chowdhury", **TINY, "attender": attender, **more}
    return Recurrent(Recurrent.resolve_defaults(RecurrentOptions(**options)), TOKENS).eval()


SOURCE = torch.tensor([[12, 3, 1, 4, 1, 5, 13], [12, 9, 2, 13, 14, 14, 14]])
TARGET = torch.tensor([[3, 1, 4, 13], [9, 13, 14, 14]])
BACKBONES = [("ray_chowdhury", "mix_one_step"), ("ray_chowdhury", "relative"), ("dubois", "mix")]


@pytest.mark.parametrize(("backbone", "attender"), BACKBONES)
@pytest.mark.parametrize("layers", [1, 2])
def test_decoding_step_by_step_is_the_one_pass(backbone, attender, layers):
    model = model_of(attender, backbone=backbone, layers=layers)
    ids = model.decode(SOURCE, 9).ids
    assert ids.shape == (2, 9)
    logits = model(SOURCE, ids)
    counted = ids != model.pad
    assert (logits.argmax(-1) == ids)[counted].all()
    # fed its own tokens it writes the same, and the loss is that of the same logits
    free = model.loss(SOURCE, ids, teacher_forcing=False)
    torch.testing.assert_close(free, model.loss(SOURCE, ids))
    (weights,) = model.attention(SOURCE, TARGET).weights["cross"]
    assert weights.shape == (2, 1, 4, 7)
    assert torch.allclose(weights.sum(-1), torch.ones(2, 1, 4), atol=1e-6)
    # without START and END the weights of $ and & are 0
    assert (weights[1, :, :, [0, 3]].sum() == 0) == (backbone == "dubois")
    assert not weights[1, :, :, 4:].any()


def slow(model: Recurrent, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Logits ``(t, v)`` of one source without padding, by PyTorch's own GRU and cells."""
    body: Any = model.backbone
    attender: Any = model.attender
    cells, ids = [body.cell, *body.further], source[None]
    if model.options.backbone == "dubois":
        x, embed = body.embed(ids[:, 1:-1]), body.embed_target
        states, final = body.encoder(x, body.first)
        firsts = list(final)
    else:
        x, embed = body.embed(ids), body.embed
        x = torch.cat([body.start.expand(1, 1, -1), x[:, 1:-1], body.end.expand(1, 1, -1)], 1)
        states, final = body.encoder(x)
        firsts = [torch.cat([final[-2], final[-1]], 1)] * len(cells)  # as their public code
    memory = Memory(states, torch.tensor([x.shape[1]]), firsts[-1])
    turned = attender.turned(states, memory)
    prepared = attender.prepare(memory.with_states(turned), len(target))
    carry = attender.begin(memory)
    hidden, logits = firsts, []
    for t, token in enumerate([model.sos, *target[:-1].tolist()]):
        weights, carry = attender.step(hidden[-1], prepared, carry, t)
        token = embed(torch.tensor([token]))
        if model.options.backbone == "dubois":
            value = body.value(turned) + attender.turned(x, memory)
            given = torch.cat([(weights[:, :, None] * value).sum(1), token], 1)
        else:
            value = torch.nn.functional.leaky_relu(body.value(turned))
            mixed = body.combined(body.projected((weights[:, :, None] * value).sum(1)))
            given = torch.cat([token, mixed], 1)
        now: list[torch.Tensor] = []
        for cell, before in zip(cells, hidden, strict=True):
            now.append(cell(now[-1] if now else given, before))
        hidden = now
        logits.append(body.logits(hidden[-1])[0])
    return torch.stack(logits)


@pytest.mark.parametrize(("backbone", "attender"), BACKBONES)
@pytest.mark.parametrize("layers", [1, 3])
def test_logits_and_gradients_are_those_of_each_source_alone_by_pytorchs_cells(
    backbone, attender, layers
):
    model = model_of(attender, backbone=backbone, layers=layers).double()
    got = model(SOURCE, TARGET)
    one, two = slow(model, SOURCE[0], TARGET[0]), slow(model, SOURCE[1, :4], TARGET[1, :2])
    assert torch.allclose(got[0], one) and torch.allclose(got[1, :2], two)
    a, b = torch.randn_like(one), torch.randn_like(two)
    named = dict(model.named_parameters())

    def gradients(total: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return torch.autograd.grad(total, named.values(), allow_unused=True)

    mine = gradients((got[0] * a).sum() + (got[1, :2] * b).sum())
    theirs = gradients((one * a).sum() + (two * b).sum())
    for name, i, j in zip(named, mine, theirs, strict=True):
        assert i is not None and j is not None and torch.allclose(i, j, atol=1e-12), name


def test_dropout_is_on_the_first_state_of_every_layer_but_not_on_the_query():
    model = model_of("mix", backbone="dubois", layers=3)
    kept = model.encode(SOURCE)
    drawn = model.train().encode(SOURCE)
    assert torch.equal(drawn.query, kept.query)
    for before, after in zip(kept.states, drawn.states, strict=True):
        assert ((after == 0) | torch.isclose(after, 2 * before)).all()
        assert 0 < (after == 0).sum() < after.numel()


def test_the_size_is_that_of_the_paper():
    options = Recurrent.resolve_defaults(RecurrentOptions(attender="content"))
    model = Recurrent(options, TokenIds(14, pad=13, sos=11, eos=12))
    assert 249_000 < sum(p.numel() for p in model.parameters()) < 266_000


# Schedules


def test_the_rate_is_halved_after_five_validations_without_a_better_one():
    """As good is best again within a tie."""
    factors = [plateau_state([0.5] * n).factor for n in range(1, 13)]
    assert factors == [1.0] * 5 + [0.5] * 5 + [0.25] * 2
    assert plateau_state([0.9, 0.8]).impatience == 1
    assert plateau_state([0.9, 0.8995], tie=0.001).best
    assert not plateau_state([0.9, 0.8995]).best
    assert plateau_state([0.9, 0.5, 0.5, 0.91]).impatience == 0


# Runs


QUICK = {"model": "gru", "attender": "one_step", "batch": 64, "steps": 3, **TINY}
LOOKUP = "010 t3 t4 ."


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs on lookup by attender, of a few steps, in a folder that the module shares."""
    root = tmp_path_factory.mktemp("runs")
    options = {**QUICK, "validate_every": 2}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABC_RUNS", str(root))
        return {
            name: stages.train("lookup", out=root / name, **{**options, "attender": name})
            for name in ("mix", "one_step", "content")
        }


@pytest.fixture
def trained(runs):
    return runs["one_step"]


def test_a_run_is_trained_evaluated_and_asked(trained):
    assert trained.config.model.backbone == "ray_chowdhury"
    assert trained.config.train.dev == "longer" and trained.result["validation_samples"] == 975
    rows = stages.evaluate(trained, [7, 9], samples=20)
    assert rows["length"].tolist() == [7, 9]
    for name in ("before_end", "too_early", "too_late", "content", "edit_distance"):
        assert rows[name].notna().all()
    assert (rows["attention_loss"] >= 0).all()
    split = rows["accuracy"] + rows["too_early"] + rows["too_late"] + rows["content"]
    assert split.tolist() == pytest.approx([100, 100], abs=0.001)
    named = stages.evaluate(trained, sets=("heldout_compositions",), samples=10)
    assert (named["set"] == "heldout_compositions").all() and named["length"].tolist() == [5]


def test_the_model_of_the_best_validation_is_kept(trained, tmp_path, monkeypatch):
    accuracies = iter([0.9, 0.1, 0.9])
    monkeypatch.setattr("abc_calib.training.trainer.accuracy_of", lambda *_: next(accuracies))
    config = trained.config
    run = Run.create(config, tmp_path / "best")
    trainer = Trainer(run, build_model(config.kind, config.model, run.data, 1))
    trainer.validate(1.0)
    kept = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    trainer.one_step()
    trainer.validate(1.0)
    trainer.finish()
    assert_same_weights(run.load_model(), kept)


def test_a_training_ends_once_the_rate_has_been_halved_often_enough():
    still = {"steps": 20, "learning_rate": 1e-9, "validate_every": 1}
    run = stages.train("lookup", **{**QUICK, **still, "halvings": 1})
    assert run.result["steps"] == 6  # the first validation and five that are no better
    assert len(run.history()) == 6


def test_finetuning_starts_from_the_weights_of_a_run():
    """One-shot: without the late tables first, then with them."""
    first = stages.train("lookup_one_shot", **QUICK)
    still = {"steps": 1, "learning_rate": 1e-9, "batch": 64}
    second = stages.train("lookup", finetune=first, **still)
    assert second.config.parent == str(first) and second.config.model == first.config.model
    one, two = (run.load_model().state_dict() for run in (first, second))
    assert all(torch.allclose(one[name], two[name], atol=1e-7) for name in one)


def test_finetuning_needs_the_same_model_and_symbols(trained):
    refused: list[tuple[str, dict[str, Any], str]] = [
        ("lookup", {"width": 16}, "leave out the model's options"),
        ("copy", {}, "copy has other symbols than its task lookup"),
        ("lookup", {"model": "transformer"}, "its model is gru, not transformer"),
    ]
    for task, options, message in refused:
        with pytest.raises(UsageError, match=message):
            stages.train(task, finetune=trained, **options)


# Metrics


@given(st.lists(st.integers(0, 3), max_size=7), st.lists(st.integers(0, 3), max_size=7))
def test_edit_distance_by_recursion(first, second):
    def slow(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        same = first[i - 1] != second[j - 1]
        return min(slow(i - 1, j) + 1, slow(i, j - 1) + 1, slow(i - 1, j - 1) + same)

    assert compare([first], [second], [True])["edit_distance"] == slow(len(first), len(second))


def test_what_counts_as_which_mistake():
    golds = [[1, 2, 3]] * 6
    outputs = [[1, 2, 3], [1, 2, 3], [1, 2], [1, 2, 3, 3], [1, 3, 3], []]
    found = compare(outputs, golds, [True, False, True, True, True, True])
    shares = [found[name] for name in ("too_late", "too_early", "content")]
    assert shares == pytest.approx([200 / 6, 200 / 6, 100 / 6])
    assert found["edit_distance"] == 1  # 0, 0, 1, 1, 1 and 3
    assert found["before_end"] == pytest.approx(300 / 6)  # not the long, the wrong, the empty one
    looked = np.array([[0.0, 1.5, 7.0, 9.0], [3.0, 0.0, 0.0, 0.0]])
    found = compare([[1, 1], [2]], [[1, 1, 1], [2]], [True, True], looked, [[0, 1, 2, 3], [1, 2]])
    assert found["attention_loss"] == pytest.approx(((0 + 0.25) / 2 + 4.0) / 2)


def test_attention_is_counted_in_words():
    """A model that never moves looks at START in one backbone, at the first word in the other."""
    for backbone, attender, place in (("ray_chowdhury", "r_mono", -1.0), ("dubois", "r_mono", 0.0)):
        model = model_of(attender, backbone=backbone)
        with torch.no_grad():
            model.attender.numbers_of.weight.zero_()
            model.attender.direction.bias.fill_(50.0)  # forwards
        _, looked = written(model, Batch(SOURCE[:1], SOURCE[:1, :2], []))
        assert looked is not None and looked[0, 0] == pytest.approx(place, abs=0.01)


@pytest.mark.parametrize(
    ("attender", "layers", "wanted"),
    [
        ("one_step", 2, [2.6144, 2.5208, 2.4096, 2.3847, 2.3838, 2.3144]),
        ("location", 1, [2.5901, 2.5700, 2.5468, 2.5389, 2.5301, 2.5191]),
    ],
)
def test_the_losses_of_a_seed_stay(attender, layers, wanted):
    """Those of the first steps with code that was slower: they may move by rounding only."""
    task = get_task("copy")
    data = TokenData(task, TrainOptions(length=task.train_length, sampling=task.sampling))
    model = build_model("gru", RecurrentOptions(attender=attender, layers=layers), data, 0).train()
    optimizer = model.optimizer()
    torch.manual_seed(0)
    losses = [
        optimise(model, optimizer, data.training(step, 16), 1e-3, 5.0).item() for step in range(6)
    ]
    assert losses == pytest.approx(wanted, abs=2e-4)


# Inspected and diagnosed


def test_every_step_has_its_weights_and_variables_also_in_the_command(abc, runs, tmp_path):
    found = inspect(runs["mix"], LOOKUP)
    steps = len(found.output)
    assert found.tokens == ["$", "010", "t3", "t4", ".", "&"] and 1 <= steps <= 6
    assert found.gold == [0, 1, 2, 3]
    assert found.weights.shape == (steps, 6)
    assert np.allclose(found.weights.sum(1), 1.0, atol=1e-5)
    assert all(len(values) == steps for values in found.variables.values())
    assert all(0 <= value <= 1 for value in found.variables["mix"])
    assert all(value > 0 for value in found.variables["width"])
    assert all(0 <= place <= 3 for place in found.looked)  # this backbone sees words alone
    assert not found.correct
    given = ("inspect", runs["mix"].path, "--input", LOOKUP)
    said = abc(*given, "--out", tmp_path / "figures", "--format", "png,svg")
    assert said.code == 0 and "positions in words of the source" in said.out
    assert "this is wrong" in said.err
    for column in ("step", "writes", "gold", "centre", "width", "mix"):
        assert column in said.out
    files = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert files == [f"{name}.{kind}" for name in ("attention", "variables") for kind in PICTURES]
    shown = abc(*given, "--json").json()
    assert shown["output"] == found.output and shown["gold"] == [0, 1, 2, 3]
    assert shown["looked"] == pytest.approx(found.looked)
    assert shown["variables"].keys() == found.variables.keys()


PICTURES = ("png", "svg")


# Diagnosis


def test_a_diagnosis_has_scores_where_there_are_any(abc, runs):
    said = abc("diagnose", runs["content"].path, "--json").json()
    expected = diagnose(runs["content"])
    assert said["score_variance"] == pytest.approx(expected.score_variance)
    assert said["samples"] == 256 and 0 < said["peak"] <= 1 and -1 <= said["similarity"] <= 1
    assert diagnose(runs["one_step"]).score_variance is None
    assert "score variance" not in abc("diagnose", runs["one_step"].path).out
    assert "score variance" in abc("diagnose", runs["content"].path).out


def test_a_source_that_is_read_backwards_is_shown_as_it_was_given(runs, tmp_path):
    """An attender that steps half a place at a time, from the end of the source to its start."""

    def turn_around(model):
        model.attender.direction.bias.fill_(-50.0)
        model.attender.shared.bias.zero_()
        model.attender.shared.weight.zero_()

    found = inspect(changed_copy(runs["one_step"], tmp_path / "run", turn_around), LOOKUP)
    steps = np.diff(found.looked)
    assert found.looked[0] > len(found.tokens) - 3.5 and (steps <= 0).all() and steps[0] < -0.1
    moved = np.cumsum(found.variables["step"])
    assert found.variables["centre"] == pytest.approx(len(found.tokens) - 2 - moved, abs=1e-3)


def test_flat_scores_and_a_collapsed_encoder_are_found(abc, runs, tmp_path):
    """An attender without weights, and an encoder that writes the same state everywhere."""

    def flatten(model):
        for value in model.attender.parameters():
            value.zero_()
        for name, value in model.backbone.encoder.named_parameters():
            value.zero_()
            if "bias" in name:  # of the reset, update and new gates: always the new state
                _, update, new = value.chunk(3)
                update.fill_(-20.0)
                new.fill_(1.0)

    run = changed_copy(runs["content"], tmp_path / "run", flatten)
    found = diagnose(run)
    assert found.score_variance < FLAT_SCORES and found.similarity > ALIKE_STATES
    assert len(found.findings) == 2
    said = abc("diagnose", run.path).out
    assert "scores hardly differ" in said and "the encoder has collapsed" in said
