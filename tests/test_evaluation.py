"""Evaluation: one pass over the gold output tells what token-by-token decoding would."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import TOKENS, digit_data
from torch import Tensor

from abc_calib.data import Batch, DigitData
from abc_calib.errors import AbcError
from abc_calib.evaluation import exact as evaluation
from abc_calib.evaluation.exact import (
    exact_matches,
    greedy_matches,
    planned_rows,
    row_of,
    written,
)
from abc_calib.evaluation.failures import failure, margins, smallest_margins
from abc_calib.evaluation.metrics import wilson_interval
from abc_calib.evaluation.parts import in_parts, one_thread
from abc_calib.evaluation.stress import searched, smallest
from abc_calib.nn.base import Decoded, Model
from abc_calib.reporting.tables import accuracy_table

# One pass against greedy decoding


def test_exact_match_is_greedy_decoding_and_only_wrong_outputs_are_decoded(
    half_trained, monkeypatch
):
    source, model = half_trained
    batch = source.training(10**6, 400)
    right = exact_matches(model, batch)
    assert 0.1 < right.float().mean() < 0.95
    assert torch.equal(right, greedy_matches(model, batch))
    decode, asked = model.decode, []
    expected = model.decode(batch.source, batch.target.shape[1]).ids
    for row in range(400):
        wanted = source.vocabulary.text(batch.target[row].tolist())
        assert right[row] == (source.vocabulary.text(expected[row].tolist()) == wanted)

    def kept(part: Tensor, *how: Any, **more: Any) -> Decoded:
        asked.append(part)
        return decode(part, *how, **more)

    monkeypatch.setattr(model, "decode", kept)
    ids, looked = written(model, batch)
    assert looked is None
    assert torch.equal(ids, expected)
    assert torch.equal(torch.cat(asked), batch.source[~right])
    asked.clear()
    assert torch.equal(written(model, batch, greedy=True)[0], ids)
    assert torch.equal(torch.cat(asked), batch.source)


# Screening and chunks, with a model whose every answer is known


class Scripted(Model):
    """A model whose argmax is the target, but for one wrong token in some rows.

    ``wrong[row]`` is the step where it errs. Keeps the shape of every call.
    """

    device = torch.device("cpu")

    def __init__(self, batch: Batch, wrong: dict[int, int]):
        super().__init__(None, TOKENS)
        assert len(batch.source.unique(dim=0)) == len(batch)
        self.answers = {}
        self.calls: list[tuple[int, int]] = []
        for row, (source, target) in enumerate(zip(batch.source, batch.target, strict=True)):
            answer = target.clone()
            if row in wrong:
                answer[wrong[row]] = (answer[wrong[row]] + 1) % 10
            self.answers[tuple(source.tolist())] = answer

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        steps = target.shape[1]
        self.calls.append((len(source), steps))
        ids = torch.stack([self.answers[tuple(row.tolist())][:steps] for row in source])
        return torch.nn.functional.one_hot(ids, 15).float()

    def decode(self, source: Tensor, steps: int, attention: bool = False) -> Decoded:
        return Decoded(self(source, torch.zeros(len(source), steps)).argmax(-1))


@pytest.mark.parametrize("chunk", [None, 200])
@pytest.mark.parametrize("share", [0.0, 0.45, 0.9, 1.0])
@pytest.mark.parametrize("length", [5, 31])
def test_screening_changes_no_result(monkeypatch, length, share, chunk):
    """Rows err at any step: the first, one beyond the screening, EOS, or none."""
    if chunk:
        monkeypatch.setattr(Scripted, "tokens_at_once", chunk)
    batch = digit_data("addition").test(length, 97)
    rng = np.random.default_rng(length)
    rows = rng.permutation(97)[: round(97 * share)]
    ends = (batch.target == 13).int().argmax(1)
    wrong = {}
    for n, row in enumerate(rows.tolist()):
        end = int(ends[row])
        wrong[row] = [0, min(15, end), min(16, end), end, int(rng.integers(0, end + 1))][n % 5]
    expected = torch.tensor([row not in wrong for row in range(97)])
    for matches in (exact_matches, greedy_matches):
        assert torch.equal(matches(Scripted(batch, wrong), batch), expected)

    def even(ids: Tensor) -> Tensor:
        """Every other token counts."""
        return torch.cat([ids[:, ::2], torch.full_like(ids[:, 1::2], 14)], 1)

    expected = torch.tensor([row not in wrong or wrong[row] % 2 == 1 for row in range(97)])
    assert torch.equal(greedy_matches(Scripted(batch, wrong), batch, even), expected)


@pytest.mark.parametrize("matches", [exact_matches, greedy_matches])
def test_rows_that_fail_early_are_not_decoded_to_the_end_and_chunks_bound_a_pass(
    matches, monkeypatch
):
    batch = digit_data("addition").test(60, 97)
    model = Scripted(batch, dict.fromkeys(range(90), 3))
    assert matches(model, batch).sum() == 7
    steps = batch.target.shape[1]
    assert sum(rows for rows, seen in model.calls if seen == steps) == 7
    assert {seen for _, seen in model.calls} == {evaluation.SCREEN_STEPS, steps}
    monkeypatch.setattr(Scripted, "tokens_at_once", 300)
    model = Scripted(batch, {})
    assert exact_matches(model, batch).all()
    whole = [rows for rows, seen in model.calls if seen == steps]
    assert sum(whole) == 97 and max(whole) * (batch.source.shape[1] + steps) <= 300


def test_tokens_after_the_end_do_not_count_and_an_empty_batch_has_no_matches():
    batch = digit_data("addition").training(0, 53)
    assert (batch.target[:, -1] == 14).any()
    wrong = {row: int((batch.target[row] != 14).sum()) for row in range(53)}
    inside = {row: step for row, step in wrong.items() if step < batch.target.shape[1]}
    model, none = Scripted(batch, inside), batch.take(torch.arange(0))
    assert exact_matches(model, batch).all()
    assert exact_matches(model, none).shape == greedy_matches(model, none).shape == (0,)


# Tables


def evaluate(model: Any, data: Any, *how: Any, seed: int = 0) -> list[dict[str, Any]]:
    return [row_of(model, data, *plan, seed) for plan in planned_rows(model, data, *how)]


def test_a_table_has_a_row_for_every_set_and_length(half_trained):
    source, model = half_trained
    rows = evaluate(model, source, [4, 5], 40, ["random", "carry"], seed=3)
    of = [("random", 4), ("random", 5), ("carry", 4), ("carry", 5)]
    assert [(row["set"], row["length"]) for row in rows] == of
    for row in rows:
        batch = source.test(row["length"], 40, row["set"], 3)
        right = int(exact_matches(model, batch).sum())
        assert (row["n"], row["correct"], row["test_seed"]) == (40, right, 3)
        assert row["accuracy"] == pytest.approx(100 * right / 40)
        assert row["test_hash"] == batch.hash()
        low, high = wilson_interval(right, 40)
        assert (row["low"], row["high"]) == pytest.approx((100 * low, 100 * high), abs=1e-3)
    assert len({row["test_hash"] for row in rows}) == 4


def test_where_all_problems_are_tested_there_is_no_interval(half_trained):
    data, model = half_trained
    rows = evaluate(model, data, [1, 2, 3])
    assert [row["n"] for row in rows] == [3, 6, 18]
    assert all(row["low"] == row["high"] == row["accuracy"] for row in rows)
    problems = [data.task.write(data.every(2, 6, "random").problems, k) for k in range(6)]
    assert problems == ["10", "11", "12", "20", "21", "22"]
    table = accuracy_table({"random": rows})
    assert [row[2] for row in table.rows] == ["all 3", "all 6", "all 18"]
    (part,) = evaluate(model, data, [3], 5)
    assert part["n"] == 5 and part["low"] < part["high"]


def test_lengths_that_follow_each_other_with_the_same_numbers_are_one_line():
    same = {"accuracy": 50.0, "low": 40.0, "high": 60.0, "n": 9}
    rows = [{**same, "length": length} for length in (2, 3, 4, 6, 7)]
    rows[-1] = rows[-1] | {"accuracy": 51.0}
    shown, whole = (accuracy_table({"random": rows}, intervals=i).rows for i in (True, False))
    assert [row[:2] for row in shown] == [["2 to 4", "50.00"], ["6", "50.00"], ["7", "51.00"]]
    assert [row[0] for row in whole] == ["2", "3", "4", "6", "7"]


def test_default_samples_are_the_papers():
    for base, length in itertools.product(range(2, 37), range(1, 60)):
        some: Any = SimpleNamespace(task=SimpleNamespace(base=base))
        most = min(base**length - base ** (length - 1), 10_000)
        assert DigitData.test_size(some, length) == most


# Intervals


@pytest.mark.parametrize(
    ("correct", "n", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (10, 10, 0.7225, 1.0),
        (0, 0, 0.0, 1.0),
    ],
)
def test_wilson_interval_gives_published_values(correct, n, low, high):
    """The first four are Newcombe's (1998), table I, method 3."""
    assert wilson_interval(correct, n) == pytest.approx((low, high), abs=5e-5)


