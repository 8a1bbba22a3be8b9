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
    ("name", "made", "rows"),
    [("figures", "report", "seeds"), ("bench", "report", "bench")],
)
def test_a_committed_page_is_made_of_its_rows(name: str, made: str, rows: str) -> None:
    table = pd.read_csv(REPORTS / f"{rows}.csv")
    assert getattr(script(name), made)(table) == (REPORTS / f"{rows}.md").read_text()


def test_the_pages_of_certificates_are_made_of_their_rows() -> None:
    for name, text in script("certified").pages().items():
        assert text == (REPORTS / f"{name}.md").read_text()


def test_the_page_of_trust_is_made_of_its_tables() -> None:
    assert script("trust").page() == (REPORTS / "trust.md").read_text()


def test_the_rows_of_a_sweep_say_how_many_samples_and_what_was_timed() -> None:
    rows = pd.DataFrame(
        [
            {"key": "k", "task": "parity", "stage": stage, "set": "random", "seed": seed}
            | {"length": 6, "n": 1000, "accuracy": 100.0 - seed, "train_seconds": 50.0}
            for seed in range(2)
            for stage in ("vanilla", "calibrated")
        ]
    )
    text = script("figures").report(rows)
    assert "At least 1,000 samples per length, seed and kind of input" in text
    assert "for the vanilla rows, retraining for the calibrated ones" in text
    assert "| parity | calibrated | random | 2 | 99.5 / 99 |  |" in text
    assert len(read_sweep(REPORTS / "seeds.toml")) == 4 * 5


def test_lines_are_drawn_where_asked_and_help_makes_nothing(tmp_path, monkeypatch, capsys) -> None:
    """Committed figures stay as they are."""
    figures = script("figures")
    monkeypatch.setattr(figures, "lines", lambda run: figures.new_figure(1, 1))
    monkeypatch.setattr(figures.Run, "open", lambda run: run)
    monkeypatch.chdir(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in (REPORTS / "figures").iterdir()}
    figures.main(["--lines", "run", "out.png"])
    assert [path.name for path in tmp_path.iterdir()] == ["out.png"]
    for arguments in (["--help"], ["lines", "run"], ["--models", "--help"], ["--models", "none"]):
        with pytest.raises(SystemExit):
            figures.main(arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["out.png"]
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_bench_compares_with_the_first_of_its_kind() -> None:
    bench = script("bench")
    works = {"short": lambda: None, "long": lambda: sum(range(10**5))}
    table = bench.measured({"sums": works}, 3).assign(bench="toy", peak=1.0)
    assert table.who.tolist() == ["short", "long"] and table.ratio[0] == 1 < table.ratio[1]
    assert "## Toy" in bench.report(table) and "| sums | short |" in bench.report(table)
