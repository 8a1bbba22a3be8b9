"""Tasks on tokens: worked examples, brute force, the papers' sets, and bad input."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks import TOKEN_TASKS, Problems, TaskError, copying, get_task
from tasks.published.cfq import KEYS
from tasks.published.lookup import Lookups
from tasks.published.scan import meanings

COPYING = [name for name, kind in TOKEN_TASKS.items() if issubclass(kind, copying.Copying)]
LOOKUPS = [name for name, kind in TOKEN_TASKS.items() if issubclass(kind, Lookups)]
RNG = np.random.default_rng(0)
DIGITS = st.lists(st.integers(0, 9), min_size=1, max_size=12)


def spaced(words: list) -> str:
    return " ".join(map(str, words))


def times(digit: int) -> int:
    return 1 if digit <= 3 else 3 if digit <= 6 else 5


# Worked examples of the papers


@pytest.mark.parametrize(
    ("name", "source", "answer"),
    [
        ("intermediate_noise", "010 t6 t3 t1 t4 t2 .", "010 011 010"),
        ("scan", "turn left twice <eos>", "I_TURN_LEFT I_TURN_LEFT"),
        ("scan", "jump twice and walk", "I_JUMP I_JUMP I_WALK"),
        ("scan", "walk after look opposite right", "I_TURN_RIGHT I_TURN_RIGHT I_LOOK I_WALK"),
        ("scan", "run around left", spaced(["I_TURN_LEFT I_RUN"] * 4)),
        ("scan", "turn around right thrice", spaced(["I_TURN_RIGHT"] * 12)),
    ],
)
def test_worked_examples(name, source, answer):
    assert get_task(name).solve(source) == answer


# By brute force


@given(DIGITS)
def test_the_copy_family_against_plain_lists(digits):
    repeats = [d for d in digits for _ in range(times(d))]
    backwards = [d for d in digits[::-1] for _ in range(times(d))]
    found = {n: get_task(n).solve(spaced(digits)) for n in COPYING if "inv" not in n}
    assert found["copy"] == spaced(digits)
    assert found["reverse_copy"] == spaced(digits[::-1])
    assert found["recopy"] == spaced(repeats)
    assert found["reverse_recopy"] == spaced(backwards)
    assert get_task("inv_recopy").solve(spaced(repeats)) == spaced(digits)
    assert get_task("inv_reverse_recopy").solve(spaced(backwards)) == spaced(digits)
    kept = [d for i, d in enumerate(digits) if i == 0 or digits[i - 1] != d]
    assert found["dedupe"] == spaced(kept)
    asked = [f"{d} : {digits[d] if d < len(digits) else 'n/a'} ;" for d in digits]
    assert found["posretrieve"] == spaced(asked)


@given(st.integers(0, 7), st.lists(st.integers(1, 8), min_size=1, max_size=12), st.data())
def test_lookup_against_the_published_file(start, tables, data):
    outputs = json.loads(
        (Path(__file__).parents[1] / "tasks/published/lookup_tables.json").read_text()
    )
    value, results = f"{start:03b}", [f"{start:03b}"]
    for table in tables:
        value = outputs[f"t{table}"].split()[int(value, 2)]
        results.append(value)
    names = [f"t{table}" for table in tables]
    answer = " ".join(results)
    assert get_task("lookup").solve(spaced([results[0], *names, "."])) == answer
    assert get_task("reverse_lookup").solve(spaced([*names[::-1], results[0], "."])) == answer
    noise = data.draw(st.lists(st.sampled_from(["t1", "t6", "!"]), max_size=9))
    noisy = spaced([results[0], *noise, "!", *names, "."])
    assert get_task("noisy_lookup_multi").solve(noisy) == answer
    once = spaced([results[0], *(word for word in noise if word != "!"), "!", *names, "."])
    assert get_task("noisy_lookup_single").solve(once) == answer


@pytest.mark.parametrize("name", sorted({*COPYING, *LOOKUPS} - {"posretrieve"}))
def test_gold_attention_names_the_word_that_is_written(name):
    """In the copy family the word itself; in lookup the string or a table, then the stop."""
    task = get_task(name)
    pairs = task.sample(np.random.default_rng(5), 41, 8)
    for row in range(41):
        words = task.write(pairs, row).split()
        target = task.text(pairs.answer.row(row)).split()
        gold = task.gold_attention(" ".join(words))
        if name in COPYING:
            assert [words[i] for i in gold] == target
        else:
            assert len(gold) == len(target) + 1  # the stop for the end
            assert words[gold[0]] == target[0] and words[gold[-1]] == "."
            assert all(words[i][0] == "t" for i in gold[1:-1])


@pytest.mark.parametrize("name", sorted({*COPYING} - {"dedupe", "posretrieve"}))
def test_copy_lengths_count_the_side_that_is_not_repeated(name):
    for length, exact in ((10, False), (100, True)):
        pairs = get_task(name).sample(np.random.default_rng(1), 300, length, exact=exact)
        lengths = np.minimum(pairs.source.lengths, pairs.answer.lengths)
        assert {*lengths} == ({100} if exact else {5, 6, 7, 8, 9, 10})
    runs = get_task("dedupe").sample(np.random.default_rng(1), 300, 1, exact=True)
    assert {*runs.source.lengths} == {1, 3, 5} and {*runs.answer.lengths} == {1}


# The papers' sets


def sources(pairs: Problems) -> set[tuple[int, ...]]:
    return {tuple(pairs.source.row(i).tolist()) for i in range(len(pairs))}


@pytest.mark.parametrize("name", COPYING)
def test_copy_sets(name):
    task = get_task(name)
    sizes = {split: len(task.split(split)) for split in ("train", "dev", "iid", "test_15")}
    assert sizes == {"train": 10_001, "dev": 2001, "iid": 2001, "test_15": 2001}
    train = sources(task.split("train"))
    assert len(train) == 10_001 and (
        name != "copy" or train == sources(get_task(name).split("train"))
    )
    if name == "recopy":
        assert set(task.split("dev").source.lengths) == set(range(10, 16))
        assert task.split("train").answer.lengths.max() in range(44, 51)


def test_lookup_sets_have_the_published_sizes_in_every_variant():
    for name in LOOKUPS:
        task = get_task(name)
        for split, sizes in SIZES.items():
            target = task.split(split).answer
            assert Counter((target.lengths - 1).tolist()) == sizes
            assert (target.values == get_task("lookup").split(split).answer.values).all()


SIZES = {
    "train": {1: 64, 2: 273, 3: 1644, 4: 7100},
    "train_before_new_tables": {1: 48, 2: 273, 3: 1644, 4: 7100},
    "validation": {2: 15, 3: 84, 4: 376},
    "heldout_inputs": {4: 2492},
    "heldout_compositions": {4: 400},
    "heldout_tables": {4: 5000},
    "new_compositions": {4: 128},
    **{f"longer_seen_{beyond}": {4 + beyond: 5000} for beyond in range(1, 6)},
}


def test_lookup_sets_do_not_overlap_and_models_are_not_tested_on_what_they_were_chosen_by():
    task = get_task("lookup")
    names = ("train", "validation", "heldout_inputs", "heldout_compositions")
    parts = [sources(task.split(name)) for name in names]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 9081 + 475 + 2492 + 400
    held = {source[1:] for source in parts[3]}
    assert len(held) == 50
    assert not held & {source[1:] for part in parts[:3] for source in part}
    test, chosen = (sources(p) for p in (task.test_set(7, 5000, 0), task.longer_set(6)))
    assert len(test) == 4500 and not test & chosen
    assert len(task.longer_set(6)) == 975


ROWS = {
    "heldout_compositions": {0: "110 t4 t1 t1 t1 ."},
    "heldout_inputs": {-2: "100 t4 t4 t5 t2 .", -1: "001 t1 t5 t4 t1 ."},
    "heldout_tables": {-2: "010 t8 t3 t3 t6 .", -1: "100 t3 t3 t4 t7 ."},
    "new_compositions": {-2: "011 t8 t7 t8 t8 .", -1: "011 t8 t8 t8 t8 ."},
    "longer_incremental_3": {-2: "010 t2 t2 t2 t8 t1 t1 t5 .", -1: "010 t4 t6 t3 t4 t8 t2 t2 ."},
    "longer_new_2": {-2: "000 t8 t7 t8 t8 t7 t8 .", -1: "101 t8 t8 t8 t8 t8 t8 ."},
    "longer_seen_5": {-1: "101 t3 t2 t5 t5 t6 t1 t2 t5 t6 ."},
}


def test_lookup_sets_are_the_published_ones_in_their_order():
    """The last rows of the published files; any other draw before them would change them."""
    task = get_task("lookup")
    for name, rows in ROWS.items():
        found = task.split(name).source
        for row, text in rows.items():
            symbols = found.values[row, : found.lengths[row]]
            assert " ".join(task.symbols[token] for token in symbols) == text


def test_scan_has_20910_commands_and_the_published_length_split():
    task = get_task("scan")
    assert len(meanings()) == 20_910
    sizes = {name: len(task.split(name)) for name in task.splits}
    assert sizes == {"train": 13_070, "validation": 3920, "test": 3920}
    assert task.split("train").answer.lengths.max() == 22
    test = task.split("test").answer.lengths
    assert (test.min(), test.max()) == (24, 48)


# Files


def scan_of(folder: Path, *train: str) -> Any:
    """The task on files with these lines, and one of a test."""
    (folder / "tasks_train_length.txt").write_text("\n".join(train) + "\n")
    (folder / "tasks_test_length.txt").write_text("\ufeff IN: walk twice OUT: I_WALK I_WALK\n")
    return get_task("scan", data=str(folder))


def test_scan_reads_the_public_files(tmp_path):
    walk, *others = (f"IN: {w} OUT: I_{w.upper()}" for w in ("walk", "run", "look", "jump"))
    task = scan_of(tmp_path, walk, *others)
    assert sum(len(task.split(name)) for name in ("train", "validation")) == 4
    assert task.write(task.split("test"), 0) == "walk twice"
    task = scan_of(tmp_path, *3 * [walk], *3 * [others[0]], *others[1:], "", "")
    split = {name: task.split(name) for name in ("train", "validation")}
    commands = {name: [task.write(p, k) for k in range(len(p))] for name, p in split.items()}
    assert len(commands["train"]) == 6 and {*commands["validation"]} == {"look", "jump"}
    for line, said in (
        ("IN: walk", "line 2: expected 'IN: command OUT: actions'"),
        ("IN: fly OUT: I_WALK", "line 2: 'fly' does not mean 'I_WALK' in SCAN"),
        ("IN: run OUT: I_JUMP", "line 2: 'run' does not mean 'I_JUMP' in SCAN"),
        ("IN: I_RUN OUT: run", "line 2: 'I_RUN' does not mean"),
        ("IN: walk twice OUT: I_WALK I_WALK", "'walk twice' stands in tasks_train_length.txt and"),
        ("", "line 2: expected"),
    ):
        with pytest.raises(TaskError, match=said):
            scan_of(tmp_path, walk, line, *others).split("train")


SAMPLES = [
    ("Did M1 's director produce M2?", "SELECT count(*) WHERE {\nM1 ns:film.a/ns:film.b M2 }"),
    ("Was M0 a film", "SELECT count(*) WHERE { ns:m.0f8l9c ns:film.b M2 }"),
    ("Was M2 a film", "SELECT count(*) WHERE { M2 a film }"),
    ("Who was M0 ?", "SELECT DISTINCT ?x0 WHERE { ?x0 a film }"),
]


WRONG_SAMPLES = ([-1], [True, False], [0, 2])


def write_cfq(folder: Path, **changed: object) -> Path:
    samples = [dict(zip(KEYS, pair, strict=True)) for pair in SAMPLES]
    chosen = {"trainIdxs": [0, 1], "devIdxs": [2], "testIdxs": [3]}
    (folder / "splits").mkdir(exist_ok=True)
    (folder / "dataset.json").write_text(json.dumps(changed.get("samples", samples)))
    text = json.dumps(changed.get("chosen", chosen))
    (folder / "splits/query_complexity_split.json").write_text(text)
    return folder


def test_cfq_reads_and_prepares_local_data(tmp_path):
    task = get_task("cfq", data=str(write_cfq(tmp_path)))
    assert task.write(task.split("train"), 0) == "Did M1 ' s director produce M2 ?"
    answer = task.solve("Did M1 's director produce M2?")
    assert answer == "SELECT count ( * ) WHERE { M1 film.a/ns:film.b M2 }"
    assert "m_0f8l9c film.b" in task.text(task.split("train").answer.row(1))
    assert task.closes_source
    # a word that training never saw is unknown
    assert task.write(task.split("test"), 0) == "<unk> <unk> M0 ?"


def test_cfq_says_what_is_wrong_with_the_files(tmp_path):
    with pytest.raises(TaskError, match="give its folder"):
        get_task("cfq")
    with pytest.raises(TaskError, match="scan has no gold attention"):
        get_task("scan").gold_attention("walk")
    with pytest.raises(TaskError, match=r"dataset.json cannot be read"):
        get_task("cfq", data=str(tmp_path))
    wrong: list[dict[str, Any]] = [
        *({"samples": {}}, {"samples": [{"questionPatternModEntities": "Who?"}]}),
        *({"chosen": {}}, {"chosen": {"trainIdxs": [9]}}, {"chosen": {"trainIdxs": [0]}}),
        *({"chosen": {"trainIdxs": t, "devIdxs": [2], "testIdxs": [3]}} for t in WRONG_SAMPLES),
        {"samples": [dict.fromkeys(KEYS, "")] * 4},
    ]
    for changed in wrong:
        with pytest.raises(TaskError, match=r"cannot be read .*give the public data"):
            get_task("cfq", data=str(write_cfq(tmp_path, **changed)))


# Bad input


@pytest.mark.parametrize(
    ("name", "source", "message"),
    [
        (
            "copy",
            "",
            "'' is not a source of copy: it is empty; write digits separated by spaces, as in",
        ),
        (
            "copy",
            "1 12",
            "'1 12' is not a source of copy: '12' is not one of its tokens; write digits",
        ),
        ("inv_recopy", "4 4", "4 stands 2 times in a row, and inv_recopy takes it 3 times"),
        ("lookup", "010 t3 t4", "has no '.' at its end"),
        ("lookup", "t3 010 .", "is not a source of lookup"),
        ("reverse_lookup", "010 t3 .", "is not a source of reverse_lookup"),
        ("noisy_lookup_single", "010 ! t3 ! t1 .", "noisy_lookup_multi takes those"),
        ("intermediate_noise", "010 t3 t1 .", "is not a source of intermediate_noise"),
        ("scan", "walk and run and look", "outside the grammar"),
        ("scan", "turn", "outside the grammar"),
    ],
)
def test_bad_sources_are_refused_with_a_reason(name, source, message):
    with pytest.raises(TaskError, match=message):
        get_task(name).solve(source)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda _: get_task("copy", base=10), "copy has no option 'base' "),
        (lambda _: get_task("lookup", data="x"), "it takes none"),
        (lambda _: get_task("scan", data="/no/such/folder"), "there is no folder"),
        (lambda task: task.sample(RNG, 1, 0), "length 0 is not possible"),
        (lambda task: task.sample(RNG, 1, 9, "carry"), "no sampling law 'carry'"),
        (lambda task: task.split("tset"), "has no set 'tset': choose one of train"),
    ],
)
def test_options_lengths_laws_and_sets_that_are_none(call, message):
    for name in ("copy", "lookup", "scan"):
        with pytest.raises(TaskError, match=message):
            call(get_task(name))
