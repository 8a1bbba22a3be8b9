"""The committed pages of reports/ are what their scripts make of the committed rows."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

from abc_calib.sweeps import read_sweep

REPORTS = Path(__file__).parents[1] / "reports"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, REPORTS / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "name",
    [
        *("attender_speed", "cost", "decoding", "direction", "paper_protocol", "row_schemes"),
        *("scheme_cost", "seeds", "verdicts"),
    ],
)
def test_a_committed_page_is_made_of_its_rows(name: str) -> None:
    rows = pd.read_csv(REPORTS / f"{name}.csv")
    assert script(name).report(rows) == (REPORTS / f"{name}.md").read_text()


def test_run_times_are_those_of_the_committed_results() -> None:
    run_time = script("run_time")
    paths = [*(REPORTS / "reproduction").glob("*-seeds.csv")]
    paths += [REPORTS / "batches.csv", REPORTS / "paper_schedule.csv"]
    assert run_time.page(run_time.summary(paths)) == (REPORTS / "run_time.md").read_text()


def test_the_rows_of_a_sweep_say_how_many_samples_and_what_was_timed() -> None:
    rows = pd.DataFrame(
        [
            {"key": "k", "task": "parity", "stage": stage, "set": "random", "seed": seed}
            | {"length": 6, "n": 1000, "accuracy": 100.0 - seed, "train_seconds": 50.0}
            for seed in range(2)
            for stage in ("vanilla", "calibrated")
        ]
    )
    text = script("seeds").report(rows)
    assert "1,000 samples a length, seed and kind of input.\n" in text
    assert "for the vanilla rows, retraining for the calibrated ones" in text
    assert "| parity | calibrated | random | 2 | 99.5 / 99 |  |" in text
    assert len(read_sweep(REPORTS / "seeds.toml")) == 4 * 5