def test_a_table_for_papers_has_intervals_on_request_and_says_how_many_samples():
    low = {3: 40.0, 9: 41.0}
    rows = [{"length": n, "accuracy": 50.0, "n": 100, "low": low[n], "high": 60.0} for n in low]
    plain, full = (accuracy_table({"random": rows}, "C", "tab:c", i) for i in (False, True))
    assert plain.rows == [["3", "50.00"], ["9", "50.00"]]
    assert full.columns == ["length", "random", "random, 95 % interval"]
    assert full.rows == [["3", "50.00", "[40.00, 60.00]"], ["9", "50.00", "[41.00, 60.00]"]]
    assert plain.caption == "C. 100 problems per length"
    assert full.caption == "C. 100 problems per length"


# In parts


@pytest.fixture(autouse=True)
def threads_are_put_back() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("score", [exact_matches, greedy_matches, smallest_margins])
def test_threads_change_no_number(half_trained, score):
    data, model = half_trained
    batch = data.test(5, 1000)
    found = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        found.append(score(model, batch))
        assert torch.get_num_threads() == threads
        assert not found[-1].requires_grad
    assert torch.equal(*found) and len(found[0].unique()) > 1


def test_each_part_has_one_thread_and_they_meet():
    """Parts that wait for each other end only if all of them run at once."""
    meeting = threading.Barrier(3, timeout=20)

    def work(part: torch.Tensor) -> tuple[int, int]:
        meeting.wait()
        return int(part), torch.get_num_threads()

    torch.set_num_threads(3)
    assert in_parts(work, torch.arange(6)) == [(part, 1) for part in range(6)]
    torch.set_num_threads(1)
    meeting = threading.Barrier(1)
    assert in_parts(work, torch.arange(2)) == [(0, 1), (1, 1)]


