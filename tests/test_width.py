"""What commands print fits a terminal of 80 columns."""

from __future__ import annotations

import io
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import run_command
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from abc_calib import stages
from abc_calib.runs import folders
from abc_calib.text import Table, visible
from cli import command, console, sweep

WIDTH = 80
COMMANDS = (
    ("runs",),
    ("tasks",),
    ("eval", "--lengths", "5,9", "--samples", 5, "--stress", "carry", "-q"),
    ("stress", "--lengths", 3, "--samples", 3, "--search", 0, "-q"),
    ("predict", "199", "--show"),
    ("inspect", "RECURRENT", "--input", "010 t3 t1 t2 t4 t5 .", "--out", "OUT"),
    ("diagnose", "RECURRENT"),
    ("certify",),
    ("reproduce", "attenders-table2", "--from-results"),
    ("calibrate", "LONG-VANILLA", "--no-retrain", "--threshold", 0.3),
)


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory) -> Path:
    """A run of an attender with all its variables, after one step."""
    small: Any = {"width": 8, "embedding": 6, "d_head": 8, "value": 8, "batch": 32, "steps": 1}
    folder = tmp_path_factory.mktemp("recurrent") / "run"
    return stages.train("lookup", out=folder, model="gru", attender="mix", **small).path


def test_what_a_command_prints_fits(tiny, recurrent, tmp_path, monkeypatch):
    deep = tiny.vanilla.parent / "a folder of an experiment" / "a run of a very long name indeed"
    deep.parent.mkdir()
    tiny.vanilla.rename(deep)
    monkeypatch.setattr(console.out, "width", WIDTH)
    monkeypatch.setattr(console.out, "_force_terminal", True)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    places = {"LONG-VANILLA": deep, "RECURRENT": recurrent, "OUT": tmp_path / "drawn"}
    for words in COMMANDS:
        said = run_command(*(places.get(word, word) for word in words))
        assert said.code == 0, said
        # paths are whole
        lines = [line for line in said.out.splitlines() if not line.startswith("/")]
        assert max(map(cell_len, lines), default=0) <= WIDTH, words
        if words[0] == "runs":
            assert "a folder" in said.out


def test_sentences_are_broken_in_a_terminal_alone_and_never_within_a_word():
    text = "  9" * 3 + " gives " + "8" * 100 + " instead of what is right"
    for is_terminal in (False, True):
        file: Any = io.StringIO()
        made = Console(file=file, width=40, force_terminal=is_terminal, _environ={})
        console.show(text, made)
        lines = file.getvalue().splitlines()
        assert lines == [text] or is_terminal
    assert "8" * 100 in [line.strip() for line in lines]
    assert all(len(line) <= 40 or "8" * 100 in line for line in lines)


def letters(*texts: str) -> Counter[str]:
    return Counter("".join("".join(texts).split()))


TEXT = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), max_size=30).map(visible)
ROWS = st.lists(st.tuples(TEXT, TEXT, TEXT, TEXT), max_size=5)


@given(rows=ROWS, width=st.integers(40, 200), title=TEXT)
@example(rows=[("a/folder/of a very-long name" * 3, "x" * 50, "", "1")], width=40, title="")
def test_no_table_is_wider_than_the_terminal_and_nothing_of_it_is_lost(rows, width, title):
    columns = ["run", "held-out", "seconds", "now"]
    file: Any = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(console, "out", Console(width=width, file=file))
        console.show(Table(columns, rows, {"seconds"}, title))
    lines = file.getvalue().splitlines()
    assert max(map(cell_len, lines), default=0) <= width
    missing = letters(*map("".join, rows), title) - letters(*lines)
    assert not missing


def test_runs_are_found_in_folders(tiny, runs_root):
    inner = runs_root / "certified" / "deeper" / "one"
    inner.parent.mkdir(parents=True)
    tiny.vanilla.rename(inner)
    (runs_root / "jobs" / "k").mkdir(parents=True)
    (runs_root / "jobs" / "k" / "config.json").write_text("{}")
    assert {path.name for path in folders.by_age()} == {"one", tiny.calibrated.name}
    assert {path.name for path in folders.by_age(jobs=True)} >= {"k"}
    assert command.run_names("certified/") == ["certified/deeper/one"]
    assert "certified/deeper/one" in run_command("runs").out


def test_tab_completes_tasks_and_runs(tiny):
    assert command.task_names("sub") == ["subtraction"]
    assert command.run_names("succ")[0].startswith("successor-")


def test_points_of_a_grid_are_rows_of_their_own():
    rows = [
        {"key": f"k{n}{seed}", "stage": "vanilla", "task": "addition", "scheme": "rope"}
        | {"decoder_layers": n, "width": 8, "seed": seed, "steps_taken": 10 * n + seed}
        | {"set": "random", "length": 6, "accuracy": 10.0 * n + seed}
        for n in (1, 2)
        for seed in range(3)
    ]
    table = sweep.medians(pd.DataFrame(rows))
    assert table.columns == ["task", "scheme", "stage", "set", "decoder_layers", "6"]
    assert [row[-2:] for row in table.rows] == [["1", "11.00"], ["2", "21.00"]]
    assert table.csv().splitlines()[1] == "addition,rope,vanilla,random,1,11.00"


def test_runs_are_removed_whole_when_asked_and_only_where_runs_are(tiny, runs_root, tmp_path):
    inner = runs_root / "certified" / "deeper" / "one"
    inner.parent.mkdir(parents=True)
    tiny.vanilla.rename(inner)
    assert "there is no run nothing" in run_command("runs", "rm", inner, "nothing").error(2)
    assert run_command("runs", "rm", inner).code != 0  # asked, and nobody says yes
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(inner, elsewhere / "two")
    (runs_root / "link").symlink_to(elsewhere)
    (runs_root / "linked").symlink_to(elsewhere / "two")
    for name in (inner / "model", elsewhere / "two", "link/two", "linked"):
        assert run_command("runs", "rm", name, "--yes").code in (1, 2)
    assert (inner / "model").is_dir() and (elsewhere / "two" / "model").is_dir()
    said = run_command("runs", "rm", "certified/deeper/one", "--yes")
    assert said.code == 0 and not inner.exists() and tiny.calibrated.is_dir()
    assert "abc runs rm RUN" in run_command("runs", "delete", "x").error(2)
