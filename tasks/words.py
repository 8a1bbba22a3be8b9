"""Rules on words, as a finite-state machine or by code, and how their data are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from tasks.base import TaskError
from tasks.machine import machine
from tasks.rules import Rule, Tape
from tasks.tokens import Pairs, Tokens, TokenTask, from_flat

TRAINING, SMALL = 10_001, 2_001
"""Pairs of the training set and of the others, as in the code of Ray Chowdhury & Caragea."""
DATA_SEED = 20230
"""The published sets have no seed; ours are always the same."""


class WordTask(TokenTask):
    """A rule on words: a subclass has ``symbols`` and says ``step``, or ``solve`` alone.

    With ``step`` the rule is a transducer that reads one word after another, ``start`` being its
    state before the first one: it can be certified, and training draws new sources all the time.
    With ``solve`` alone 10,001 sources are drawn once. With both, ``solve`` is compared with the
    rule before anything is trained.
    """

    train_length = 10
    unit = "words"
    splits: tuple[str, ...] = ()
    #: the state before the first word
    start: Any = 0
    #: read from the last word to the first
    backward: ClassVar[bool] = False

    @property
    def redrawn(self) -> bool:  # type: ignore[override]
        """Where there is a rule, problems are drawn quickly."""
        return self.rule() is not None

    @property
    def laws(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("uniform", "few") if self.redrawn else ("uniform",)

    def step(self, state: Any, word: str) -> tuple[Any, str | None] | None:
        """The next state, and the word that is written; None in place of it closes the output.

        None in place of both where no source goes on with this word.
        """
        raise NotImplementedError

    def end(self, state: Any) -> Sequence[str] | None:
        """The words that follow the last one; None where no source may end."""
        return ()

    def rule(self) -> Rule | None:
        return self._rule if type(self).step is not WordTask.step else None

    @cached_property
    def _rule(self) -> Rule:
        first = machine(self.symbols, self.step, self.start, self.end)
        return Rule(first, forward=() if self.backward else (0,))

    def solve(self, source: str) -> str:
        words = self.tokens([self.words(source)])
        try:
            return self.text(self._written(words).row(0))
        except ValueError:
            raise TaskError(f"{source!r} is no source of {self.name}: write {self.usage}") from None

    @property
    def inputs(self) -> tuple[str, ...]:  # type: ignore[override]
        """The symbols that a source may hold: all, or those that the rule reads."""
        if not self.redrawn:
            return self.symbols
        _, letters, _, _ = self._rule.first.steps
        return tuple(self.symbols[k] for k in np.unique(letters) if k < len(self.symbols))

    @property
    def usage(self) -> str:
        words = self.inputs[:4]
        return f"words such as {', '.join(words)}, as in {' '.join(words)!r}"

    # The rule on many sources at once

    def letters(self, problems: Pairs) -> list[Tape]:
        source = problems.source.reversed() if self.backward else problems.source
        return [(source.values, source.lengths)]

    def _written(self, source: Tokens) -> Tokens:
        """What the rule writes; ``ValueError`` with the number of a row that is no source."""
        read = source.reversed() if self.backward else source
        ((values, lengths),) = self._rule.rows([(read.values, read.lengths)])
        return Tokens(values.astype(np.int16), lengths)

    def posed(self, letters: Sequence[Tape]) -> Pairs:
        ((values, lengths),) = letters
        kept = self._rule.first.accepts(letters)
        read = Tokens(values[kept].astype(np.int16), np.asarray(lengths)[kept])
        source = read.reversed() if self.backward else read
        return Pairs(source, self._written(source))

    # Data

    def sample(
        self,
        rng: np.random.Generator,
        n: int,
        length: int,
        law: str = "uniform",
        exact: bool = False,
    ) -> Pairs:
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
    def _few(self) -> np.ndarray:
        inputs = [self.symbols.index(word) for word in self.inputs]
        chosen = np.random.default_rng(DATA_SEED).permutation(inputs)[:FEW_SYMBOLS]
        return np.isin(np.arange(len(self.symbols)), chosen)

    def sample_between(self, rng: np.random.Generator, n: int, low: int, high: int) -> Pairs:
        if self.rule() is not None:
            return self.walked(rng, n, low, high, np.ones((n, len(self.symbols)), bool))
        lengths = rng.integers(low, high + 1, n)
        known = np.array([self.symbols.index(word) for word in self.inputs], np.int16)
        source = from_flat(known[rng.integers(0, len(known), int(lengths.sum()))], lengths)
        answers = [self.solve(self.text(source.row(i))).split() for i in range(n)]
        return Pairs(source, self.tokens(answers))

    def walked(
        self, rng: np.random.Generator, n: int, low: int, high: int, liked: np.ndarray
    ) -> Pairs:
        """Sources of words uniform among those that the rule takes: see ``Transducer.walks``."""
        by = self._rule.first
        possible = [k for k in range(low, high + 1) if by.ending(k)[-1][by.start[0]]]
        if not possible:
            raise TaskError(f"{self.name} has no source of {low} to {high} words: give others")
        lengths = np.array(possible)[rng.integers(0, len(possible), n)]
        return self.posed([(by.walks(rng, lengths, liked), lengths)])

    def _distinct(self, kind: int, n: int, low: int, high: int) -> Pairs:
        """``n`` pairs without a source twice, or as many as a few draws give."""
        rng = np.random.default_rng([DATA_SEED, kind, low, high])
        drawn = self.sample_between(rng, n + n // 4 + 64, low, high)
        inside = np.where(drawn.source.inside, drawn.source.values, -1)
        _, first = np.unique(inside, axis=0, return_index=True)
        return drawn.take(np.sort(first)[:n])

    def fresh(
        self, rng: np.random.Generator, n: int, length: int, law: str, exact: bool
    ) -> Pairs | None:
        if not self.redrawn:
            return None
        drawn = self.sample(rng, n + n // 4 + 8, length, law, exact)
        return drawn.take(np.flatnonzero(~_held_out(drawn.source))[:n])

    def split(self, name: str) -> Pairs:
        raise self.no_split(name)

    def training_set(self, length: int) -> Pairs:
        return self._distinct(0, TRAINING, min(self.shortest, length), length)

    def held_out_set(self, length: int, law: str = "uniform") -> Pairs:
        """Of the training lengths; where the training set is fixed, not checked against it."""
        low = min(self.shortest, length)
        if not self.redrawn:
            return self._distinct(1, SMALL, low, length)
        drawn = self.sample(np.random.default_rng([DATA_SEED, 1]), 16 * SMALL, length, law)
        return drawn.take(np.flatnonzero(_held_out(drawn.source)))

    def is_held_out(self, source: Tokens, length: int) -> np.ndarray:
        return _held_out(source) if self.redrawn else super().is_held_out(source, length)

    def longer_set(self, length: int) -> Pairs:
        return self._distinct(2, SMALL, length, length + 5)

    def test_set(self, length: int, n: int, seed: int) -> Pairs:
        rng = np.random.default_rng([seed, 3, length])
        return self.sample(rng, n, length, exact=True)

    # Hard problems: few different words, of which rare states need runs

    def families(self, rng: np.random.Generator, n: int, length: int) -> dict[str, Pairs]:
        if self.rule() is None:
            return super().families(rng, n, length)
        found, names = {}, ("one word, or as few as go", "two words", "three words")
        for few, name in enumerate(names, 1):
            liked = rng.random((n, len(self.symbols))).argsort(1).argsort(1) < few
            found[name] = self.walked(rng, n, length, length, liked)
        return found

    def hard(self, rng: np.random.Generator, n: int, length: int) -> Pairs:
        first, *others = self.families(rng, -(-n // 3), length).values()
        problems = first.joined(*others)
        return problems.take(rng.permutation(len(problems))[:n])

    def mutated(self, rng: np.random.Generator, parents: Pairs, n: int) -> Pairs:
        ((values, lengths),) = self.letters(parents.take(rng.integers(0, len(parents), 4 * n)))
        values = values.copy()
        for _ in range(2):
            at = rng.integers(0, lengths)
            values[np.arange(4 * n), at] = rng.integers(0, len(self.symbols), 4 * n)
        made = self.posed([(values, lengths)]).joined(parents)
        return made.take(np.arange(min(n, len(made))))

    def smallest(self) -> list[str]:
        if self.rule() is None:
            return super().smallest()
        by = self._rule.first
        least = next(k for k in range(1, by.states + 1) if by.ending(k)[-1][by.start[0]])
        drawn = self.sample_between(np.random.default_rng(0), 16, least, least)
        return sorted({self.write(drawn, i) for i in range(len(drawn))})


FEW_SYMBOLS = 4
"""Symbols of the sampling law ``few``."""
FEW = 3
"""Sources of so many words are always for training: there may be few of them."""


def _held_out(source: Tokens) -> np.ndarray:
    """``(n,)`` bool: one source in eight is kept from training, by a hash of its words."""
    values = np.where(source.inside, source.values + 1, 0).astype(np.uint64)
    mixed = np.zeros(len(values), np.uint64)
    with np.errstate(over="ignore"):
        for column in values.T:
            mixed = np.where(column > 0, (mixed ^ column) * np.uint64(0x9E3779B97F4A7C15), mixed)
            mixed ^= mixed >> np.uint64(29)
    return ((mixed >> np.uint64(40)) % np.uint64(8) == 0) & (source.lengths > FEW)
