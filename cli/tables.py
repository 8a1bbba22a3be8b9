"""A table in a terminal of any width: nothing of it is ever cut."""

from __future__ import annotations

import re
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
        texts = self.texts
        parts = list(self.parts(texts, options.max_width))
        for number, part in enumerate(parts):
            title = self.table.title if not number else ""
            caption = self.table.caption if number == len(parts) - 1 else ""
            if number:
                yield ""
            yield self._drawn(texts, part, options.max_width, title, caption)

    @property
    def texts(self) -> list[list[str]]:
        """The columns, each with its name first."""
        lines = [list(self.table.columns), *(map(self.table.text, row) for row in self.table.rows)]
        columns = zip(*lines, strict=True)
        return [
            ["\n".join(map(visible, cell.split("\n"))) for cell in column] for column in columns
        ]

    def least(self, texts: Sequence[Sequence[str]]) -> list[int]:
        """The narrowest width of each column."""
        return [
            _longest(column)
            if name in self.table.whole
            else max(_word(column[:1]), min(_word(column), NARROW))
            for name, column in zip(self.table.columns, texts, strict=True)
        ]

    def parts(self, texts: Sequence[Sequence[str]], width: int) -> Iterator[list[int]]:
        """The numbers of the columns of each table, the first ``keys`` in all of them."""
        least, keys = self.least(texts), [*range(min(self.table.keys, len(texts)))]
        part: list[int] = []
        for number in range(len(keys), len(texts)):
            if part and sum(least[i] + GAP for i in (*keys, *part, number)) - GAP > width:
                yield [*keys, *part]
                part = []
            part.append(number)
        yield [*keys, *part]

    def _drawn(
        self, texts: Sequence[Sequence[str]], part: Sequence[int], width: int, *around: str
    ) -> Drawn:
        title, caption = (Text(text) if text else None for text in around)
        drawn = Drawn(
            box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True,
            padding=(0, 1), title=title, title_justify="left", caption=caption,
            caption_justify="left",
        )  # fmt: skip
        widths = self.widths([texts[i] for i in part], [self.least(texts)[i] for i in part], width)
        for i, room in zip(part, widths, strict=True):
            name = self.table.columns[i]
            side: Any = "right" if name in self.table.right else "left"
            drawn.add_column(Text(visible(name)), justify=side, overflow="fold", width=room)
        for row in range(1, len(texts[0])):
            cells = (folded(texts[i][row], room) for i, room in zip(part, widths, strict=True))
            drawn.add_row(*map(Text, cells))
        return drawn

    def widths(self, texts: Sequence[Sequence[str]], least: Sequence[int], width: int) -> list[int]:
        """The width of each column: what is left over goes to the narrowest that wants more."""
        longest, found = [_longest(column) for column in texts], list(least)
        room = width - sum(found) - GAP * (len(found) - 1)
        while room < 0 and max(found) > 1:  # even the narrowest do not fit: words are folded
            found[max(range(len(found)), key=found.__getitem__)] -= 1
            room += 1
        while room > 0 and any(n < most for n, most in zip(found, longest, strict=True)):
            at = min((i for i, n in enumerate(found) if n < longest[i]), key=found.__getitem__)
            found[at] += 1
            room -= 1
        return found


def _longest(column: Sequence[str]) -> int:
    return max((cell_len(line) for cell in column for line in cell.split("\n")), default=1) or 1


def _word(column: Sequence[str]) -> int:
    return max((cell_len(word) for text in column for word in text.split()), default=1)


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
