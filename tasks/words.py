"""Rules on words, as a finite-state machine or by code, and how their data are drawn."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from tasks.base import Problems, TaskError
from tasks.machine import Step, machine
from tasks.ragged import Ragged, Rng, column, from_flat, join, joined_rows
from tasks.rules import ABOVE, NO, ROW, NoSource, Rule
from tasks.tokens import TokenTask

TRAINING, SMALL = 10_001, 2_001
"""Problems of the training set and of the others, as in the code of Ray Chowdhury & Caragea."""
TICK, COLON = "#", ":"
"""What a source is counted by, and what closes the count."""
DATA_SEED = 20230
"""The published sets have no seed; ours are always the same."""


class WordTask(TokenTask):
    """A rule on words: a subclass has ``symbols`` and says ``step``, or ``solve`` alone.

    With ``step`` the rule is a transducer that reads one word after another, ``start`` being its
    state before the first one: it can be certified, and training draws new sources all the time.
    With ``solve`` alone 10,001 sources are drawn once. With both, ``solve`` is compared with the
    rule before anything is trained.

    With ``step_below`` the output has rows: the first one is what ``step`` writes, each of the
    others what ``step_below`` makes of the row above. A row whose ``end`` closes with ``ROW`` is
    followed by another one; or sources are ``counted``: they begin with the number of rows, as in
    ``3 : a b c``.
    """

    train_length = 10
    unit = "words"
    kinds = 3
    splits: tuple[str, ...] = ()
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
        if cls.step_below is not WordTask.step_below:
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
    def laws(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("uniform", "few") if self.redrawn else ("uniform",)

    @property
    def in_rows(self) -> bool:
        return type(self).step_below is not WordTask.step_below

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
        reads = type(self).step is not WordTask.step or (self.in_rows and not self.operands)
        return self._rule if reads else None

    @cached_property
    def _rule(self) -> Rule:
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
        words = (*self.symbols, TICK) if self.counted else self.symbols
        tapes = tuple(range(self.in_front, self.in_front + self.operands * self.stride))
        step = _unticked(self.step) if self.counted else self.step
        about: dict[str, Any] = {"lag": self.ahead, "closers": self.closers}
        starts = self._starts((None,), self.row_words or (None,))
        turns = range(self.stride if self.stride > 1 else 0)
        first = machine(
            words, step, self.start, self.end, tapes, turns=turns, starts=starts, **about
        )
        if not self.in_rows:
            if (first.written == first.base + 2).any():
                raise TaskError(f"{self.name} closes with {ROW} and has no step_below")
            forward = () if self.backward or self.operands > 1 else tapes
            return Rule(first, forward=forward, stride=self.stride)
        start = self.start if self.start_below is None else self.start_below
        tapes = (ABOVE, *tapes) if self.rereads else (ABOVE,)
        below = _unticked(self.step_below) if self.counted else self.step_below
        starts = self._starts(
            self.closers or (None,), (*self.row_words, None) if self.row_words else (None,)
        )
        if self.ahead_below is not None:
            about["lag"] = self.ahead_below
        about["turns"] = [1 + axis for axis in turns if self.rereads]
        later = machine(words, below, start, self.end_below, tapes, starts=starts, **about)
        about = {"stride": self.stride}
        if self.row_words:
            return Rule(first, later, of_row=0, past=True, **about)
        if not self.counted:
            return Rule(first, later, **about)
        first, later = (replace(row, symbols=(len(self.symbols),)) for row in (first, later))
        return Rule(first, later, of_row=0, **about)

    def _starts(self, closers: Sequence[Any], words: Sequence[Any]) -> list[Any]:
        """The first states of rows, with the word of each and what closed the row above."""
        if not self.row_words and not self.closers:
            return []
        starts = [(self.begin(word, closer), word, closer) for word in words for closer in closers]
        return [start for start in starts if start[0] is not None]

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
        if self.counted:
            return np.array([len(self.symbols)])
        return np.array([self.symbols.index(word) for word in self.row_words])

    @property
    def usage(self) -> str:
        words = self.inputs[:4]
        count = f"3 {COLON} " * self.counted
        if self.row_words and self.operands:
            count = f"{' '.join(self.row_words[:2])} {COLON} "
        return f"words such as {', '.join(words)}, as in {count + ' '.join(words)!r}"

    # What a person writes

    def solve(self, source: str) -> str:
        return self.read(self.text(self._read(source).answer.row(0)))

    def parse(self, source: str, *sources: str) -> Problems:
        """The problems of sources, in their order."""
        if self.rule() is None or not self.redrawn:
            first, *others = [super(WordTask, self).parse(text) for text in (source, *sources)]
            return first.joined(*others) if others else first
        return self._read(source, *sources)

    def _read(self, *sources: str) -> Problems:
        tapes = list[Ragged]()
        for number, parts in enumerate(zip(*map(self.parts, sources), strict=True)):
            if number == 0 and self.counted:
                tapes.append(self._ticks(np.array([*map(self._count, parts)])))
                continue
            front = number == 0 and self.in_front
            read = self.tokens([*map(self._row_words if front else self.words, parts)])
            tapes.append(read.reversed() if self.backward and not front else read)
        tapes = self._by_turns(tapes)
        problems = self.posed(tapes)
        if len(problems) < len(sources):
            shown = repr(sources[0]) if len(sources) == 1 else f"one of {len(sources)} sources"
            raise TaskError(f"{shown} is not a source of {self.name}: write {self.usage}")
        return problems

    def parts(self, source: str) -> list[str]:
        """The words of each part of a source."""
        parts = f" {source} ".split(f" {COLON} ") if self.delimiters else [source]
        if len(parts) != len(self.delimiters) + 1:
            raise TaskError(f"{source!r} has {len(parts)} parts: {self.name} takes {self.usage}")
        return parts

    def _row_words(self, text: str) -> list[str]:
        """What a source has in front: a word for each row."""
        if not (words := text.split()) or {*words} - {*self.row_words}:
            examples = ", ".join(self.row_words[:10])
            raise TaskError(f"{text.strip()!r} has no word for each row: give some of {examples}")
        return words

    def _count(self, text: str) -> int:
        """The number of rows in front of a source."""
        if not re.fullmatch(r"[1-9]\d{0,4}", text.strip()):
            raise TaskError(f"{text.strip()!r} is not a number of rows, 1 to 99999: {self.usage}")
        return int(text)

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
        if not self.delimiters:
            return [source.reversed() if self._flips else source]
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

    def _ticks(self, count: np.ndarray) -> Ragged:
        values = np.full((len(count), int(count.max(initial=0))), len(self.symbols), np.int16)
        return Ragged(values, count)

    def posed(self, letters: Sequence[Ragged]) -> Problems:
        """Problems with these letters, as far as they are sources whose outputs end."""
        rule = self._rule
        symbol = letters[0].values[:, 0] if self.row_words and len(letters[0]) else None
        tapes = [letters[k] for k in rule.first.tapes]
        _, code = rule.first.run(tapes, symbol)
        fits = code != NO
        total, k = np.sum([tape.lengths for tape in tapes], 0), self.stride
        for j, tape in enumerate(tapes):
            fits &= tape.lengths == (tapes[0].lengths if k == 1 else (total + k - 1 - j) // k)
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
        laid: list[Ragged] = []
        for text in self._together(tapes):
            if laid:
                laid.append(column(np.full(len(kept), self._colon, np.int16)))
            laid.append(text.reversed() if self._flips else text)
        return Problems.of(join(*laid) if len(laid) > 1 else laid[0], target)

    # Data

    def sample(
        self, rng: Rng, n: int, length: int, law: str = "uniform", exact: bool = False
    ) -> Problems:
        """``uniform``: words uniform among those that the rule takes.

        ``few``: among a few of the symbols, always the same, where the rule takes one of them: what
        a model attends to does not depend on which they are.
        """
        if law != "few":
            return super().sample(rng, n, length, law, exact)
        self.check(length, law, self.least)
        low = length if exact else min(self.shortest, length)
        return self.walked(rng, n, low, length, np.tile(self._few, (n, 1)))

    @cached_property
    def _inputs(self) -> np.ndarray:
        return np.isin(np.arange(self._rule.base), [self.symbols.index(x) for x in self.inputs])

    @cached_property
    def _few(self) -> np.ndarray:
        inputs = [self.symbols.index(word) for word in self.inputs]
        chosen = np.random.default_rng(DATA_SEED).permutation(inputs)[:FEW_SYMBOLS]
        return np.isin(np.arange(self._rule.base), chosen)

    def sample_between(self, rng: Rng, n: int, low: int, high: int) -> Problems:
        if self.rule() is not None:
            return self.walked(rng, n, low, high, np.ones((n, self._rule.base), bool))
        lengths = rng.integers(low, high + 1, n)
        numbers = np.array([self.symbols.index(word) for word in self.inputs], np.int16)
        source = from_flat(numbers[rng.integers(0, len(numbers), int(lengths.sum()))], lengths)
        answers = [self.solve(self.text(source.row(i))).split() for i in range(n)]
        return Problems.of(source, self.tokens(answers))

    def walked(self, rng: Rng, n: int, low: int, high: int, liked: np.ndarray) -> Problems:
        """``n`` sources of words uniform among those that the rule takes: see ``Transducer.walks``.

        Where none has ``low`` to ``high`` words, the longest below.
        """
        pairs = self._walked(rng, n, low, high, liked)
        for attempt in range(MOST_TRIES):
            if len(pairs) >= n:
                break
            liked = liked | (attempt == MOST_TRIES - 1)
            pairs = pairs.joined(self._walked(rng, n, low, high, liked))
        return pairs.take(np.arange(min(n, len(pairs))))

    def fronts(self, rng: Rng, n: int, low: int, high: int) -> Ragged:
        """The letters in front of ``n`` sources, drawn at random."""
        rows = rng.integers(low, high + 1, n)
        return Ragged(self._fronts[rng.integers(0, len(self._fronts), (n, high))], rows)

    def _walked(self, rng: Rng, n: int, low: int, high: int, liked: np.ndarray) -> Problems:
        """At most ``n`` of them: those that are drawn and are no sources are left out."""
        by, front = self._rule.first, list[Ragged]()
        if self.in_front:
            front.append(self.fronts(rng, n, low, high))
        if len(by.tapes) != 1:
            wide = [rng.integers(low, high + 1, n)] * self.operands
            liked = liked & self._inputs
            drawn = (
                np.where(liked[:, None], rng.random((n, high, by.base)), -1).argmax(2) for _ in wide
            )
            return self.posed(self._by_turns([*front, *map(Ragged, drawn, wide)]))
        ending = [bool(np.any(states[[*by.start]])) for states in by.ending(high)]
        possible = [k for k in range(low, high + 1) if ending[k]]
        possible = possible or [k for k in range(1, low) if ending[k]][-1:]
        if not possible:
            raise TaskError(f"{self.name} has no source of up to {high} words: give more")
        lengths = np.array(possible)[rng.integers(0, len(possible), n)]
        symbol = front[0].values[:, 0] if self.row_words else None
        return self.posed([*front, Ragged(by.walks(rng, lengths, liked, symbol), lengths)])

    def _distinct(self, kind: int, n: int, low: int, high: int) -> Problems:
        """``n`` pairs without a source twice, or as many as a few draws give."""
        rng = np.random.default_rng([DATA_SEED, kind, low, high])
        drawn = self.sample_between(rng, n + n // 4 + 64, low, high)
        inside = np.where(drawn.source.inside, drawn.source.values, -1)
        _, first = np.unique(inside, axis=0, return_index=True)
        return drawn.take(np.sort(first)[:n])

    def fresh(self, rng: Rng, n: int, length: int, law: str, exact: bool) -> Problems | None:
        if not self.redrawn:
            return None
        drawn = self.sample(rng, n + n // 4 + 8, length, law, exact)
        return drawn.take(np.flatnonzero(~_held_out(drawn.source))[:n])

    def split(self, name: str) -> Problems:
        raise self.no_split(name)

    def training_set(self, length: int) -> Problems:
        return self._distinct(0, TRAINING, min(self.shortest, length), length)

    def held_out_set(self, length: int, law: str = "uniform") -> Problems:
        """Of the training lengths; where the training set is fixed, not checked against it."""
        low = min(self.shortest, length)
        if not self.redrawn:
            return self._distinct(1, SMALL, low, length)
        drawn = self.sample(np.random.default_rng([DATA_SEED, 1]), 16 * SMALL, length, law)
        return drawn.take(np.flatnonzero(_held_out(drawn.source)))

    def is_held_out(self, source: Ragged, length: int) -> np.ndarray:
        return _held_out(source) if self.redrawn else super().is_held_out(source, length)

    def longer_set(self, length: int) -> Problems:
        return self._distinct(2, SMALL, length, length + 5)

    def test_set(self, length: int, n: int, seed: int) -> Problems:
        rng = np.random.default_rng([seed, 3, length])
        return self.sample(rng, n, length, exact=True)

    # Hard problems: few different words, of which rare states need runs

    def families(self, rng: Rng, n: int, length: int) -> dict[str, Problems]:
        if self.rule() is None:
            return super().families(rng, n, length)
        families, names = {}, ("one word, or as few as go", "two words", "three words")
        for few, name in enumerate(names, 1):
            weight = rng.random((n, self._rule.base))
            if len(self._rule.first.tapes) != 1:  # words are drawn freely, of those that may stand
                weight += ~self._inputs
            liked = weight.argsort(1).argsort(1) < few
            families[name] = self.walked(rng, n, length, length, liked)
        return families

    def mutated(self, rng: Rng, parents: Problems, n: int) -> Problems:
        *ticks, tape = self.texts(parents.take(rng.integers(0, len(parents), 4 * n)))
        values, lengths = tape.values.copy(), tape.lengths
        for _ in range(2):
            at = rng.integers(0, lengths)
            values[np.arange(4 * n), at] = rng.integers(0, len(self.symbols), 4 * n)
        mutants = self.posed(self._by_turns([*ticks, Ragged(values, lengths)])).joined(parents)
        return mutants.take(np.arange(min(n, len(mutants))))

    def smallest(self) -> list[str]:
        if self.rule() is None:
            return super().smallest()
        by, least = self._rule.first, 1
        while len(by.tapes) == 1 and not by.ending(least)[-1][[*by.start]].any():
            least += 1
        drawn = self.sample_between(np.random.default_rng(0), 16, least, least)
        return sorted({self.write(drawn, i) for i in range(len(drawn))})


MOST_TRIES = 20
"""Draws of a number of sources, where many that are drawn are none."""
FEW_SYMBOLS = 4
"""Symbols of the sampling law ``few``."""
FEW = 3
"""Sources of up to this number of words are always for training: there may be few of them."""


def _held_out(source: Ragged) -> np.ndarray:
    """``(n,)`` bool: one source in eight is kept from training, by a hash of its words."""
    values = np.where(source.inside, source.values + 1, 0).astype(np.uint64)
    mixed = np.zeros(len(values), np.uint64)
    with np.errstate(over="ignore"):
        for column in values.T:
            mixed = np.where(column > 0, (mixed ^ column) * np.uint64(0x9E3779B97F4A7C15), mixed)
            mixed ^= mixed >> np.uint64(29)
    return ((mixed >> np.uint64(40)) % np.uint64(8) == 0) & (source.lengths > FEW)


def _unticked(step: Step) -> Step:
    """The same, which does not read what counts rows."""
    return lambda state, *column: None if TICK in column else step(state, *column)
