"""Symbols to token ids and back.

A digit's id is the digit itself, so arrays of digits are arrays of ids already. In base 10
this is the paper's vocabulary of 15: ten digits, ``+ *``, SOS ``$``, EOS ``&``, PAD ``@``.
"""

from __future__ import annotations

from collections.abc import Iterable

from tasks import Task

SOS, EOS, PAD = "$", "&", "@"


class Vocabulary:
    """The token ids of one task's symbols, followed by SOS, EOS and PAD."""

    def __init__(self, task: Task):
        self.symbols = (*task.symbols, SOS, EOS, PAD)
        self.ids = {symbol: i for i, symbol in enumerate(self.symbols)}
        self.sos, self.eos, self.pad = (self.ids[s] for s in (SOS, EOS, PAD))
        #: ids that open or close a segment of the source: SOS, operators, EOS
        self.delimiters = (self.sos, *(self.ids[s] for s in task.delimiters), self.eos)

    def __len__(self) -> int:
        return len(self.symbols)

    def text(self, ids: Iterable[int], separator: str = "") -> str:
        """The symbols up to the first EOS, without SOS and PAD."""
        shown = []
        for i in ids:
            if i == self.eos:
                break
            if i not in (self.sos, self.pad):
                shown.append(self.symbols[i])
        return separator.join(shown)
