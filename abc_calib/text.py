"""Text that shows what it holds, and tables as text: in Markdown and in LaTeX."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any


def visible(text: str) -> str:
    """``text`` with control characters as they are written in Python."""
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    return character if character.isprintable() else repr(character)[1:-1]


def counted(count: int | str, unit: str) -> str:
    """A number with its unit, whose first word loses its plural for 1: ``1 pair of bits``."""
    first, *rest = unit.split(" ")
    shown = f"{count:,}" if isinstance(count, int) else count
    return " ".join([shown, first.removesuffix("s") if shown == "1" else first, *rest])


def grouped(text: str) -> str:
    """``text`` with whole numbers as ``100,000``."""
    return re.sub(r"(?<![\w.,])\d{4,}(?![\w.])", lambda match: f"{int(match[0]):,}", text)


class Markup(str):
    """A cell that is in the language of the table already."""


@dataclass(frozen=True)
class Table:
    """Rows of cells under named columns; None is an empty cell.

    Columns of ``right`` are aligned there, by default those of numbers. ``label``: its name in
    LaTeX.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    right: Collection[str] = ()
    title: str = ""
    caption: str = ""
    label: str = ""

    @staticmethod
    def text(cell: Any) -> str:
        """A cell as it is shown."""
        return "" if cell is None else str(cell)

    def latex(self) -> str:
        r"""A LaTeX ``tabular`` for ``\usepackage{booktabs}``.

        With a ``caption`` inside of a ``table``, scaled down to the width of the text where it is
        wider (``\usepackage{graphicx}``). A missing cell (``-``) is a dash. Columns side by side
        whose names begin alike, up to a comma, have a head over both.
        """
        rows = [["–" if cell == "-" else cell for cell in row] for row in self.rows]
        align = "".join("r" if name in self.right else "l" for name in self.columns)
        sides = _sides(self.columns, rows, align if self.right else "")
        heads = _heads([_text(name, _LATEX) for name in self.columns])
        cells = [[_text(value, _LATEX) for value in row] for row in rows]
        for row in cells if self.right else ():
            row[:] = [grouped(x) if side == "r" else x for x, side in zip(row, sides, strict=True)]
        body = [" & ".join(row) + r" \\" for row in cells]
        lines = [rf"\begin{{tabular}}{{{sides}}}", r"\toprule", *heads, r"\midrule", *body]
        lines += [r"\bottomrule", r"\end{tabular}"]
        if self.caption:
            caption = [rf"\caption{{{_text(self.caption, _LATEX)}}}"]
            caption += [rf"\label{{{self.label}}}"] if self.label else []
            begin = r"\begin{table}", r"\centering", *caption, _NARROW
            lines = [*begin, *lines, r"}", r"\end{table}"]
        return "\n".join(lines) + "\n"

    def csv(self) -> str:
        """The table in CSV."""
        buffer = io.StringIO()
        lines = csv.writer(buffer, lineterminator="\n")
        lines.writerows([self.columns, *([self.text(cell) for cell in row] for row in self.rows)])
        return buffer.getvalue()


def as_markdown(columns: Sequence[str], rows: Sequence[Sequence[Any]], align: str = "") -> str:
    """A Markdown table; ``align`` as ``lrr``, by default columns of numbers at the right."""
    marks = ["---:" if side == "r" else "---" for side in _sides(columns, rows, align)]
    head, *body = [[_text(value, _MARKDOWN) for value in line] for line in (columns, *rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, marks, *body))


_NARROW = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
"""A box as wide as its content, or as the line if that is narrower."""


def _heads(columns: Sequence[str]) -> list[str]:
    """The lines of heads: two where names side by side begin alike, up to their last comma."""
    parts = [name.rpartition(", ") for name in columns]
    groups = [(head, len([*same])) for head, same in groupby(head for head, *_ in parts)]
    if not any(head and count > 1 for head, count in groups):
        return [" & ".join(columns) + r" \\"]
    over, rules, first = list[str](), list[str](), 1
    for head, count in groups:
        over += [rf"\multicolumn{{{count}}}{{c}}{{{head}}}"] if head else [""] * count
        rules += [rf"\cmidrule(lr){{{first}-{first + count - 1}}}"] if head else []
        first += count
    above, below = (" & ".join(line) + r" \\" for line in (over, [last for *_, last in parts]))
    return [above, " ".join(rules), below]


def _sides(columns: Sequence[str], rows: Sequence[Sequence[Any]], align: str = "") -> str:
    """``align``, or the side of each column: right if it holds numbers alone, and at least one."""
    for row in rows:
        if len(row) != len(columns):
            raise ValueError(f"a row has {len(row)} cells and the table {len(columns)} columns")
    values = [[row[i] for row in rows if row[i] is not None] for i in range(len(columns))]
    numeric = [bool(v) and all(isinstance(x, int | float) for x in v) for v in values]
    return align or "".join("r" if each else "l" for each in numeric)


_MARKDOWN = {ord(c): f"\\{c}" for c in r"\`*_[]<>|~$"}
_LATEX = {
    **{ord(c): f"\\{c}" for c in "&%$#_{}"},
    ord("\\"): r"\textbackslash{}",
    ord("~"): r"\textasciitilde{}",
    ord("^"): r"\textasciicircum{}",
    ord("<"): r"\textless{}",
    ord(">"): r"\textgreater{}",
    ord("|"): r"\textbar{}",
    ord("["): "{[}",  # after \\ a bracket would be its argument
    ord("]"): "{]}",
    ord("−"): "$-$",
    ord("–"): "--",
    ord("±"): r"$\pm$",
    ord("≠"): r"$\neq$",
    ord("×"): r"$\times$",
    ord("∞"): r"$\infty$",
    ord("→"): r"$\to$",
    ord("≤"): r"$\leq$",
    ord("≥"): r"$\geq$",
}


def _text(value: Any, escapes: dict[int, str]) -> str:
    """One line: nothing for None, at most six digits of a float."""
    if value is None:
        return ""
    text = " ".join((f"{value:.6g}" if isinstance(value, float) else str(value)).split())
    return text if isinstance(value, Markup) else visible(text).translate(escapes)


def names(value: str | Iterable[str]) -> tuple[str, ...]:
    """Names as a tuple: those of ``"pdf,png"``, too, and not its letters."""
    if isinstance(value, str):
        value = [name.strip() for name in value.split(",")]
    return tuple(value)
