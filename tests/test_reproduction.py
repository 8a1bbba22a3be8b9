"""The paper's tables beside ours: numbers, verdicts, files; rendering trains nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from abc_calib.errors import AbcError, UsageError
from abc_calib.reproduction import (
    TARGETS,
    get_target,
    load_results,
    make_report,
    read_targets,
    reproduce,
    write_report,
)
from abc_calib.reproduction.cells import ACCURACY, shown, verdict
from abc_calib.reproduction.layouts import LAYOUTS
from abc_calib.reproduction.pipeline import NEEDED, collect, measured
from abc_calib.reproduction.remarks import REMARKS
from abc_calib.reproduction.targets import Entry
from abc_calib.sweeps import Job, Test, ensure
from abc_calib.sweeps.jobs import with_parents

RESULTS = Path(__file__).parent / "results"
COMMITTED = Path(__file__).parents[1] / "reports" / "reproduction"
LENGTHS = [6, 10, 15, 20, 50]


def by_place(rows):
    return {(row["task"], row["row"], row["length"]): row for row in rows}


# The paper


def test_the_paper_has_a_number_for_every_length_of_its_rows():
    target = get_target("table1")
    numbers = {place[1:]: number for place, (number, _) in target.printed.items()}
    assert len(numbers) == 25 * len(LENGTHS) - 1
    assert numbers["addition", "abc", 50] == 99.8
    assert numbers["multiplication", "window", 15] == 0.19
    assert ("addition", "rpe", 50) not in numbers and ("parity", "vanilla", 6) not in numbers
    assert ("addition", "abc", 100) not in numbers
    assert {row for _, row, _ in numbers} == set(target.known)


@pytest.mark.parametrize(
    ("theirs", "ours", "own", "said"),
    [
        (99.8, 100.0, True, "agreement"),
        (100.0, 100.0 - ACCURACY.tolerance, True, "agreement"),
        (6.0, 100.0, True, "improvement"),
        (1.3, 100.0, False, "disagreement"),
        (100.0, 98.9, True, "disagreement"),
        (21.3, 0.5, False, "disagreement"),
        (None, 100.0, True, ""),
        (100.0, None, True, ""),
    ],
)
def test_verdicts(theirs, ours, own, said):
    assert verdict(theirs, ours, own) == said


def test_accuracies_are_never_rounded_up():
    assert [shown(x) for x in (100.0, 99.996, 99.5, 0.19, 0.0, None)] == [
        "100", "99.99", "99.5", "0.19", "0", "–",
    ]  # fmt: skip


# Targets


TOY = """
layout = "lengths"
columns = ["row", "length", "min"]
[rows]
narrow = {label = "narrow", options = {width = 16}}
wide = {label = "wide", options = {width = 32}}
[targets.toy]
title = "A toy"
tasks = ["copy"]
tests = [{lengths = [6], samples = 10, seeds = 2}]
"""


def test_another_target_is_a_section_of_a_file(abc, tmp_path, monkeypatch):
    toy = read_targets(TOY)["toy"]
    monkeypatch.setitem(TARGETS, "toy", toy)
    results, outcomes = reproduce(get_target("toy"), root=tmp_path / "jobs", budget=1e-9)
    assert len(results) == 0 and [o.job.options for o in outcomes] == [
        {"width": 16, "seed": 0}, {"width": 32, "seed": 0},
        {"width": 16, "seed": 1}, {"width": 32, "seed": 1},
    ]  # fmt: skip
    about = {"stage": "vanilla", "length": 6, "n": 10, "accuracy": 50.0}
    known = pd.DataFrame(
        [{"row": e.row, "task": e.task, "seed": e.seed, **about} for e in toy.entries()],
        columns=NEEDED,
    )
    assert make_report(toy, known, 1).records[0] == {"row": "narrow", "length": 6, "min": 50.0}
    known.to_csv(tmp_path / "toy-seeds.csv", index=False)
    given = ("reproduce", "toy", "--from-results", "--results", tmp_path)
    said = abc(*given, "--out", tmp_path / "out")
    assert said.out.startswith("A toy")
    assert ["wide", "2", "50", "/", "50"] in [line.split()[1:] for line in said.out.splitlines()]
    assert "| wide | 2 | 50 / 50 |" in (tmp_path / "out" / "toy.md").read_text()
    saved = (tmp_path / "out" / "toy.csv").read_text()
    assert saved == "row,length,min\nnarrow,6,50.0\nwide,6,50.0\n"
    with pytest.raises(ValueError, match="colour"):
        read_targets(TOY + "colour = 1")


def test_files_name_what_there_is():
    """Layouts and remarks that the code has, numbers of rows that are there, names of targets."""
    for name, target in TARGETS.items():
        assert name == target.name and target.layout in LAYOUTS
        assert {note[1:-1] for note in target.notes if note.startswith("{")} <= set(REMARKS)
        assert {row for _, _, row, _ in target.printed} <= set(target.known)
        for rule in target.tests:
            assert set(rule.rows) <= set(target.known)
            assert rule.lengths is None or rule.lengths == tuple(sorted(rule.lengths))


def test_rivals_say_how_far_each_gets_alone_and_calibrated(tmp_path):
    """A row of results for each model and length, right to 10 digits alone and to 200 with ABC."""
    target = get_target("rivals")
    rows = [
        {
            "task": e.task, "row": e.row, "seed": e.seed, "length": test.length, "n": test.n,
            "stage": target.known[e.row].stage, "key": f"{e.row} {e.seed}",
            "accuracy": 100.0 if e.row.endswith("abc") or test.length <= 10 else 1.0,
            "train_seconds": 60.0, "error": None,
        }
        for e in target.entries(seeds=2)
        for test in e.job.tests
        if e.task == "addition"
    ]  # fmt: skip
    made = make_report(target, pd.DataFrame(rows), 2)
    (table,) = made.tables
    cells = {row[0]: row for row in table.rows}
    alone = ["100 / 100", "100 / 100", *["1 / 1"] * 5]
    assert cells["position coupling, decoder-only"][2:-1] == [*alone, "60"]
    assert cells["position coupling, decoder-only"][-1].startswith("30 → 200")
    assert cells["Abacus, encoder-decoder, + ABC"][2:-2] == ["100 / 100"] * 7
    assert any("with ABC at 200: 26 of 26 rows" in note for note in made.notes)
    assert not any("at the training length itself" in note for note in made.notes)
    for row in rows:
        if row["row"] == "decoder, fire, hints, abc":
            row["accuracy"] = 49.5
    (lost,) = [
        note
        for note in make_report(target, pd.DataFrame(rows), 2).notes
        if "at the training length itself" in note
    ]
    assert lost.startswith("Addition, FIRE, index hints, decoder-only, + ABC: 49.5 %")
    write_report(made, None, tmp_path)
    assert (tmp_path / "rivals-addition.png").stat().st_size > 10_000


# Jobs


def test_every_job_of_the_paper_and_its_reviewers_is_possible():
    names = ("table1", "table2", "table3", "figure1", "reviewers", "rivals")
    entries = [entry for name in names for entry in get_target(name).entries(seeds=1)]
    for job in with_parents([entry.job for entry in entries]):
        job.check()


def test_targets_share_their_trainings_and_begin_with_seed_0():
    table1, table3 = (get_target(name).entries() for name in ("table1", "table3"))
    assert [entry.seed for entry in table1] == sorted(entry.seed for entry in table1)
    keys = {entry.job.key for entry in table1}
    assert {e.job.key for e in table3 if e.row in ("alibi", "rope")} <= keys
    joined = with_parents([entry.job for entry in table1])
    assert len(joined) - 1 == len(table1) == 3 * (5 + 3 + 3 + 3 + 5) + 1  # one has its own first
    found = {(e.task, e.row): e.job for e in table1}
    assert {t.length: t.n for t in found["addition", "abc"].tests}[50] == 10_000
    assert found["addition", "abc"].parent.key == found["addition", "vanilla"].key
    parity = {e.row: e.job for e in table3 if e.task == "parity"}
    assert [t.length for t in parity["window"].tests] == [*LENGTHS, 100, 1000]
    assert parity["nope+window"].config.model.scheme == "none"
    assert parity["window+cyclic"].config.model.cyclic == 3
    assert len(get_target("figure1").entries(seeds=2)) == 2 * 2 * 5
    paper = get_target("table2").entries(preset="paper", seeds=1)
    assert {e.job.config.model.decoder_layers for e in paper} == {6}


def test_without_time_everything_is_missing(tmp_path):
    target = get_target("table2")
    results, outcomes = reproduce(target, seeds=1, root=tmp_path, budget=1e-9)
    made = make_report(target, results, 1)
    assert {o.state for o in outcomes} == {"missing"} and not list(tmp_path.iterdir())
    assert "successor, 0 of 1 seeds: vanilla" in made.markdown
    assert [record["median"] for record in made.records] == [None] * 8


def test_results_of_before_count_as_done_if_they_are_whole(tmp_path):
    target = get_target("table2")
    first, second, *_ = target.entries(seeds=1)
    about = {"stage": "vanilla", "seed": 0, "set": "random", "accuracy": 50.0}
    known = pd.DataFrame(
        [
            {**about, "key": e.job.key, "task": e.task, "row": e.row, "length": t.length, "n": t.n}
            for e, tests in ((first, first.job.tests), (second, second.job.tests[:-1]))
            for t in tests
        ],
        columns=[*NEEDED, "key", "set"],
    )
    results, outcomes = reproduce(target, seeds=1, known=known, root=tmp_path, budget=1e-9)
    assert [o.job.key for o in outcomes] == [e.job.key for e in target.entries(seeds=1)[1:]]
    assert set(results["task"]) == {first.task} and len(results) == len(first.job.tests)
    other = known.assign(row="of another table")
    found, _ = reproduce(target, seeds=1, known=other, root=tmp_path, budget=1e-9)
    assert set(found["row"]) == {first.row} and len(found) == len(first.job.tests)
    fewer = known.assign(n=10)
    _, outcomes = reproduce(target, seeds=1, known=fewer, root=tmp_path, budget=1e-9)
    assert len(outcomes) == 4


def test_only_some_rows_are_run_and_the_others_kept(tmp_path):
    target = get_target("table1")
    entry, *_ = [e for e in target.entries(seeds=1) if e.row == "vanilla"]
    about = {"key": entry.job.key, "task": entry.task, "row": entry.row, "seed": 0}
    known = pd.DataFrame(
        [about | {"set": t.set, "length": t.length, "n": t.n} for t in entry.job.tests],
        columns=[*NEEDED, "key", "set"],
    )
    chosen = {"seeds": 1, "rows": ["rope"], "root": tmp_path, "budget": 1e-9}
    results, outcomes = reproduce(target, known=known, **chosen)
    assert {o.job.options["scheme"] for o in outcomes} == {"rope"}
    assert set(results["row"]) == {"vanilla"} and len(results) == len(entry.job.tests)
    with pytest.raises(UsageError, match="choose of vanilla; alibi"):
        reproduce(target, seeds=1, rows=["scheme"], root=tmp_path)
    _, outcomes = reproduce(target, seeds=1, tasks=["successor"], root=tmp_path, budget=1e-9)
    assert {o.job.task for o in outcomes} == {"successor"}
    with pytest.raises(UsageError, match="no task 'successors' here: choose of successor; "):
        reproduce(target, seeds=1, tasks=["successors"], root=tmp_path)


def test_a_calibration_counts_as_done_where_its_first_training_did_not_interpolate():
    entry = next(e for e in get_target("reviewers").entries(seeds=1) if e.job.calibrate is not None)
    first = entry.job.parent
    rows = pd.DataFrame(
        [
            {"key": first.key, "task": entry.task, "row": entry.row, "seed": entry.seed}
            | {"set": t.set, "length": t.length, "n": t.n, "interpolated": False}
            for t in first.tests
        ]
    )
    assert len(measured(entry, rows)) == len(first.tests)
    assert measured(entry, rows.assign(interpolated=True)) is None
    assert measured(entry, rows[1:]) is None


def test_results_are_collected_from_the_jobs_folders(tmp_path):
    quick = {"decoder_layers": 1, "heads": 2, "width": 16, "feedforward": 16, "steps": 2}
    job = Job(task="successor", options=quick, tests=(Test(length=6, n=9),))
    ensure(job, tmp_path)
    results = collect([Entry("successor", "rope", 0, job)], tmp_path)
    assert results[["row", "task", "seed", "length", "n"]].to_numpy().tolist() == [
        ["rope", "successor", 0, 6, 9]
    ]
    write_report(make_report(get_target("table1"), results), results, tmp_path / "out")
    assert load_results("table1", tmp_path / "out")["key"].tolist() == [job.key]
    saved = pd.read_csv(tmp_path / "out" / "table1.csv")
    assert saved[saved["seeds"] > 0]["row"].tolist() == ["rope"]


# Rendering


@pytest.mark.parametrize("name", sorted(p.stem[:-6] for p in COMMITTED.glob("*-seeds.csv")))
def test_the_committed_pages_are_what_their_results_render_to(name):
    made = make_report(get_target(name), load_results(name, COMMITTED))
    table = pd.DataFrame(made.records).to_csv(index=False)
    for suffix, text in (("md", made.markdown), ("tex", made.latex), ("csv", table)):
        assert (COMMITTED / f"{name}.{suffix}").read_bytes() == text.encode()
    assert all((COMMITTED / f"{figure}.png").is_file() for figure in made.figures)


def test_cells_are_medians_and_minima_beside_the_paper():
    made = make_report(get_target("table1"), load_results("table1", RESULTS))
    found = by_place(made.records)
    assert found["addition", "abc", 50] == {
        "task": "addition", "row": "abc", "length": 50, "paper": 99.8, "median": 99.998,
        "min": 99.9, "max": 100.0, "seeds": 4, "n": 10000, "verdict": "agreement",
    }  # fmt: skip
    assert found["addition", "alibi", 6]["verdict"] == "disagreement"
    assert found["addition", "rpe", 50]["verdict"] == ""
    assert found["multiplication", "abc", 6]["median"] is None
    text = made.markdown
    assert "| Addition | ABC | 4 | 100 / 100 (100) = |" in text
    assert "99.99 / 99.9 (99.8) =" in text
    assert "99.5 / 98 (0) ≠" in text and "97 / 92 (99.9) ≠" in text
    assert "Addition ALiBi at 6 (99.5 against 0); " in text
    assert "Samples a length and seed: 1,000; 10,000 at 50 digits (Addition ABC)." in text
    assert "- addition, 4 of 5 seeds: abc" in text
    assert "- addition abc seed 4: the model has not interpolated" in text
    assert "- multiplication, 0 of 5 seeds: vanilla" in text
    assert made.latex.count(r"\toprule") == 1 and r"$\neq$" in made.latex
    fewer = make_report(get_target("table1"), load_results("table1", RESULTS), seeds=1)
    assert by_place(fewer.records)["addition", "abc", 50]["seeds"] == 1
    assert "- addition abc" not in fewer.markdown


def test_a_seed_that_does_not_interpolate_is_not_missing_where_it_would_be_calibrated():
    results = load_results("table1", RESULTS)
    failed = results["error"].notna()
    assert results[failed][["task", "row", "seed"]].to_numpy().tolist() == [["addition", "abc", 4]]
    results.loc[failed, ["error", "stage", "interpolated"]] = [None, "vanilla", False]
    text = make_report(get_target("table1"), results).markdown
    assert "- addition, 4 of 5 seeds: abc" not in text
    assert "Addition, not calibrated since the first training did not interpolate" in text
    assert "the number of seeds: abc (1)." in text
    results.loc[failed, "interpolated"] = True
    assert "- addition, 4 of 5 seeds: abc" in make_report(get_target("table1"), results).markdown


def test_rivals_say_how_long_both_trainings_of_a_row_took():
    row = {"task": "copy", "row": "transformer, rope, abc", "length": 10, "n": 9, "accuracy": 100.0}
    took = [("vanilla", 0, 5.0), ("calibrated", 0, 2.0), ("vanilla", 1, 40.0), ("vanilla", 2, 7.0)]
    rows = [
        {**row, "stage": stage, "seed": seed, "train_seconds": seconds, "key": f"{stage}{seed}"}
        for stage, seed, seconds in [*took, ("calibrated", 2, 4.0)]
    ]
    results = pd.DataFrame([*rows, *rows])  # more than one length
    made = make_report(get_target("rivals"), results.assign(held_out=100.0, error=None))
    (table,) = made.tables
    assert table.columns[-2] == "seconds"
    (line,) = table.rows
    assert line[0] == "RoPE, encoder-decoder, + ABC" and line[-2] == "9"  # of 7 and 11


def test_table_2_answers_yes_and_no():
    results = load_results("table1", RESULTS)
    found = {
        (r["task"], r["column"]): r for r in make_report(get_target("table2"), results).records
    }
    one = found["addition", "interpolation"]
    assert (one["length"], one["answer"], one["paper_answer"]) == (6, "yes", "yes")
    assert (found["addition", "extrapolation"]["answer"], one["verdict"]) == ("no", "agreement")
    parity = found["parity", "interpolation"]
    assert (parity["length"], parity["answer"]) == (20, "")


def test_the_command_renders_committed_results(abc, tmp_path, runs_root):
    said = abc("reproduce", "table1", "--from-results", "--results", RESULTS, "--json")
    assert said.code == 0 and not runs_root.exists()
    row = by_place(said.json()["rows"])["addition", "abc", 50]
    assert {"task", "row", "length", "paper", "median", "min", "seeds", "n"} <= set(row)
    assert (row["median"], row["seeds"], row["n"]) == (99.998, 4, 10000)

    folder = tmp_path / "out"
    said = abc("reproduce", "table1", "--from-results", "--results", RESULTS, "--out", folder)
    assert said.out.startswith("Table 1")
    assert sorted(p.name for p in folder.iterdir()) == [
        f"table1.{kind}" for kind in ("csv", "html", "md", "tex")
    ]


def test_figure_1_is_drawn_from_its_results(abc, tmp_path):
    (tmp_path / "figure1-seeds.csv").write_bytes((RESULTS / "table1-seeds.csv").read_bytes())
    folder = tmp_path / "out"
    said = abc("reproduce", "figure1", "--from-results", "--results", tmp_path, "--out", folder)
    assert said.code == 0
    assert "![figure1-addition](figure1-addition.png)" in (folder / "figure1.md").read_text()
    assert "<svg" in (folder / "figure1.html").read_text()
    drawn = {path.name for path in folder.glob("figure1-*")}
    names = ("figure1-addition", "figure1-successor")
    assert drawn == {f"{name}.{suffix}" for name in names for suffix in ("pdf", "png")}


def test_bad_input(abc, tmp_path):
    assert "did you mean table1?" in abc("reproduce", "tabel1").error(2)
    assert "--seeds 0: give a whole number from 1" in abc(
        "reproduce", "table1", "--seeds", 0
    ).error(2)
    assert "above 0" in abc("reproduce", "table1", "--budget", -1).error(2)
    assert "choose one of small, quick, paper" in abc(
        "reproduce", "table1", "--preset", "big"
    ).error(2)
    assert "there are no results" in abc("reproduce", "table1", "--results", tmp_path).error(2)
    given = ("reproduce", "table1", "--from-results", "--results", tmp_path)
    assert "there are no results in" in abc(*given).error(2)
    assert "leave out --budget" in abc(*given, "--budget", 3).error(2)
    assert "no row 'xpe' here" in abc("reproduce", "table1", "--row", "xpe").error(2)
    (tmp_path / "table1-seeds.csv").write_text("a,b\n1,2\n")
    assert "cannot be read" in abc(*given).error(1)
    assert "cannot be read" in abc("reproduce", "table2", "--results", tmp_path).error(1)
    with pytest.raises(UsageError):
        get_target("table9")
    with pytest.raises(AbcError):
        load_results("table1", tmp_path)


def test_what_is_printed_as_json_is_valid_json(abc):
    said = abc("reproduce", "table1", "--from-results", "--results", RESULTS, "--json")
    assert "NaN" not in said.out and json.loads(said.out)
