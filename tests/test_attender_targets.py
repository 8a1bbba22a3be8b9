"""Targets of the two location-attention papers: numbers, jobs, tables; only one test trains."""

from __future__ import annotations

import pandas as pd
import pytest

from abc_calib.nn.recurrent.attenders import ATTENDERS
from abc_calib.reproduction import TARGETS, get_target, load_results, make_report, write_report
from abc_calib.reproduction.cells import MEAN, MEASURES, TITLES, verdict
from abc_calib.reproduction.pipeline import NEEDED, collect
from abc_calib.reproduction.targets import Entry
from abc_calib.sweeps import Job, Test, ensure
from abc_calib.sweeps.jobs import with_parents
from tasks import TASKS

NAMES = (
    *("attenders-table2", "attenders-table3", "attenders-table4", "attenders-table7"),
    *("attenders-table9", "attenders-abc"),
    *("location-table3", "location-figure6", "location-figure8"),
)
ATTENDER_TARGETS = {name: TARGETS[name] for name in NAMES}
ROWS = TARGETS["attenders-table2"].known
NUMBERS = {place: number for place, (number, _) in TARGETS["attenders-table2"].printed.items()}
EXTRA = ["key", "preset", "batch", "steps", "steps_taken", "train_seconds"]


def results(row, task, values, *, measure="accuracy", seed=0, n=2000, held_out=100.0):
    """Rows as a sweep gives them: ``values`` by length."""
    about = {"stage": "vanilla", "task": task, "row": row, "seed": seed, "n": n, "preset": "small"}
    about |= {"key": f"{task}-{row}-{seed}", "batch": 32, "steps": 100, "steps_taken": 50 + seed}
    about |= {"held_out": held_out}
    rows = [
        {**about, "train_seconds": 1800.0, "length": length, measure: value}
        for length, value in values.items()
    ]
    return pd.DataFrame(rows, columns=list(dict.fromkeys([*NEEDED, *EXTRA, *MEASURES])))


def by_place(made):
    return {(r["measure"], r["task"], r["row"], r["length"]): r for r in made.records}


# The papers


def test_every_cell_of_the_tables_has_its_number():
    counts = {}
    for measure, task, row, _ in NUMBERS:
        counts[measure, row] = counts.get((measure, row), 0) + 1
        assert row in ROWS and row in ATTENDERS and task in (*TASKS, MEAN)
    assert counts["edit_distance", "mono"] == 24 and counts["attention_loss", "additive"] == 6
    assert counts["accuracy", "one_step"] == 24 and counts["accuracy", "mix_one_step"] == 25
    assert NUMBERS["accuracy", "lookup", "mono", 11] == 29.9
    assert NUMBERS["accuracy", "inv_reverse_recopy", "mix_mono_pr", 100] == 42.1
    assert NUMBERS["accuracy", "copy", "no_step2", 30] == 1.4
    assert NUMBERS["edit_distance", "reverse_recopy", "content", 100] == 249.3
    assert NUMBERS["attention_loss", MEAN, "mix", 11] == 6.7


def test_every_number_of_a_paper_stands_in_a_target():
    shown = set()
    for target in ATTENDER_TARGETS.values():
        nothing = pd.DataFrame(columns=NEEDED)
        shown |= {place for place, r in by_place(make_report(target, nothing)).items() if r["paper"]
                  is not None}  # fmt: skip
    assert set(NUMBERS) == shown


@pytest.mark.parametrize(
    ("measure", "row", "theirs", "ours", "said"),
    [
        ("accuracy", "mono", 29.9, 30.9, "agreement"),
        ("accuracy", "mono", 29.9, 99.0, "improvement"),
        ("accuracy", "relative", 0.4, 99.0, "disagreement"),
        ("accuracy", "mono", 100.0, 98.9, "disagreement"),
        ("edit_distance", "content", 90.7, 99.0, "agreement"),
        ("edit_distance", "one_step", 86.0, 3.0, "improvement"),
        ("edit_distance", "one_step", 0.0, 3.0, "disagreement"),
        ("attention_loss", "mix", 2.1, 0.5, "improvement"),
        ("attention_loss", "additive", 34.8, 3.0, "disagreement"),
        ("accuracy", "mono", None, 50.0, ""),
    ],
)
def test_verdicts_know_which_way_is_better(measure, row, theirs, ours, said):
    assert verdict(theirs, ours, ROWS[row].own, MEASURES[measure]) == said


