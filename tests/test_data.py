"""Data: how problems are laid out, which numbers train, and tests that never change."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import digit_data
from hypothesis import given
from hypothesis import strategies as st
from others import reversals, tokenizer, write_pairs

from abc_calib import stages
from abc_calib.config import TrainOptions
from abc_calib.data import Batch, DigitData, PairData, TokenData
from abc_calib.data.digits import Format, Split
from abc_calib.data.vocabulary import Vocabulary
from abc_calib.errors import UsageError
from tasks import ARITHMETIC, TOKEN_TASKS, TaskError, get_task
from tasks.pairs import FilePairs
from tasks.ragged import as_integers
from tasks.whole import Whole


def texts(ids: torch.Tensor, vocabulary: Vocabulary) -> list[str]:
    """Rows of ids as text, padding and all."""
    return ["".join(vocabulary.symbols[i] for i in row) for row in ids.tolist()]


def laid_out(task: str, source: str, layout: str, base: int | None = None) -> tuple[str, str]:
    data = digit_data(task, base, layout)
    batch = data.lay_out(data.task.parse(source))
    return texts(batch.source, data.vocabulary)[0], texts(batch.target, data.vocabulary)[0]


# Formats


@pytest.mark.parametrize(
    ("task", "base", "layout", "source", "read", "write"),
    [
        ("addition", 10, "free", "6+35", "$06+35&", "14&"),
        ("addition", 10, "free", "0+0", "$0+0&", "0&"),
        ("addition", 10, "fixed:4", "6+35", "$0006+0035&", "1400&"),
        ("addition", 16, "free", "ff+1", "$ff+01&", "001&"),
        ("successor", 10, "fixed:5", "199", "$00199&", "00200&"),
        ("multiplication", 10, "free", "123*0", "$123*0&", "000&"),
        ("multiplication", 10, "fixed:5", "123*6", "$00123*6&", "83700&"),
        ("multiplication", 10, "aligned", "123*6", "$*162636&", "837&"),
        ("successor", 10, "aligned", "199", "$199&", "002&"),
        ("addition", 10, "aligned,fixed:4", "6+35", "$+00000365&", "1400&"),
        ("multiplication", 10, "aligned,fixed:4", "123*6", "$*06162636&", "8370&"),
        ("successor", 10, "aligned,fixed:4", "199", "$0199&", "0020&"),
        ("parity", 2, "fixed:6", "1011", "$001011&", "100111&"),
    ],
)
def test_layout_by_hand(task, base, layout, source, read, write):
    assert laid_out(task, source, layout, base) == (read, write)


def test_formats_that_are_none_or_do_not_fit_are_refused():
    wrong = ["", "Free", "free:3", "fixed", "fixed:0", "fixed:-1", "fixed:²", "aligned,free"]
    for layout in [*wrong, "aligned,hints"]:
        with pytest.raises(UsageError, match=r"choose free, aligned, hints, fixed:N .fixed:60. or"):
            Format(layout)
    with pytest.raises(ValueError, match="4 digits does not fit 3: use the format free, or fi"):
        laid_out("addition", "1234+1", "fixed:3")


def test_the_vocabulary_of_base_ten_is_the_papers():
    vocabulary = Vocabulary(get_task("addition"))
    assert "".join(vocabulary.symbols) == "0123456789+*$&@"
    assert len(vocabulary) == 15
    assert (vocabulary.sos, vocabulary.eos, vocabulary.pad) == (12, 13, 14)
    assert vocabulary.text([12, 1, 2, 14, 13, 3]) == "12"


@given(
    st.sampled_from(list(ARITHMETIC)),
    st.integers(2, 36),
    st.sampled_from(["free", "fixed:9"]),
    st.sampled_from(["uniform", "balanced", "carry", "mixed"]),
    st.booleans(),
    st.integers(1, 9),
    st.integers(0, 2**32),
)
def test_what_is_laid_out_reads_back_as_the_problem(name, base, layout, law, exact, length, seed):
    rule = get_task(name, base=2 if name == "parity" else base)
    vocabulary = Vocabulary(rule)
    problems = rule.sample(np.random.default_rng(seed), 5, length, law, exact)
    batch = digit_data(rule.name, rule.base, layout).lay_out(problems)
    for row in range(5):
        source = texts(batch.source, vocabulary)[row].rstrip("@")
        target = texts(batch.target, vocabulary)[row].rstrip("@")
        assert source[0] == "$" and source[-1] == target[-1] == "&"
        wanted = rule.write(problems, row)
        assert rule.write(rule.parse(source[1:-1]), 0) == wanted
        assert rule.read(target[:-1][::-1]) == rule.solve(wanted)
        assert vocabulary.text(batch.target[row].tolist()) == target[:-1]


# The split


@cache
def source_of(
    name: str, base: int, seed: int, law: str = "mixed", layout: str = "free"
) -> DigitData:
    length = get_task(name, base=base).train_length
    return digit_data(name, base, layout, seed, law, length)


def numbers(batch: Batch, base: int) -> set[int]:
    """The operands that are not among the few that always train."""
    found: set[int] = set()
    problems: Any = batch.problems
    for operand in problems.operands:
        integers = as_integers(operand, base)
        found |= set(integers[integers >= max(base**3, 1000)].tolist())
    return found


@pytest.mark.parametrize(
    ("name", "base", "law"),
    [
        ("addition", 10, "uniform"),
        ("multiplication", 10, "mixed"),
        ("successor", 7, "mixed"),
        ("parity", 2, "uniform"),
        ("addition", 36, "mixed"),
    ],
)
def test_training_numbers_and_held_out_numbers_never_meet(name, base, law):
    source = source_of(name, base, 3, law)
    trained: set[int] = set()
    for step in range(20):
        trained |= numbers(source.training(step, 128), base)
    trained |= numbers(source.training(2**31, 256, exact=True), base)
    held_out = numbers(source.validation(500), base)
    for length in range(5 if base == 2 else 4, source.length + 1):
        held_out |= numbers(source.test(length, 150), base)
        held_out |= numbers(source.test(length, 50, "carry"), base)
    assert len(trained) > 300 and len(held_out) > 100
    assert not trained & held_out


@pytest.mark.parametrize("base", [10, 36])
def test_an_eighth_of_the_numbers_is_held_out_and_another_one_by_another_seed(base):
    rule = get_task("successor", base=base)
    drawn = rule.sample(np.random.default_rng(0), 20_000, rule.train_length, exact=True).operands[0]
    one, same, other = (Split(base, seed).held_out(drawn) for seed in (0, 0, 1))
    assert abs(one.mean() - 1 / 8) < 0.01
    assert (one == same).all() and (one != other).mean() > 0.1


# Batches


@pytest.mark.parametrize("name", ["addition", "copy"])
def test_training_batches_depend_on_seed_and_step_alone(name):
    """And not on what was drawn before."""

    def data(seed: int) -> Any:
        return tokens_of(name, seed) if name == "copy" else digit_data(name, seed=seed)

    one = data(1)
    hashes = [one.training(step, 31).hash() for step in (700, *range(50), 700)]
    assert hashes[0] == hashes[-1] and len({*hashes}) == 51
    assert data(1).training(4, 31).hash() == hashes[5]
    assert data(2).training(4, 31).hash() not in hashes


@pytest.mark.parametrize("law", ["random", "carry"])
@pytest.mark.parametrize("length", [6, 17])
def test_test_sets_follow_from_their_seed_and_beyond_the_training_length_not_from_the_run(
    length, law
):
    def digest(seed: int, n: int = 41, of_run: int = 0) -> str:
        return source_of("addition", 10, of_run).test(length, n, law, seed).hash()

    assert digest(0) == digest(0)
    assert len({digest(0), digest(1), digest(0, 43)}) == 3
    assert (digest(0, 23, 1) == digest(0, 23)) == (length > 6)


@given(
    st.sampled_from(list(ARITHMETIC)),
    st.one_of(st.integers(1, 3), st.integers(1, 60)),
    st.sampled_from(["random", "carry"]),
    st.integers(0, 5),
)
def test_test_sets_have_exactly_the_asked_length(name, length, law, seed):
    """Also where the permutation holds out none of the few numbers of that length."""
    batch = source_of(name, 2 if name == "parity" else 10, seed).test(length, 7, law)
    assert len(batch) == 7
    assert (batch.problems.operands[0].lengths == length).all()


def test_the_hash_sees_every_token():
    batch = source_of("addition", 10, 0).test(9, 5)
    large = Batch(batch.source + 300, batch.target, batch.problems)
    assert large.take(torch.arange(5)).hash() == large.hash() != batch.hash()
    for changed in (batch, large):
        moved = Batch(changed.source.clone(), changed.target, changed.problems)
        moved.source[0, 0] += 256  # ids of large vocabularies are told apart
        later = Batch(changed.source, changed.target.clone(), changed.problems)
        later.target[3, 2] += 1
        swapped = Batch(changed.source.flip(0), changed.target.flip(0), changed.problems)
        assert changed.hash() not in (moved.hash(), later.hash(), swapped.hash())


# Files of pairs


def pair_data(folder: Path, pairs: list[tuple[str, str]], words: Any) -> PairData:
    words.save_pretrained(folder)
    path = write_pairs(folder / "pairs.jsonl", pairs)
    return PairData(FilePairs(str(path), str(folder), "=", eos=2), TrainOptions(length=4))


def test_held_out_pairs_are_never_trained_on_though_a_source_stands_there_twice(tmp_path):
    pairs = reversals(n=300)
    data = pair_data(tmp_path, [*pairs, *pairs[::2]], tokenizer())
    kept_back = {data.task.pairs.source[row] for row in np.flatnonzero(data.held_out)}
    assert kept_back
    for step in range(20):
        assert not kept_back & {*data.training(step, 64).problems.source}


def test_a_token_of_the_tokenizer_is_not_taken_for_padding(tmp_path):
    words = tokenizer()
    words.add_tokens(["@"])
    data = pair_data(tmp_path, [("12=", "2@1"), ("3=", "@")], words)
    ids = data.everything.target[0].tolist()
    symbols = [data.vocabulary.symbols[i] for i in ids[: ids.index(2)]]
    assert data.read(symbols) == "2@1"
    with pytest.raises(UsageError, match="'12' has none of the delimiters: write a source as"):
        data.lay_out(data.task.parse("12"))


@pytest.mark.parametrize("name", ["addition", "multiplication"])
@pytest.mark.parametrize("base", [2, 10])
def test_no_answer_is_longer_than_output_steps(name, base):
    data = digit_data(name, base=base, format="free")
    highest = "1" * 6 if base == 2 else "9" * 6
    operands = [highest[:width] for width in data.task.widths(6)]
    batch = data.lay_out(data.task.parse(data.task.operator.join(operands)))
    assert batch.target.shape[1] <= data.output_steps(6)
    assert base == 2 or batch.target.shape[1] == data.output_steps(6)


# Token tasks


NAMES = [name for name in TOKEN_TASKS if name != "cfq"]


def tokens_of(name: str, seed: int = 0, length: int | None = None, **more) -> TokenData:
    task: Any = get_task(name)
    length = task.train_length if length is None else length
    options = TrainOptions(seed=seed, length=length, sampling=task.sampling, **more)
    return TokenData(task, options)


def read_as(task, words: list[str]) -> list[str]:
    """A source's tokens: where outputs have rows the count in unary, and words from the last on."""
    if not getattr(task, "in_rows", False):
        return words
    if task.counted:
        return [*"#" * int(words[0]), ":", *words[:1:-1]]
    if task.name in ("stack", "brackets", "solve_equation"):  # from its bottom on, in the end
        return [*words[: words.index(":")][::-1], *words[words.index(":") :]]
    return words[::-1]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_sampled_and_laid_out_reads_back_and_follows_the_rule(name):
    source = tokens_of(name)
    task, vocabulary, rng = source.task, source.vocabulary, np.random.default_rng(0)
    drawn = [task.sample(rng, 9, length, exact=length > 8) for length in (8, 9)]
    for row in range(18):
        problems, row = drawn[row % 2], row // 2
        batch, written = source.lay_out(problems.take(np.array([row]))), task.write(problems, row)
        parsed = task.parse(written)
        assert (parsed.source.row(0) == problems.source.row(row)).all()
        assert (parsed.answer.row(0) == problems.answer.row(row)).all()
        laid = read_as(task, written.split())
        if isinstance(task, Whole):  # as a person writes numbers
            laid = task.text(problems.source.row(row)).split()
        ids = [vocabulary.symbols[i] for i in batch.source[0].tolist()]
        assert ids == ["$", *laid, *"&" * (2 if task.closes_source else 1)]
        *target, end = batch.target[0].tolist()
        assert end == vocabulary.eos
        assert source.read([vocabulary.symbols[i] for i in target]) == task.solve(written)


