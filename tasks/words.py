"""Tasks on words: how the problems of their rules are drawn."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from tasks.base import MOST_TRIES, Problems, TaskError
from tasks.ragged import Ragged, Rng, from_flat
from tasks.word_rule import WordRule

TRAINING, SMALL = 10_001, 2_001
"""Problems of the training set and of the others, as in the code of Ray Chowdhury & Caragea."""
DATA_SEED = 20230
"""The published sets have no seed; ours are always the same."""


class WordTask(WordRule):
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

    @property
    def laws(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("uniform", "few") if self.redrawn else ("uniform",)

    def sample(
        self, rng: Rng, n: int, length: int, law: str = "uniform", exact: bool = False
    ) -> Problems:
        """``uniform``: words uniform among those that the rule takes.

        ``few``: among a few of the symbols, always the same, where the rule takes one of them: what
        a model attends to does not depend on which they are.
        """
        if law != "few":
            return super().sample(rng, n, length, law, exact)
        self.check_sampling(length, law, self.least)
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
        if self.redrawn:
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
        for attempt in range(1, MOST_TRIES + 1):
            if len(pairs) >= n:
                break
            liked = liked | (attempt == MOST_TRIES)
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
