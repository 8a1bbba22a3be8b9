"""A rule on words, as a finite-state machine or by code, and how a person writes its sources."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, wraps
from typing import Any, ClassVar

import numpy as np

from abc_calib.text import counted
from tasks.base import Problems, TaskError, not_a_source
from tasks.calls import guarded, state_fault
from tasks.machine import machine
from tasks.ragged import Ragged, join, joined_rows
from tasks.rules import ABOVE, NO, ROW, NoSource, Rule, Transducer
from tasks.tokens import TokenTask

TICK, COLON = "#", ":"
"""What a source is counted by, and what closes the count."""


class WordRule(TokenTask):
    """What a rule on words says, and what follows from it: see ``WordTask``."""

    #: of these a subclass has one or both
    either: ClassVar[tuple[str, ...]] = ("step", "solve")
    #: the state before the first word, and that before the first one of a later row
    start: Any = 0
    start_below: Any = None
    #: read from the last word to the first
    backward: ClassVar[bool] = False
    #: do sources say how many rows an output has?
    counted: ClassVar[bool] = False
    #: or are there words in front, one for each row, as in ``a b c : x y``?
    row_words: tuple[str, ...] = ()
    #: how many parts with words there are, besides those in front; then there may be none
    operands: ClassVar[int] = 1
    #: do later rows read the source's words besides the row above?
    rereads: ClassVar[bool] = False
    #: words that close a row before another one, in place of ``|``
    closers: tuple[str, ...] = ()
    #: by how many columns a word is written late: it may depend on as many words ahead
    ahead: ClassVar[int] = 0
    #: the same of later rows, where it differs
    ahead_below: ClassVar[int | None] = None
    #: how many words of the source a column reads; those that the last one lacks are None
    stride: ClassVar[int] = 1

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.step_below is not WordRule.step_below:
            cls.notation = "row words"

    def step(self, state: Any, word: Any) -> tuple[Any, str | None] | None:
        """The next state, and the word that is written; None in place of it closes the output.

        From a word of the source, or of each of its ``operands``. None in place of both where no
        source goes on with this word.
        """
        raise NotImplementedError

    def end(self, state: Any) -> Sequence[str] | None:
        """The words that follow the last one; None where no source may end."""
        return ()

    def step_below(self, state: Any, above: Any, *word: Any) -> tuple[Any, str | None] | None:
        """The same for later rows, from a word of the row above, and the source's if ``rereads``.

        Words are None behind the last one of the shorter of the two.
        """
        raise NotImplementedError

    def end_below(self, state: Any) -> Sequence[str] | None:
        """The same as ``end`` for later rows."""
        return self.end(state)

    def begin(self, word: str | None, closer: str | None) -> Any:
        """The state before the first column of a row; None if there is no such row.

        ``word``: of ``row_words`` the row's own, None in the last row, which has none. ``closer``:
        what closed the row above, None in the first one.
        """
        below = self.closers and closer is not None
        return self.start if not below or self.start_below is None else self.start_below

    # What follows from it

    @property
    def redrawn(self) -> bool:  # type: ignore[override]
        """Where there is a rule, problems are drawn quickly."""
        return self.rule() is not None

    @property
    def in_rows(self) -> bool:
        return type(self).step_below is not WordRule.step_below

    @property
    def in_front(self) -> bool:
        """Is the first part of a source about rows?"""
        return self.counted or bool(self.row_words)

    @property
    def separators(self) -> tuple[str, ...]:  # type: ignore[override]
        colon = (COLON,) * bool(self.delimiters)
        return (TICK,) * self.counted + colon + (ROW,) * (self.in_rows and not self.closers)

    @property
    def delimiters(self) -> tuple[str, ...]:  # type: ignore[override]
        return (COLON,) * (self.in_front + self.operands - 1)

    def rule(self) -> Rule | None:
        return self._rule if self._has_step else None

    @property
    def _has_step(self) -> bool:
        return type(self).step is not WordRule.step or (self.in_rows and not self.operands)

    @cached_property
    def _rule(self) -> Rule:
        if not self._has_step:
            raise self._no_rule()
        self._check_declared()
        first = self._transducer(below=False)
        if not self.in_rows:
            if (first.written == first.base + 2).any():
                raise TaskError(f"{self.name} closes with {ROW} and has no step_below")
            forward = () if self.backward or self.operands > 1 else first.tapes
            return Rule(first, forward=forward, stride=self.stride)
        of_row = 0 if self.in_front else None
        later, past = self._transducer(below=True), bool(self.row_words)
        return Rule(first, later, of_row=of_row, past=past, stride=self.stride)

    def _check_declared(self) -> None:
        if (self.in_front or self.rereads or self.closers) and not self.in_rows:
            raise TaskError(f"{self.name} has one row: all that is about rows needs a step_below")
        if reserved := {TICK, COLON} & {*self.symbols} if self.in_front else set():
            raise TaskError(f"the symbol {min(reserved)!r} is what counts rows: take another one")
        if missing := {*self.row_words, *self.closers} - {*self.symbols}:
            raise TaskError(f"{min(missing)!r} belongs to rows and is not a symbol")
        if type(self.stride) is not int or self.stride < 1:
            raise TaskError(f"{self.name} has stride {self.stride!r}: give 1 or more words")
        least = int(not self.row_words)  # tapes, or words in front, tell how many columns there are
        if type(self.operands) is not int or self.operands < least:
            raise TaskError(f"{self.name} has operands = {self.operands!r}: give {least} or more")
        if self.stride > 1 and self.operands != 1:
            raise TaskError(f"{self.name} has stride {self.stride}: that needs one operand")

    def _transducer(self, below: bool) -> Transducer:
        """What writes the first row, or those ``below``."""
        tapes: tuple[int, ...] = tuple(
            range(self.in_front, self.in_front + self.operands * self.stride)
        )
        turns = range(self.stride if self.stride > 1 else 0)
        step: Any = self.step
        start, end, lag = self.start, self.end, self.ahead
        if below:
            step, end = self.step_below, self.end_below
            start = start if self.start_below is None else self.start_below
            lag = lag if self.ahead_below is None else self.ahead_below
            tapes = (ABOVE, *tapes) if self.rereads else (ABOVE,)
            turns = range(1, 1 + len(turns) * self.rereads)
        starts = list[Any]()
        if self.row_words or self.closers:
            words = (*self.row_words, None) if below or not self.row_words else self.row_words
            closers = (self.closers or (None,)) if below else (None,)
            begin = guarded(self.begin, "begin", state_fault)
            begun = [(begin(word, x), word, x) for word in words for x in closers]
            starts = [at for at in begun if at[0] is not None]
        about: Any = (tapes, lag, starts, self.closers, turns)
        if not self.counted:
            return machine(self.symbols, step, start, end, *about)

        @wraps(step)
        def unticked(state: Any, *column: Any) -> Any:
            return None if TICK in column else step(state, *column)

        transducer = machine((*self.symbols, TICK), unticked, start, end, *about)
        return replace(transducer, symbols=(len(self.symbols),))

    @property
    def inputs(self) -> tuple[str, ...]:  # type: ignore[override]
        """The symbols that a source may hold: all, or those that the rule reads."""
        if not self.redrawn:
            return self.symbols
        _, letters, _, _ = self._rule.first.steps
        return tuple(self.symbols[k] for k in np.unique(letters) if k < len(self.symbols))

    @cached_property
    def _fronts(self) -> np.ndarray:
        """The letters that stand in front of a source, for rows."""
        return self.tokens([(TICK,) if self.counted else self.row_words]).flat

    @property
    def usage(self) -> str:
        words = (self.inputs or self.row_words)[:4]
        count = f"3 {COLON} " * self.counted
        if self.row_words and self.operands:
            count = f"{' '.join(self.row_words[:2])} {COLON} "
        return f"words such as {', '.join(words)}, as in {count + ' '.join(words)!r}"

    # What a person writes

    def solve(self, source: str) -> str:
        return self.read(self.text(self._read(source).answer.row(0)))

    def parse(self, source: str, *sources: str) -> Problems:
        """The problems of sources, in their order."""
        if not self.redrawn:
            first, *others = [super(WordRule, self).parse(text) for text in (source, *sources)]
            return first.joined(*others) if others else first
        return self._read(source, *sources)

    def _read(self, *sources: str) -> Problems:
        tapes = list[Ragged]()
        for number, parts in enumerate(zip(*map(self.parts, sources), strict=True)):
            front = number == 0 and self.in_front
            read = self.tokens([*map(self._front_words if front else self.words, parts)])
            tapes.append(read.reversed() if self.backward and not front else read)
        problems = self.posed(self._by_turns(tapes))
        if len(problems) < len(sources):
            shown = repr(sources[0]) if len(sources) == 1 else f"one of {len(sources)} sources"
            raise TaskError(f"{shown} is not a source of {self.name}: write {self.usage}")
        return problems

    def parts(self, source: str) -> list[str]:
        """The words of each part of a source."""
        parts = f" {source} ".split(f" {COLON} ") if self.delimiters else [source]
        if len(parts) != len(self.delimiters) + 1:
            needed = len(self.delimiters) + 1
            raise not_a_source(self, source, f"it has {counted(len(parts), 'parts')}, not {needed}")
        return parts

    def _front_words(self, text: str) -> list[str]:
        """What a source has in front: a word for each row, or how many rows there are."""
        words, why = text.split(), "it is empty"
        if self.counted:
            if re.fullmatch(r"[1-9]\d{0,4}", text.strip()):
                return [TICK] * int(text)
            why = "it has no number of rows, 1 to 99999"
        elif strange := [word for word in words if word not in self.row_words]:
            why = f"{strange[0]!r} is not one of its words"
        elif words:
            return words
        raise not_a_source(self, text.strip(), why)

    def write(self, problems: Problems, row: int) -> str:
        if not self.delimiters and not self.in_rows:
            return super().write(problems, row)
        shown = []
        for part, text in enumerate(self.texts(problems.take(np.array([row])))):
            letters = text.row(0)
            if part == 0 and self.in_front:
                shown.append(str(len(letters)) if self.counted else self.text(letters))
            else:
                shown.append(self.text(letters[::-1] if self.backward else letters))
        return f" {COLON} ".join(shown)

    # The rule on many sources at once

    @property
    def _flips(self) -> bool:
        """Do the words of a source as it is laid out run against the columns of the rule?"""
        return self.backward or self.in_rows or self.operands > 1

    def letters(self, problems: Problems) -> list[Ragged]:
        return self._by_turns(self.texts(problems))

    def _by_turns(self, texts: list[Ragged]) -> list[Ragged]:
        """The tapes of texts: the last one's letters by turns, where a column reads several."""
        *others, text = texts
        k = self.stride
        lengths = ((text.lengths + k - 1 - j) // k for j in range(k))
        return [*others, *(Ragged(text.values[:, j::k], n) for j, n in enumerate(lengths))]

    def _together(self, tapes: Sequence[Ragged]) -> list[Ragged]:
        """The texts of tapes."""
        k = self.stride
        others, turns = tapes[: len(tapes) - k], tapes[len(tapes) - k :]
        text = np.zeros((len(turns[0]), k * max(tape.width for tape in turns)), np.int16)
        for j, tape in enumerate(turns):
            text[:, j : j + k * tape.width : k] = tape.values
        return [*others, Ragged(text, np.sum([tape.lengths for tape in turns], 0))]

    def texts(self, problems: Problems) -> list[Ragged]:
        """The letters of each part of sources, in the order of the rule's columns."""
        source = problems.source
        if not self._flips:
            return [source]
        colons = (source.values == self._colon) & source.inside
        ends = np.nonzero(colons)[1].reshape(len(source), len(self.delimiters))
        ends = np.concatenate([ends, source.lengths[:, None]], 1)
        tapes, begins = [], np.zeros(len(source), np.int64)
        for end in ends.T:
            lengths = end - begins
            columns = end[:, None] - 1 - np.arange(int(lengths.max(initial=0)))
            values = np.take_along_axis(source.values, np.maximum(columns, 0), 1)
            tapes.append(Ragged(values, lengths))
            begins = end + 1
        return tapes

    @property
    def _colon(self) -> int:
        return len(self.symbols) + self.counted

    def posed(self, letters: Sequence[Ragged]) -> Problems:
        """Problems with these letters, as far as they are sources whose outputs end."""
        rule = self._rule
        symbol = letters[0].values[:, 0] if self.row_words and len(letters[0]) else None
        tapes = [letters[k] for k in rule.first.tapes]
        _, code = rule.first.run(tapes, symbol)
        fits = code != NO
        for tape in tapes if self.stride == 1 else ():  # the letters of one text see to it
            fits &= tape.lengths == tapes[0].lengths
        if self.in_front:
            is_front = np.isin(letters[0].values, self._fronts) | ~letters[0].inside
            fits &= is_front.all(1) & (letters[0].lengths > 0)
        kept = np.flatnonzero(fits)
        while True:
            tapes = [tape.take(kept) for tape in letters]
            try:
                closer = None if self.closers else self._colon + bool(self.delimiters)
                target = joined_rows(rule.rows(tapes), closer)
                break
            except NoSource as error:
                kept = np.delete(kept, error.args[0])
        first, *others = (x.reversed() if self._flips else x for x in self._together(tapes))
        source = join(first, *(part for text in others for part in (self._colon, text)))
        return Problems.of(source if others else first, target)
