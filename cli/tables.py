"""A table in a terminal of any width: nothing of it is ever cut."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

GAP = 2
"""Spaces between two columns."""
NARROW = 14
"""Characters that a column with longer words keeps at least."""


@dataclass(frozen=True)
class Lines:
    """Rows of text; columns of ``right`` are aligned there, those of ``whole`` are never broken.

    Where there is no room for a table, each row is told in lines of its own.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Collection[str] = ()
    whole: Collection[str] = ()
    title: str = ""
    caption: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
        widths = self.widths(options.max_width)
        if self.title and not widths:
            yield Text(self.title, overflow="fold")
        yield from [self._table(widths)] if widths else self._records()
        if self.caption and not widths:
            yield Text(self.caption, overflow="fold")

    def widths(self, width: int) -> list[int]:
        """Of each column; nothing if they do not fit."""
        texts = [[name, *(row[i] for row in self.rows)] for i, name in enumerate(self.columns)]
        longest = [max(map(cell_len, column)) for column in texts]
        found = [
            size if name in self.whole else max(_word(name), min(_word(*column), size, NARROW))
            for name, column, size in zip(self.columns, texts, longest, strict=True)
        ]
        room = width - sum(found) - GAP * (len(found) - 1)
        while room > 0 and found != longest:
            at = min((i for i, n in enumerate(found) if n < longest[i]), key=found.__getitem__)
            found[at] += 1
            room -= 1
        return found if room >= 0 else []

    def _table(self, widths: Sequence[int]) -> Table:
        table = Table(
            box=box.SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
            collapse_padding=True,
            padding=(0, 1),
            title=Text(self.title) if self.title else None,
            title_justify="left",
            caption=Text(self.caption) if self.caption else None,
            caption_justify="left",
        )
        for name, width in zip(self.columns, widths, strict=True):
            side: Any = "right" if name in self.right else "left"
            table.add_column(Text(name), justify=side, overflow="fold", width=width)
        for row in self.rows:
            cells = (folded(cell, width) for cell, width in zip(row, widths, strict=True))
            table.add_row(*map(Text, cells))
        return table

    def _records(self) -> Iterator[Any]:
        first, *others = self.columns
        for key, *cells in self.rows:
            told = [f"{name} {cell}" for name, cell in zip(others, cells, strict=True) if cell]
            yield Text(key or f"{first} -", overflow="fold")
            yield Padding(Text("; ".join(told), overflow="fold"), (0, 0, 0, 2))


def _word(*texts: str) -> int:
    return max((cell_len(word) for text in texts for word in text.split()), default=1)


def folded(text: str, width: int) -> str:
    """Words that are too long for a line broken behind their slashes, hyphens and underscores."""
    return re.sub(r"\S+", lambda found: _folded(found[0], width), text)


def _folded(word: str, width: int) -> str:
    if cell_len(word) <= width:
        return word
    lines = [""]
    for part in re.findall(r"[^/_-]*[/_-]|[^/_-]+", word):
        if lines[-1] and cell_len(lines[-1] + part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)
