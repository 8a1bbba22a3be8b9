"""Tables in Markdown and LaTeX: what is escaped, how columns are aligned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from abc_calib.proof.page import page
from abc_calib.text import Markup, as_latex, as_markdown

CERTIFICATES = Path(__file__).parents[1] / "reports" / "certificates"


def test_markdown_escapes_and_aligns() -> None:
    text = as_markdown(["task", "a|b", "%"], [["N*1_x", "two\nlines", 99.5], ["$ & `", None, 3]])
    assert text.splitlines() == [
        r"| task | a\|b | % |",
        "| --- | --- | ---: |",
        r"| N\*1\_x | two lines | 99.5 |",
        r"| \$ & \` |  | 3 |",
    ]


def test_latex_escapes_and_aligns() -> None:
    text = as_latex(["task", "%"], [[r"a_b & c\d ~^#${}", 1 / 3], ["[−1] ± 2", 100]])
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


def test_rows_of_another_width_are_refused() -> None:
    with pytest.raises(ValueError, match="2 cells and the table 1 columns"):
        as_markdown(["a"], [["b", "c"]])


def test_markup_is_not_escaped_and_sides_may_be_given() -> None:
    text = as_markdown(["a_b", "n"], [[Markup("`a_b`"), "1,000"]], "lr")
    assert text.splitlines() == [r"| a\_b | n |", "| --- | ---: |", "| `a_b` | 1,000 |"]


@pytest.mark.parametrize("path", sorted(CERTIFICATES.glob("*.json")), ids=lambda path: path.stem)
def test_a_committed_certificate_renders_to_its_page(path: Path) -> None:
    found = json.loads(path.read_text())
    if "kinds" not in found:
        pytest.skip("written by an older program, whose page it has")
    assert page(found) == path.with_suffix(".md").read_text()