def test_evaluations_at_once_go_back_to_the_threads_of_the_first():
    torch.set_num_threads(3)
    first, second = one_thread(), one_thread()
    assert first.__enter__() == second.__enter__() == 3
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert torch.get_num_threads() == 3


def test_a_test_set_without_problems_is_named(half_trained, monkeypatch):
    data, model = half_trained
    empty = data.test(3, 4).take(torch.arange(0))
    monkeypatch.setattr(data, "test", lambda *_: empty)
    with pytest.raises(AbcError, match="'carry' has no problems of length 3"):
        evaluate(model, data, [3], None, ["carry"])


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_an_error_in_a_part_ends_the_work_and_is_raised(threads, error):
    done = []

    def work(part: torch.Tensor) -> None:
        if int(part) == 2:
            raise error
        done.append(int(part))

    torch.set_num_threads(threads)
    with pytest.raises(error):
        in_parts(work, torch.arange(50))
    assert threads > 1 or done == [0, 1]
    assert torch.get_num_threads() == threads


# Stress


def test_margins_are_those_of_the_logits(half_trained):
    source, model = half_trained
    batch = source.test(5, 20, "hard")
    found = margins(model, batch)
    with torch.inference_mode():
        logits = model(batch.source, batch.target)
    for row in range(20):
        for step in range(batch.target.shape[1]):
            right = int(batch.target[row, step])
            if right == source.vocabulary.pad:
                assert found[row, step] == torch.inf
                continue
            others = [float(x) for i, x in enumerate(logits[row, step]) if i != right]
            expected = float(logits[row, step, right]) - max(others)
            assert abs(float(found[row, step]) - expected) < 1e-4


def test_a_search_finds_smaller_margins_than_it_began_with_and_failures_say_where(half_trained):
    source, model = half_trained
    rows = row, _ = [searched(model, source, n, samples=30, search=400) for n in (4, 6)]
    assert row.n == 430 and row.wrong > 0 and row.failures
    hard = source.task.hard(np.random.default_rng(0), 60, 4)
    first = smallest_margins(model, source.lay_out(hard))
    assert row.margin <= first.min() + 1e-3
    least = smallest(rows)
    every = [one for row in rows for one in row.failures]
    assert least is not None and least.digits == min(one.digits for one in every)
    assert failure(model, source, least.problem) == least
    right = "".join(reversed(least.right))
    if least.step < len(right):
        assert least.wanted == right[least.step]
    assert least.wrote != least.wanted and least.problem in least.text()


def test_a_vanilla_model_fails_beyond_its_length(tiny, abc):
    words = ("--lengths", "9", "--samples", 10, "--search", 60)
    told = abc("stress", tiny.vanilla, *words, "--json", "-q").json()
    assert told["smallest"]["digits"] == 9 and sum(row["wrong"] for row in told["rows"]) > 50
    said = abc("stress", tiny.vanilla, *words)
    assert "shortest problem that it gets wrong" in said.out
    assert json.loads((tiny.vanilla / "stress.json").read_text())["rows"][0]["length"] == 9


def test_repair_of_a_certified_run_changes_nothing(tiny, abc):
    before = (tiny.calibrated / "model" / "model.safetensors").read_bytes()
    said = abc("repair", tiny.calibrated)
    assert said.code == 0 and "certified" in said.out
    assert (tiny.calibrated / "model" / "model.safetensors").read_bytes() == before
    assert "cannot be repaired" in abc("repair", tiny.vanilla, "-q").error(1)


def test_a_recurrent_model_is_searched_for_failures(abc):
    words = ("--model", "gru", "--attender", "content", "--steps", 3, "--digits", 3, "-q")
    assert abc("train", "addition", *words).code == 0
    told = abc("certify", "--json", "-q").json()
    assert told["outcome"] == "refuted" and "(it is recurrent" in told["reason"]
    said = abc("stress", "--lengths", 2, "--samples", 2, "--search", 10)
    assert said.code == 0 and "shortest problem that it gets wrong" in said.out
