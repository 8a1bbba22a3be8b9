"""The paper's tables beside ours: numbers, verdicts, files; rendering trains nothing."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from abc_calib.config import WorkOptions
from abc_calib.errors import UsageError
from abc_calib.nn.recurrent.attenders import ATTENDERS
from abc_calib.reproduction import (
    TARGETS,
    chomsky,
    get_target,
    load_results,
    make_report,
    pipeline,
    reproduce,
)
from abc_calib.reproduction.cells import MEAN, MEASURES, TITLES
from abc_calib.reproduction.pipeline import NEEDED
from abc_calib.runs import Run
from abc_calib.sweeps.jobs import with_parents
from tasks import TASKS

RESULTS = Path(__file__).parent / "results"
COMMITTED = Path(__file__).parents[1] / "reports" / "reproduction"
LENGTHS = [6, 10, 15, 20, 50]
NAMES = (
    *("attenders-table2", "attenders-table3", "attenders-table4", "attenders-table6"),
    *("attenders-table7", "attenders-table8", "attenders-table9", "attenders-abc"),
    *("location-table3", "location-figure6", "location-figure8"),
)
ATTENDER_TARGETS = {name: TARGETS[name] for name in NAMES}
ROWS = TARGETS["attenders-table2"].all_rows
NUMBERS = TARGETS["attenders-table2"].printed["value"].to_dict()


def by_place(rows):
    return {(row["task"], row["row"], row["length"]): row for row in rows}


def test_the_paper_has_a_number_for_every_length_of_its_rows():
    target = get_target("table1")
    numbers = target.printed.loc["accuracy"]["value"].to_dict()
    assert len(numbers) == 25 * len(LENGTHS) - 1
    assert numbers["addition", "abc", 50] == 99.8
    assert numbers["multiplication", "window", 15] == 0.19
    assert ("addition", "rpe", 50) not in numbers and ("parity", "vanilla", 6) not in numbers
    assert ("addition", "abc", 100) not in numbers
    assert {row for _, row, _ in numbers} == set(target.all_rows)


def test_accuracies_are_never_rounded_up_and_verdicts_know_which_way_is_better():
    texts = [MEASURES["accuracy"].shown(x) for x in (100.0, 99.996, 99.5, 0.19, 0.0)]
    assert texts == ["100", "99.99", "99.5", "0.19", "0"]
    nothing = float("nan")
    for measure, theirs, ours, own, said in (
        ("accuracy", 100.0, 99.0, True, "agreement"),
        ("accuracy", 6.0, 100.0, True, "improvement"),
        ("accuracy", 1.3, 100.0, False, "disagreement"),
        ("accuracy", 100.0, 98.9, True, "disagreement"),
        ("accuracy", 21.3, 0.5, False, "disagreement"),
        ("accuracy", nothing, 100.0, True, ""),
        ("accuracy", 100.0, nothing, True, ""),
        ("edit_distance", 90.7, 99.0, False, "agreement"),
        ("edit_distance", 86.0, 3.0, True, "improvement"),
        ("edit_distance", 0.0, 3.0, True, "disagreement"),
        ("attention_loss", 34.8, 3.0, False, "disagreement"),
    ):
        assert MEASURES[measure].verdict(theirs, ours, own) == said, (measure, theirs, ours)
    # a printed deviation is room to agree
    printed = get_target("attenders-table3").printed
    assert [*printed.loc["accuracy", "scan", "mix_one_step", 48]] == [29.51, 9.46]
    for row, found, said in (
        ("mix_one_step", 38.0, "agreement"),
        ("bi_relative", 12.0, "improvement"),
    ):
        number, spread = printed.loc["accuracy", "scan", row, 48]
        assert MEASURES["accuracy"].verdict(number, found, ROWS[row].proposed, spread) == said


def test_files_name_what_there_is():
    """Numbers of rows that are there, names of targets."""
    for name, target in TARGETS.items():
        assert name == target.name and {task for task, _ in target.places} <= set(TITLES)
        same = [other.all_rows for other in TARGETS.values() if other.numbers == target.numbers]
        assert {row for _, _, row, _ in target.printed.index} <= set().union(*same)
        for rule in target.tests:
            assert set(rule.rows) <= set(target.all_rows)
            assert rule.lengths is None or rule.lengths == tuple(sorted(rule.lengths))


@pytest.mark.parametrize("every", [30, pytest.param(1, marks=pytest.mark.slow)])
def test_jobs_of_the_paper_and_its_reviewers_are_possible(every):
    names = ("table1", "table2", "table3", "figure1", "reviewers", "rivals", "table3-padded")
    entries = [entry for name in names for entry in get_target(name).entries(seeds=1)]
    for job in with_parents([entry.job for entry in entries[::every]]):
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
    assert {e.job.preset for e in table3} == {"default"}


def test_only_some_rows_are_run(tmp_path):
    target = get_target("table1")
    work = WorkOptions(jobs=str(tmp_path), budget=1e-9)
    _, outcomes = reproduce(target, work, rows=["rope"], seeds=1)
    assert {o.job.options["scheme"] for o in outcomes} == {"rope"}
    with pytest.raises(UsageError, match="choose of vanilla; alibi"):
        reproduce(target, work, rows=["scheme"], seeds=1)


@pytest.mark.parametrize("name", sorted(p.stem[:-6] for p in COMMITTED.glob("*-seeds.csv")))
def test_the_committed_pages_are_what_their_results_render_to(name):
    results = load_results(name, COMMITTED)
    if name == chomsky.NAME:
        made = chomsky.report(results)
    else:
        made = make_report(get_target(name), results)
    table = pd.DataFrame(made.records).to_csv(index=False)
    for suffix, text in (("md", made.markdown), ("tex", made.latex), ("csv", table)):
        assert (COMMITTED / f"{name}.{suffix}").read_bytes() == text.encode()
    assert all((COMMITTED / f"{figure}.png").is_file() for figure in made.figures)


def test_other_failures_of_a_row_are_listed_next_to_its_refused_seeds():
    target = get_target("table1")
    place = {"row": "abc", "task": "addition"}
    results = pd.DataFrame(
        [
            {**place, "seed": 0, "stage": "vanilla", "length": 6, "interpolated": False},
            {**place, "seed": 0, "stage": "calibrated", "error": "did not interpolate"},
            {**place, "seed": 1, "stage": "calibrated", "error": "out of memory"},
        ]
    )
    report = make_report(target, results)
    assert "addition abc seed 1: out of memory" in report.incomplete
    assert not any("did not interpolate" in line for line in report.incomplete)
    assert any(note.endswith("interpolate (number of seeds): abc (1).") for note in report.notes)


def test_the_command_renders_committed_results(abc, tmp_path, runs_root, monkeypatch):
    monkeypatch.setattr(pipeline, "RESULTS", RESULTS)
    said = abc("reproduce", "table1", "--from-results", "--json")
    assert said.code == 0 and not runs_root.exists()
    row = by_place(said.json()["rows"])["addition", "abc", 50]
    assert {"task", "row", "length", "paper", "median", "min", "seeds", "n"} <= set(row)
    assert (row["median"], row["seeds"], row["n"]) == (99.998, 4, 10000)

    (tmp_path / "figure1-seeds.csv").write_bytes((RESULTS / "table1-seeds.csv").read_bytes())
    folder = tmp_path / "out"
    monkeypatch.setattr(pipeline, "RESULTS", tmp_path)
    words = ("--from-results", "--out", folder, "--width", 6.3)
    said = abc("reproduce", "figure1", *words)
    assert said.code == 0 and said.out.startswith("Figure 1")
    assert "![figure1-addition](figure1-addition.png)" in (folder / "figure1.md").read_text()
    assert {path.name for path in folder.iterdir()} == {
        *(f"figure1.{kind}" for kind in ("csv", "md", "tex")),
        *(
            f"figure1-{task}.{kind}"
            for task in ("addition", "successor")
            for kind in ("pdf", "png")
        ),
    }
    assert Image.open(folder / "figure1-addition.png").width == 6.3 * 300


def test_a_figure_of_one_model_takes_few_options(abc, tmp_path):
    words = ("reproduce", "figure7", "--jobs", tmp_path / "models", "--out", tmp_path / "out")
    for more in (("--seeds", 2), ("--row", "abc"), ("--from-results",)):
        assert "leave it out" in abc(*words, *more).error(2)
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
def test_a_figure_of_one_model_is_drawn_of_a_model_made_from_nothing(abc, tmp_path):
    words = ("reproduce", "figure7", "--jobs", tmp_path / "models", "--out", tmp_path / "out")
    said = abc(*words, "--width", "neurips", "-q")
    assert said.code == 0
    drawn = sorted((tmp_path / "out").iterdir())
    assert said.out.split() == [str(path) for path in drawn]
    assert [path.name for path in drawn] == ["figure7.pdf", "figure7.png"]
    assert Image.open(drawn[1]).width == 5.5 * 300
    assert Run.open(tmp_path / "models" / "successor-seed0-vanilla").config.stage == "vanilla"


def test_results_that_are_missing_or_none_are_told(abc, tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline, "RESULTS", tmp_path)
    given = ("reproduce", "table1", "--from-results")
    assert "there are no results in" in abc(*given).error(2)
    file = tmp_path / "table1-seeds.csv"
    file.write_text("a,b\n1,2\n")
    assert "cannot be read" in abc(*given).error(1)
    # all jobs were stopped: nothing was measured yet, and the next call goes on
    file.write_text("row,task,seed,stage,error\nx,copy,0,vanilla,stopped\n")
    assert load_results("table1", tmp_path)["error"].tolist() == ["stopped"]


# The location-attention papers


def test_every_cell_of_the_tables_has_its_number():
    counts = {}
    for kind, task, row, _ in NUMBERS:
        counts[kind, row] = counts.get((kind, row), 0) + 1
        assert row in ROWS and row in ATTENDERS and task in (*TASKS, MEAN)
    assert counts["edit_distance", "mono"] == 24 and counts["attention_loss", "additive"] == 6
    assert counts["accuracy", "one_step"] == 24 + 8 + 1 and counts["accuracy", "mix_one_step"] == 25
    assert NUMBERS["accuracy", "lookup", "mono", 11] == 29.9
    assert NUMBERS["accuracy", "inv_reverse_recopy", "mix_mono_pr", 100] == 42.1
    assert NUMBERS["accuracy", "copy", "no_step2", 30] == 1.4
    assert NUMBERS["edit_distance", "reverse_recopy", "content", 100] == 249.3
    assert NUMBERS["attention_loss", MEAN, "mix", 11] == 6.7


def test_every_number_of_a_paper_stands_in_a_target():
    nothing, found = pd.DataFrame(columns=NEEDED), set()
    for target in ATTENDER_TARGETS.values():
        rows = make_report(target, nothing).records
        found |= {
            (r["measure"], r["task"], r["row"], r["length"]) for r in rows if r["paper"] is not None
        }
    assert set(NUMBERS) == found


def test_jobs_are_possible_shared_and_begin_with_seed_0():
    entries = {name: target.entries() for name, target in ATTENDER_TARGETS.items()}
    for found in entries.values():
        assert [entry.seed for entry in found] == sorted(entry.seed for entry in found)
        assert {entry.task for entry in found} <= set(TITLES)
    assert len(entries["attenders-table2"]) == 48 + 4 * 4 * 6
    assert len(entries["attenders-table7"]) == 96
    assert entries["attenders-table2"] == entries["attenders-table9"]
    one_of_each = {(e.task, e.row): e.job for found in entries.values() for e in found}
    for job in [job for (_, row), job in one_of_each.items() if row == "mix"][::3]:
        job.check()
    (scan, *_) = entries["attenders-table3"]
    assert [(t.set, t.length, t.n) for t in scan.job.measures] == [("test", 48, 3920)]
    paper_job = get_target("location-figure6").entries()[0].job
    assert (paper_job.config.train.monitor, paper_job.config.train.teacher_forcing) == ("loss", 0.2)
