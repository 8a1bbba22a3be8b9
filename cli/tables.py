"""A table in a terminal of any width: nothing of it is ever cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.table import Table as Drawn
from rich.text import Text

from abc_calib.text import Table, visible

GAP = 2
"""Spaces between two columns."""
NARROW = 14
"""Characters that a column with longer words keeps at least."""


@dataclass(frozen=True)
class Fitted:
    """A table as wide as its terminal; columns without room go on in a further table below."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
        rows = [self.table.columns, *(map(self.table.text, row) for row in self.table.rows)]
        texts = [["\n".join(map(visible, cell.split("\n"))) for cell in row] for row in rows]
        least = [self._least(*column) for column in zip(*texts, strict=True)]
        parts = list(self._parts(least, options.max_width))
        for number, part in enumerate(parts):
            if number:
                yield ""
            title = self.table.title if not number else ""
            caption = self.table.caption if number == len(parts) - 1 else ""
            columns = [[row[i] for row in texts] for i in part]
            widths = fitted(columns, [least[i] for i in part], options.max_width)
            if title:
                yield Text(title, style="bold")
            yield self._drawn(columns, widths)
            if caption:
                yield Text(caption)

    def _least(self, name: str, *cells: str) -> int:
        """The narrowest width of a column."""
        if name in self.table.whole:
            return max(map(cell_len, "\n".join((name, *cells)).split("\n")))
        long, head = (max(map(cell_len, t.split()), default=1) for t in (" ".join(cells), name))
        return max(head, min(long, NARROW))

    def _parts(self, least: Sequence[int], width: int) -> Iterator[list[int]]:
        """The numbers of the columns of each table, the first ``keys`` in all of them."""
        keys = [*range(min(self.table.keys, len(least)))]
        part: list[int] = []
        for number in range(len(keys), len(least)):
            if part and _width(least, [*keys, *part, number]) > width:
                yield [*keys, *part]
                part = []
            part.append(number)
        yield [*keys, *part]

    def _drawn(self, columns: Sequence[Sequence[str]], widths: Sequence[int]) -> Drawn:
        """Columns, the name of each first."""
        drawn = Drawn(
            box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True,
            padding=(0, 1),
        )  # fmt: skip
        for (name, *_), width in zip(columns, widths, strict=True):
            side: Any = "right" if name in self.table.right else "left"
            drawn.add_column(Text(name), justify=side, overflow="fold", width=width)
        for row in list(zip(*columns, strict=True))[1:]:
            drawn.add_row(*map(Text, row))
        return drawn


def fitted(columns: Sequence[Sequence[str]], least: Sequence[int], width: int) -> list[int]:
    """The width of each column: what is left over goes to the narrowest that wants more."""
    longest = [max(map(cell_len, "\n".join(column).split("\n"))) for column in columns]
    found, room = list(least), width - _width(least, range(len(least)))
    while room < 0 and max(found) > 1:  # even the narrowest do not fit: words are folded
        found[found.index(max(found))] -= 1
        room += 1
    while room > 0 and (short := [i for i, most in enumerate(longest) if found[i] < most]):
        found[min(short, key=found.__getitem__)] += 1
        room -= 1
    return found


def _width(least: Sequence[int], part: Sequence[int]) -> int:
    return sum(least[i] + GAP for i in part) - GAP
