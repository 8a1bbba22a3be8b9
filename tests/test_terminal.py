"""Text that is shown and never obeyed, whatever it holds and wherever it goes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from conftest import run_command
from hypothesis import given
from hypothesis import strategies as st

from abc_calib.text import Markup, Table, as_latex, as_markdown, visible
from cli import console
from cli.main import app

ODD = "\x1b[31m[red]|$x_{\x07\u202e\x9b"


@given(st.text())
def test_what_is_shown_holds_no_control_character(text):
    shown = visible(text)
    assert shown.isprintable() or not shown
    if text.isprintable():
        assert shown == text


@given(st.text(max_size=20))
def test_a_cell_stays_one_cell(text):
    """In Markdown and in LaTeX: no line, column or command is begun by it."""
    table = as_markdown(["a", "b"], [[text, "x"]])
    assert table.count("\n") == 3 and all(c.isprintable() or c == "\n" for c in table)
    assert table.splitlines()[2].replace("\\\\", "").replace("\\|", "").count("|") == 3
    assert as_latex(["a"], [[text]]).count("\n") == 7
    assert Markup(text) == text


def test_tables_and_remarks_show_markup_and_escapes(capsys):
    console.show(Table(["name"], [[ODD]]))
    console.say(ODD)
    console.tell(ODD)
    said = capsys.readouterr()
    for text in (said.out, said.err):
        assert "[red]" in text and "\\x1b[31m" in text.replace("\n", "")
        assert all(c.isprintable() or c == "\n" for c in text)


def test_a_run_of_an_odd_name_is_shown_as_it_is(tiny, abc):
    odd = tiny.calibrated.with_name(ODD.replace("/", ""))
    tiny.calibrated.rename(odd)
    for words in (["runs"], ["eval", odd, "--lengths", 2, "--samples", 2], ["certify", odd]):
        said = abc(*words)
        assert said.code == 0
        assert all(c.isprintable() or c == "\n" for c in said.out + said.err)


def test_what_is_not_utf8_is_refused(abc, monkeypatch):
    monkeypatch.setattr("sys.argv", ["abc", "train", "\udcff"])
    with pytest.raises(SystemExit) as left:
        app()
    assert left.value.code == 2


@pytest.mark.parametrize("value", ["nan", "1e400", "x" * 50, ""])
def test_results_without_numbers_are_refused(tmp_path, value):
    committed = Path(__file__).parents[1] / "reports" / "reproduction" / "table1-seeds.csv"
    lines = committed.read_text().splitlines()
    names = lines[0].split(",")
    cells = lines[1].split(",")
    cells[names.index("n")] = value
    (tmp_path / committed.name).write_text("\n".join([lines[0], ",".join(cells)]) + "\n")
    words = ("reproduce", "table1", "--from-results", "--results", tmp_path)
    assert "cannot be read" in run_command(*words).error(1)


def test_a_device_is_not_replaced(tiny, tmp_path):
    """Whatever a file is written to, it stays what it is, unless it is a file."""
    os.mkfifo(tmp_path / "cross.npz")
    words = ("heatmap", tiny.calibrated, "--sites", "cross", "--format", "svg")
    said = run_command(*words, "--out", tmp_path)
    assert said.code in (1, 2) and (tmp_path / "cross.npz").is_fifo()
