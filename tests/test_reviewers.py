"""The reviewers' questions: answers are made from the numbers; nothing trains."""

from __future__ import annotations

import pandas as pd
import pytest

from abc_calib.reproduction import get_target
from abc_calib.reproduction.layouts import measure
from abc_calib.reproduction.pipeline import NEEDED
from abc_calib.reproduction.report import Study

ASKED = (6, 10, 15, 20, 50)
REVIEWERS = get_target("reviewers")
CALIBRATED, ALONE = "encoder layers: 2", "RPE alone: parity"


def measured(variant, results):
    return measure(Study(REVIEWERS, results), variant)


def results_of(variant, accuracies, held_out=99.9, seed=0, error=None, stage="calibrated"):
    """Rows as a sweep gives them: those of the first training, then its calibrated model's."""
    task = next(task for task, row in REVIEWERS.places if row == variant)
    about = {"row": variant, "task": task, "seed": seed, "n": 1000}
    first = [
        {**about, "stage": "vanilla", "length": 6, "accuracy": 99.0, "held_out": held_out}
    ] if stage == "calibrated" else []  # fmt: skip
    rows = [
        {**about, "stage": stage, "length": length, "accuracy": accuracy, "held_out": held_out}
        for length, accuracy in zip(ASKED, accuracies, strict=False)
    ]
    failed = [{**about, "stage": stage, "error": error}] if error else []
    return pd.DataFrame([*first, *rows, *failed], columns=NEEDED)


@pytest.mark.parametrize(
    ("variant", "results", "answer"),
    [
        (CALIBRATED, ([],), "not measured"),
        (
            CALIBRATED, ([100, 100, 100, 100, 99.5],),
            "goes to 50 digits: 99.5 % or more at every length",
        ),
        (CALIBRATED, ([100, 98, 70, 40, 3],), "fails from 10 digits on: 98 %, 3 % at 50"),
        (CALIBRATED, ([100, 100, 100, 100, 20.55],), "fails from 50 digits on: 20.55 %"),
        (
            CALIBRATED, ([], 43.2, 0, "too low"),
            "does not interpolate (43.2 % held out): not calibrated",
        ),
        (CALIBRATED, ([], 99.9, 0, "no line"), "cannot be calibrated: no line"),
        (ALONE, ([0] * 5, 51.0, 0, None, "vanilla"), "does not interpolate (51 % held out)"),
        (
            ALONE, ([100, 0, 0, 0, 0], 100.0, 0, None, "vanilla"),
            "fails from 10 digits on: 0 %, 0 % at 50",
        ),
    ],
)  # fmt: skip
def test_answers_are_made_from_the_numbers(variant, results, answer):
    assert measured(variant, results_of(variant, *results)).answer == answer


def test_an_answer_needs_every_seed():
    good, bad = (
        results_of(CALIBRATED, [100] * 5),
        results_of(CALIBRATED, [100, 100, 100, 100, 50], seed=1),
    )
    one = measured(CALIBRATED, pd.concat([good, bad]))
    assert (one.seeds, one.cells[-1].median, one.cells[-1].min, one.exact) == (2, 75.0, 50.0, False)


def test_a_model_that_does_not_interpolate_counts_as_not_calibrated():
    one = measured(CALIBRATED, results_of(CALIBRATED, [], 43.0))
    assert (one.seeds, one.failed) == (1, 1)
    assert one.answer == "does not interpolate (43 % held out): not calibrated"


def test_an_answer_says_that_only_some_seeds_fail():
    parts = [results_of(CALIBRATED, [100] * 5, seed=seed) for seed in (0, 1)]
    parts.append(results_of(CALIBRATED, [100, 100, 98, 98, 93.7], seed=2))
    assert measured(CALIBRATED, pd.concat(parts)).answer == (
        "fails from 15 digits on in the worst seed: 98 %, 93.7 % at 50"
    )


def test_an_answer_says_how_many_seeds_were_not_calibrated():
    good = results_of(CALIBRATED, [100] * 5)
    bad = results_of(CALIBRATED, [], 90.0, seed=1, error="not interpolated")
    one = measured(CALIBRATED, pd.concat([good, bad]))
    assert (one.seeds, one.failed, one.exact) == (2, 1, False)
    assert one.answer == (
        "1 of 2 seeds not calibrated; the rest goes to 50 digits: 100 % at every length"
    )


def test_the_reviewers_table_is_rendered_from_results(abc, tmp_path):
    entries = get_target("reviewers").entries(seeds=1)
    names = [entry.row for entry in entries]
    assert len(names) == len(set(names)) and {"encoder layers: 2", "RPE alone: parity"} <= set(
        names
    )
    depths = [f"encoder layers: {n}" for n in range(3)]
    parts = [results_of(v, [100, 100, 100, 100, 100 - n]) for n, v in enumerate(depths)]
    pd.concat(parts).to_csv(tmp_path / "reviewers-seeds.csv", index=False)
    said = abc("reproduce", "reviewers", "--from-results", "--results", tmp_path)
    cells = "100 / 100 " * 4 + "98 / 98"
    lines = [" ".join(line.split()) for line in said.out.splitlines()]
    assert any(line.startswith(f"encoder layers 2 addition ABC 1 99.9 {cells}") for line in lines)
    assert "Encoder layers: to 50 digits with 0, 1; not with 2." in said.out
    assert "- addition, 0 of 5 seeds: the default: none; decoder layers: 1; decoder" in said.out
    found = abc("reproduce", "reviewers", "--from-results", "--results", tmp_path, "--json").json()
    rows = [r for r in found["rows"] if r["change"] == "2" and r["question"] == "encoder layers"]
    assert [(r["length"], r["min"], r["seeds"]) for r in rows] == [
        (6, 100.0, 1), (10, 100.0, 1), (15, 100.0, 1), (20, 100.0, 1), (50, 98.0, 1),
    ]  # fmt: skip
