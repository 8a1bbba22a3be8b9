"""The Chomsky benchmark: its laws against our rules, its maps, its table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from conftest import CALIBRATED, run_command

from abc_calib.errors import UsageError
from abc_calib.evaluation import Evaluator
from abc_calib.reproduction import chomsky
from abc_calib.runs import Run
from tasks import get_task

KNOWN = chomsky.TASKS


@pytest.mark.parametrize("name", KNOWN)
def test_answers_of_the_benchmark_are_those_of_our_rules(name):
    one, rng = KNOWN[name], np.random.default_rng(0)
    task = get_task(one.task, **one.options)
    for n in [*range(3, 12), 40] * 4:
        source, answer = one.law(rng, n)
        assert one.read(task.solve(source), n) == answer


def test_shares_of_right_symbols_are_counted_as_the_benchmark_does(trained):
    """Ends count, and what is written behind the end of the right answer does not."""
    run = Run.open(trained.root / CALIBRATED)
    one = KNOWN["reverse_string"]._replace(read=lambda answer, n: [*answer])
    drawn = [("12", [*"13"]), ("8", [*"9"]), ("9", [*"1"]), ("9", [*"91"])]
    shares = chomsky._answers(Evaluator(run.load_model()), run.data, one, drawn, [2, 1, 1, 1])
    assert shares == pytest.approx([1, 1, 1 / 2, 1 / 3])


def test_the_table_has_fifteen_rows_and_says_what_is_missing():
    row = {"row": "parity_check", "task": "automaton", "seed": 0, "stage": "calibrated"}
    row |= {"trained": "12 words", "outcome": "certified", "windows": 8, "margin": 1.0}
    row |= {"length": 500, "n": 460, "accuracy": 100.0, "per_symbol": 100.0, "error": None}
    made = chomsky.report(pd.DataFrame([row]))
    (table,) = made.tables
    assert len(table.rows) == 15 and len(made.incomplete) == 14
    assert "1 of 1" in made.markdown and "solve_equation: not run" in made.markdown
    with pytest.raises(UsageError, match="no row 'brackets' here: choose of even_pairs; "):
        chomsky.reproduce(rows=["brackets"])


@pytest.mark.slow
def test_a_certified_model_is_kept_and_tested_at_every_length(tmp_path, monkeypatch):
    monkeypatch.setattr(chomsky, "LENGTHS", range(41, 61))
    asked = ("reproduce", "chomsky", "--row", "parity_check", "--jobs", tmp_path / "models")
    first = run_command(*asked, "--out", tmp_path / "out", "--json")
    monkeypatch.setattr(chomsky, "_measured", None)  # what was measured is kept
    again = run_command(*asked, "--out", tmp_path / "out", "--json")
    assert again.json() == first.json()
    results = pd.read_csv(tmp_path / "out" / "chomsky-seeds.csv")
    assert results["outcome"].tolist() == ["certified"]
    assert results["n"].tolist() == [20] and results["accuracy"].tolist() == [100.0]