def test_a_printed_deviation_is_room_to_agree():
    printed = get_target("attenders-table3").printed
    for row, ours, said in (
        ("mix_one_step", 38.0, "agreement"),
        ("bi_relative", 12.0, "improvement"),
    ):
        theirs, spread = printed["accuracy", "scan", row, 48]
        assert verdict(theirs, ours, ROWS[row].own, spread=spread) == said
    assert printed["accuracy", "scan", "mix_one_step", 48] == (29.51, 9.46)


# Jobs


def test_jobs_are_possible_shared_and_begin_with_seed_0():
    entries = {name: target.entries() for name, target in ATTENDER_TARGETS.items()}
    for found in entries.values():
        assert [entry.seed for entry in found] == sorted(entry.seed for entry in found)
        assert {entry.task for entry in found} <= set(TITLES)
    assert {name: len(found) for name, found in entries.items()} == {
        "attenders-table2": 48 + 4 * 4 * 6,
        "attenders-table3": 6,
        "attenders-table4": 32 + 4 * 6,
        "attenders-table7": 96,
        "attenders-table9": 48 + 4 * 4 * 6,
        "attenders-abc": 2 * 5 * 4 + 3 * (1 + 4 * 5) + 5,
        "location-table3": 18,
        "location-figure6": 2,
        "location-figure8": 4,
    }
    assert len(get_target("attenders-table2").entries(seeds=2)) == 96
    second, ninth = entries["attenders-table2"], entries["attenders-table9"]
    assert second == ninth
    one_of_each = {(e.task, e.row): e.job for found in entries.values() for e in found}
    probing = {e.task for e in entries["attenders-table2"]}
    assert len(probing) == 8
    checked = [job for (task, row), job in one_of_each.items() if row in ("one_step", "mix")]
    assert {job.task for job in checked} == {*probing, "noisy_lookup_single", "addition"}
    for job in checked:
        job.check()
    (scan, *_) = entries["attenders-table3"]
    assert [(t.set, t.length, t.n) for t in scan.job.measures] == [("test", 48, 3920)]
    paper_job = get_target("location-figure6").entries(preset="paper")[0].job
    assert (paper_job.config.train.monitor, paper_job.config.train.teacher_forcing) == ("loss", 0.2)


def test_tables_of_one_training_share_its_key():
    names = ("location-table3", "location-figure8")
    table, figure = (get_target(name).entries() for name in names)
    jobs = [entry.job for entry in (*table, *figure) if entry.task == "reverse_lookup"]
    assert len(jobs) == 8 and len(with_parents(jobs)) == 6


def test_named_sets_and_all_measures_are_collected_from_the_jobs_folders(tmp_path):
    quick = {"model": "gru", "attender": "mix", "width": 8, "embedding": 4, "steps": 1}
    job = Job(task="lookup", options=quick, tests=(Test(length=6, n=5), Test(length=7, n=5)))
    ensure(job, tmp_path)
    found = collect([Entry("lookup", "mix", 0, job)], tmp_path)
    target = get_target("location-table3")
    made = make_report(target, found)
    records = by_place(made)
    assert records["attention_loss", "lookup", "mix", 7]["n"] == 5
    assert records["attention_loss", "lookup", "mix", 7]["median"] >= 0
    assert records["before_end", "lookup", "mix", 6]["seeds"] == 1
    assert records["attention_loss", MEAN, "mix", 6]["median"] is None
    write_report(made, found, tmp_path / "out")
    again = make_report(target, load_results("location-table3", tmp_path / "out"))
    assert again.records == made.records
    assert "1 to 1 taken; 1 models trained" in made.markdown


# Rendering


def test_cells_are_medians_and_worst_seeds_beside_the_paper():
    parts = [
        results("mono", "lookup", {7: 100.0, 9: 98.5, 11: value}, seed=seed)
        for seed, value in enumerate((80.0, 99.996, 90.0))
    ]
    parts.append(results("relative", "copy", {15: 100.0, 30: 100.0, 100: 40.0}))
    made = make_report(get_target("attenders-table2"), pd.concat(parts))
    found = by_place(made)["accuracy", "lookup", "mono", 11]
    assert found == {
        "measure": "accuracy", "task": "lookup", "row": "mono", "length": 11, "paper": 29.9,
        "median": 90.0, "mean": 89.9987, "min": 80.0, "max": 99.996, "seeds": 3, "n": 2000,
        "verdict": "improvement",
    }  # fmt: skip
    text = made.markdown
    assert "| Lookup | MonoAttn | 3 | 100 / 100 (100) = | 98.5 / 98.5 (98) = | 90 / 80 " in text
    assert "40 / 40 (100) ≠" in text and "Relative at 100 (40 against 100)" in text
    assert "Of 4 cells that the paper has at 100, 3 are at 100 here and 0 within a point" in text
    assert "- copy, 1 of 5 seeds: relative\n" in text and "- lookup, 3 of 5 seeds: mono\n" in text
    assert "50 to 52 taken; 4 models trained in 2.0 hours" in text
    assert made.latex.count(r"\toprule") == 2 and set(made.figures) == {
        "attenders-table2-copy", "attenders-table2-lookup",
    }  # fmt: skip
    first = make_report(get_target("attenders-table2"), pd.concat(parts), 1)
    assert "- copy, 1 of" not in first.markdown and "- lookup, 3 of" not in first.markdown


