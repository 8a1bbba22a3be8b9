"""Text that is shown and never obeyed, whatever it holds and wherever it goes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import run_command
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from abc_calib.proof.page import page
from abc_calib.reproduction import pipeline
from abc_calib.text import Markup, Table, as_markdown, counted, visible
from cli import console
from cli.train import closer

ROOT = Path(__file__).parents[1]
REPORTS = ROOT / "reports"
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
    assert Table(["a"], [[text]]).latex().count("\n") == 7
    assert Markup(text) == text


def test_tables_and_remarks_show_markup_and_escapes(capsys):
    console.show(Table(["name"], [[ODD]]))
    console.say(ODD)
    console.show(ODD)
    said = capsys.readouterr()
    for text in (said.out, said.err):
        assert "[red]" in text and "\\x1b[31m" in text.replace("\n", "")
        assert all(c.isprintable() or c == "\n" for c in text)


def test_columns_that_hold_nothing_are_left_out(capsys):
    console.show(Table(("task", "note", "n"), [["a", None, 0], ["b", "", 1]]))
    assert capsys.readouterr().out.split()[:2] == ["task", "n"]
    console.show(Table(("task", "note"), []))
    assert "note" in capsys.readouterr().out


def test_in_a_narrow_terminal_the_name_of_a_run_is_folded_and_no_word(capsys):
    words = ("long_multiplication, base 2", "certified", "100.00 %")
    table = Table(("run", "task", "verdict", "held-out"), [("x" * 40, *words)])
    for width in (60, 80):
        console.show(table, Console(width=width))
        text = capsys.readouterr().out
        assert max(map(len, text.splitlines())) <= width and text.count("x") == 40
        assert {*" ".join(words).split()} < {*text.split()}


def test_a_run_that_cannot_be_read_has_a_short_row(tiny, abc):
    (tiny.vanilla / "config.json").write_text("{")
    said = abc("runs")
    assert max(map(len, said.out.splitlines())) < 100 and "unreadable" in said.out
    assert f"unreadable: {tiny.vanilla / 'config.json'} cannot be read" in said.err


def test_a_line_that_stays_on_the_end_of_a_number_is_named_by_it():
    assert closer("vert +0 segment 1") == "the token that closes number 1"
    others = ("vert +0", "vert +1 segment 1", "anti +0 segment 1")
    assert not any(map(closer, others))


def test_a_run_of_an_odd_name_is_shown_as_it_is(tiny, abc):
    odd = tiny.calibrated.with_name(ODD.replace("/", ""))
    tiny.calibrated.rename(odd)
    for words in (["runs"], ["eval", odd, "--lengths", 2, "--samples", 2], ["certify", odd]):
        said = abc(*words)
        assert said.code == 0
        assert all(c.isprintable() or c == "\n" for c in said.out + said.err)


def test_results_without_numbers_are_refused(tmp_path, monkeypatch):
    committed = REPORTS / "reproduction" / "table1-seeds.csv"
    names, cells = (line.split(",") for line in committed.read_text().splitlines()[:2])
    monkeypatch.setattr(pipeline, "RESULTS", tmp_path)
    words = ("reproduce", "table1", "--from-results")
    for value in ("nan", "1e400", "x" * 50, ""):
        cells[names.index("n")] = value
        (tmp_path / committed.name).write_text(f"{','.join(names)}\n{','.join(cells)}\n")
        assert "cannot be read" in run_command(*words).error(1)


def test_a_device_is_not_replaced(tiny, tmp_path):
    """Whatever a file is written to, it stays what it is, unless it is a file."""
    os.mkfifo(tmp_path / "cross.npz")
    words = ("heatmap", tiny.calibrated, "--sites", "cross", "--layer", 0, "--head", 0)
    said = run_command(*words, "--out", tmp_path)
    assert said.code in (1, 2) and (tmp_path / "cross.npz").is_fifo()


# Tables in Markdown and LaTeX


def test_markdown_escapes_and_aligns() -> None:
    text = as_markdown(["task", "a|b", "%"], [["N*1_x", "two\nlines", 99.5], ["$ & `", None, 3]])
    assert text.splitlines() == [
        r"| task | a\|b | % |",
        "| --- | --- | ---: |",
        r"| N\*1\_x | two lines | 99.5 |",
        r"| \$ & \` |  | 3 |",
    ]
    text = as_markdown(["a_b", "n"], [[Markup("`a_b`"), "1,000"]], "lr")
    assert text.splitlines() == [r"| a\_b | n |", "| --- | ---: |", "| `a_b` | 1,000 |"]
    with pytest.raises(ValueError, match="2 cells and the table 1 columns"):
        as_markdown(["a"], [["b", "c"]])


def test_latex_escapes_and_aligns() -> None:
    text = Table(["task", "%"], [[r"a_b & c\d ~^#${}", 1 / 3], ["[−1] ± 2", 100]]).latex()
    assert text.splitlines() == [
        r"\begin{tabular}{lr}",
        r"\toprule",
        r"task & \% \\",
        r"\midrule",
        r"a\_b \& c\textbackslash{}d \textasciitilde{}\textasciicircum{}\#\$\{\} & 0.333333 \\",
        r"{[}$-$1{]} $\pm$ 2 & 100 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_in_latex_a_missing_cell_is_a_dash_and_no_row_is_left_out() -> None:
    rows = [[n, "9.5", "-" if n % 5 else "8.5"] for n in range(1, 17)]
    body = [line for line in Table("nab", rows).latex().splitlines() if "9.5" in line]
    assert body[0] == r"1 & 9.5 & -- \\" and body[4] == r"5 & 9.5 & 8.5 \\"
    assert len(body) == 16 and Table("nab", rows).csv().count("-") == 13


def test_in_latex_columns_that_begin_alike_have_a_head_over_them() -> None:
    names = ["length", "before, random", "before, carry", "after"]
    lines = Table(names, [["1000", "9.5", "1000.5", "7"]], right=names).latex().splitlines()
    assert lines[2] == r" & \multicolumn{2}{c}{before} &  \\"
    assert lines[3:5] == [r"\cmidrule(lr){2-3}", r"length & random & carry & after \\"]
    assert lines[6] == r"1,000 & 9.5 & 1000.5 & 7 \\"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex")
def test_every_table_compiles(tmp_path: Path) -> None:
    tables = [path.read_text("utf-8") for path in sorted(REPORTS.glob("reproduction/*.tex"))]
    odd = r"a_b & c\d ~^#${} < > | [−1] ± 2 – ≠ × ∞ → ≥ ≤ é"
    rows = [[odd, 1], ["[", 2]]
    tables.append(Table([odd, "n"], rows, caption=odd, label="tab:odd").latex())
    head = r"\documentclass{article}\usepackage{booktabs,graphicx}\begin{document}"
    body = "\n".join(tables).replace(r"\begin{table}", r"\clearpage\begin{table}")
    (tmp_path / "all.tex").write_text(f"{head}\n{body}\n\\end{{document}}\n", "utf-8")
    words = ("pdflatex", "-draftmode", "-interaction=nonstopmode", "-halt-on-error", "all.tex")
    made = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout[-2000:]
    assert f"[{len(tables)}]" in made.stdout.replace("\n", "")  # a page a file at least
    wide = re.findall(r"Overfull \\hbox \(([\d.]+)pt", made.stdout)
    assert not [points for points in wide if float(points) > 1]


def test_committed_certificates_render_to_their_pages() -> None:
    paths = [*REPORTS.glob("certificates/*.json"), *REPORTS.glob("zoo/*/certificate.json")]
    found = {path: json.loads(path.read_text()) for path in paths}
    # the others were written by an older program, whose pages they have
    known = {path: one for path, one in found.items() if "kinds" in one}
    assert len(known) > 5
    for path, one in known.items():
        assert page(one) == path.with_suffix(".md").read_text(), path


def test_counts_agree_with_their_units() -> None:
    said = [counted(n, unit) for n, unit in ((1, "pairs of bits"), (2, "rows"), (1234, "digits"))]
    assert said == ["1 pair of bits", "2 rows", "1,234 digits"]
    assert counted("1", "digits") == "1 digit" and counted("2x1", "digits") == "2x1 digits"
