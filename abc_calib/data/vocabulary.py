"""Symbols to token ids and back.

A digit's id is the digit itself, so arrays of digits are arrays of ids already. In base 10
this is the paper's vocabulary of 15: ten digits, ``+ *``, SOS ``$``, EOS ``&``, PAD ``@``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from abc_calib.errors import UsageError
from tasks import Task
from tasks.rows import ROW

SOS, EOS, PAD = "$", "&", "@"


@dataclass(frozen=True)
class TokenIds:
    """What a model knows of a vocabulary: its size, and the ids that mean something to it.

    ``delimiters`` open or close a part of the source: SOS, operators, EOS. ``rows`` close a row of
    the output, in tasks that write several.
    """

    size: int
    pad: int
    sos: int
    eos: int
    delimiters: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()

    @property
    def words(self) -> bool:
        """Is a source one part that is counted from its first token, as words are?"""
        return len(self.delimiters) <= 2


class Vocabulary:
    """The token ids of one task's symbols and of a format's, followed by SOS, EOS and PAD."""

    symbols: Sequence[str]
    rows: tuple[int, ...] = ()

    def __init__(self, task: Task, extra: tuple[str, ...] = ()):
        self.symbols = (*task.symbols, *task.separators, *extra, SOS, EOS, PAD)
        self.ids = {symbol: i for i, symbol in enumerate(self.symbols)}
        if twice := [s for i, s in enumerate(self.symbols) if self.ids[s] != i]:
            raise UsageError(
                f"{task.name} has the symbol {twice[0]!r} for two tokens: every symbol needs a "
                f"name of its own, and {SOS}, {EOS} and {PAD} are the model's"
            )
        self.sos, self.eos, self.pad = (self.ids[s] for s in (SOS, EOS, PAD))
        self.delimiters = (self.sos, *(self.ids[s] for s in task.delimiters), self.eos)
        closers = getattr(task, "closers", ()) or ((ROW,) if ROW in self.ids else ())
        self.rows = tuple(self.ids[s] for s in closers)

    @property
    def tokens(self) -> TokenIds:
        return TokenIds(len(self), self.pad, self.sos, self.eos, self.delimiters, self.rows)

    def __len__(self) -> int:
        return len(self.symbols)

    def text(self, ids: Iterable[int], separator: str = "") -> str:
        """The symbols up to the first EOS, without SOS and PAD."""
        return separator.join(self.symbols[i] for i in self.shown(ids))

    def shown(self, ids: Iterable[int]) -> list[int]:
        """The ids up to the first EOS, without SOS and PAD."""
        inside = takewhile(lambda i: i != self.eos, ids)
        return [i for i in inside if i not in (self.sos, self.pad)]