def test_cells_that_the_paper_has_at_100_are_counted_again_over_the_seeds_that_interpolate():
    parts = [
        results("one_step", "copy", {15: low, 30: 99.0, 100: 0.0}, seed=seed, held_out=learned)
        for seed, (low, learned) in enumerate([(10.0, 99.8), (10.0, 99.8), (100.0, 99.9)])
    ]
    notes = make_report(get_target("attenders-table2"), pd.concat(parts)).notes
    assert [one for one in notes if " at 100 here and 1 within a point, over " in one] == [
        "Of 3 cells that the paper has at 100, 0 are at 100 here and 1 within a point, over all "
        "seeds.",
        "Of 3 cells that the paper has at 100, 1 are at 100 here and 1 within a point, over the "
        "seeds that interpolate, at 99.9 % of the held-out problems of their training.",
    ]


def test_of_distances_the_largest_is_the_worst():
    parts = [
        results("one_step", "inv_recopy", {100: value}, measure="edit_distance", seed=seed)
        for seed, value in enumerate((80.0, 85.0, 96.25))
    ]
    made = make_report(get_target("attenders-table9"), pd.concat(parts))
    assert "85 / 96.25 (86) =" in made.markdown
    (figure,) = made.figures.values()
    assert figure.axes[0].get_ylim()[0] == 0 and figure.axes[0].get_ylabel() == "edit distance"


def test_the_mean_over_tasks_needs_all_of_them():
    tasks = ("lookup", "reverse_lookup", "noisy_lookup_single")
    parts = [
        results("mix", task, {6: loss, 7: loss}, measure="attention_loss", seed=seed)
        for seed in range(2)
        for task, loss in zip(tasks, (1.0, 2.0, 6.0 + 3 * seed), strict=True)
        if (task, seed) != ("lookup", 1)
    ]
    made = make_report(get_target("location-table3"), pd.concat(parts))
    found = by_place(made)
    mean = found["attention_loss", MEAN, "mix", 6]
    assert (mean["median"], mean["seeds"], mean["paper"]) == (3.0, 1, 2.1)
    assert found["attention_loss", "noisy_lookup_single", "mix", 6]["median"] == 7.5
    assert "Mean of the tasks | Mix | 1 | 3 / 3 (2.1) ≠" in made.markdown


def test_a_calibrated_model_is_a_row_without_what_it_comes_from():
    job = get_target("attenders-abc").entries(seeds=1)[1].job
    assert job.config.stage == "calibrated" and job.parent.config.kind == "transformer"
    first = results("abc", "copy", {10: 99.0, 100: 0.0})
    calibrated = results("abc", "copy", {10: 100.0, 100: 100.0}).assign(stage="calibrated")
    made = make_report(get_target("attenders-abc"), pd.concat([first, calibrated]))
    assert by_place(made)["accuracy", "copy", "abc", 100]["min"] == 100.0
    assert "| Copy | Transformer + ABC | 1 | 100 / 100 | – | – | 100 / 100 | – |" in made.markdown


def test_the_command_renders_results_and_draws_figures(abc, tmp_path):
    table = pd.concat(
        [
            results("location", "lookup", {6: 100.0, 9: 60.0}),
            results("location", "lookup", {6: 100.0, 9: 99.0}, measure="before_end"),
        ]
    )
    table.to_csv(tmp_path / "location-figure6-seeds.csv", index=False)
    given = ("reproduce", "location-figure6", "--from-results", "--results", tmp_path)
    said = abc(*given, "--out", tmp_path / "out")
    assert said.out.startswith("Dubois et al. (2020), figures 6 and 7")
    words = [line.split() for line in said.out.splitlines()]
    assert any(line[:5] == ["Lookup", "Transformer", "0", "–", "(100)"] for line in words)
    drawn = {path.stem for path in (tmp_path / "out").glob("*.pdf")}
    assert drawn == {"location-figure6-lookup", "location-figure6-lookup-before_end"}
    rows = abc(*given, "--json").json()["rows"]
    assert [r["median"] for r in rows if r["row"] == "location"][:4] == [100.0, None, None, 60.0]
    assert "did you mean attenders-table2?" in abc("reproduce", "attenders-tabel2").error(2)
