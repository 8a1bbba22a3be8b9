"""The committed pages of reports/ are what their scripts make of the committed rows."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

REPORTS = Path(__file__).parents[1] / "reports"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, REPORTS / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_the_bench_is_made_of_its_rows() -> None:
    table = pd.read_csv(REPORTS / "bench.csv")
    assert script("bench").report(table) == (REPORTS / "bench.md").read_text()


def test_the_pages_of_certificates_are_made_of_their_rows() -> None:
    for name, text in script("certified").pages().items():
        assert text == (REPORTS / f"{name}.md").read_text()


def test_the_page_of_trust_is_made_of_its_tables() -> None:
    assert script("trust").page() == (REPORTS / "trust.md").read_text()


def test_the_page_of_seeds_is_made_of_its_rows() -> None:
    rows, recipe = (pd.read_csv(REPORTS / f"{name}.csv") for name in ("seeds", "recipe"))
    recipe = recipe[recipe.task.isin(rows.task)]
    assert script("figures").report(rows, recipe) == (REPORTS / "seeds.md").read_text()


def test_the_page_of_seeds_has_medians_worst_seeds_and_certificates() -> None:
    rows = pd.DataFrame(
        {"task": "parity", "seed": seed, "stage": stage, "set": "random", "length": length}
        | {"accuracy": 100.0 - seed}
        for seed in range(2)
        for stage in ("before", "after")
        for length in script("figures").LENGTHS
    )
    recipe = pd.DataFrame(
        {"task": "parity", "outcome": outcome, "windows": 38, "margin": 8.2, "first": seconds}
        | {"calibrate": 2, "certify": 1, "total": seconds + 3}
        for outcome, seconds in (("certified", 10), ("refuted", 20))
    )
    text = script("figures").report(rows, recipe)
    assert "| parity | after | random | 2 | 99.5 / 99 | 99.5 / 99 |" in text
    assert "| parity | 1 of 2 | 38 | 8.20 | 15 / 20 | 2 / 2 | 1 / 1 | 18 / 23 |" in text


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