def test_a_pass_holds_every_training_problem_once():
    source = tokens_of("lookup")
    steps = -(-len(source.everything) // 1000)
    assert steps == 10
    for first in (0, steps):
        seen = [source.training(first + i, 1000) for i in range(steps)]
        assert [len(batch) for batch in seen] == [1000] * 9 + [81]
        for batch in seen:  # each row begins with $ and is padded behind & to the longest
            ends = (batch.source == source.vocabulary.eos).cumsum(1) > 0
            assert ((batch.source == source.vocabulary.pad) <= ends).all()
        written = {
            source.task.write(batch.problems, row) for batch in seen for row in range(len(batch))
        }
        assert len(written) == 9081


def test_validation_is_of_the_training_lengths_or_longer():
    same, longer = (tokens_of("copy", dev=dev).validation(2001) for dev in ("same", "longer"))
    assert same.problems.source.lengths.max() == 10
    assert set(longer.problems.source.lengths) == set(range(10, 16))


def test_tests_have_exactly_the_asked_length_and_others_are_refused():
    for name, length, wanted in (("copy", 30, 30), ("lookup", 9, 8), ("scan", 30, 30)):
        batch = tokens_of(name).test(length, 17)
        assert len(batch) == 17 and (batch.problems.answer.lengths == wanted).all()
    with pytest.raises(TaskError, match="no test of scan has 23 actions: choose among 24, 25"):
        tokens_of("scan").test(23, 5)
    with pytest.raises(TaskError, match="length 2 is not possible for lookup: give 3 or more"):
        tokens_of("lookup", length=2)


TINY = {"decoder_layers": 1, "heads": 2, "width": 16, "feedforward": 32, "steps": 8, "batch": 16}


def test_the_pipeline_of_the_transformer_runs_on_tokens(untrained, monkeypatch):
    monkeypatch.setattr("abc_calib.calibration.trial.STEPS", 2)
    monkeypatch.setattr("abc_calib.calibration.trial.JUDGED", 5)
    run = stages.train("lookup", **TINY)
    assert run.result["validation_samples"] == 475
    monkeypatch.setattr("abc_calib.calibration.pipeline.correct_samples", lambda _, b: (b, 1.0))
    calibrated = stages.calibrate(run, force=True, samples=64, steps=4)
    assert calibrated.result["steps"] == 4
    table = stages.evaluate(calibrated, [7, 11], samples=9)
    assert table["length"].tolist() == [7, 11] and (table["n"] == 9).all()
