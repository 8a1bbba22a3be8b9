"""Rules on words whose sets of data are drawn: what a task on tokens has besides its rule."""

from __future__ import annotations

import numpy as np

from tasks.tokens import Pairs, TokenTask, from_flat

TRAINING, SMALL = 10_001, 2_001
"""Pairs of the training set and of the others, as in the code of Ray Chowdhury & Caragea."""
DATA_SEED = 20230
"""The published sets have no seed; ours are always the same."""


class WordTask(TokenTask):
    """A rule on words that are drawn uniformly; a subclass has ``symbols`` and says ``solve``."""

    train_length = 10
    splits: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[str, ...]:  # type: ignore[override]
        """The symbols that a source may hold: all."""
        return self.symbols

    @property
    def usage(self) -> str:
        words = self.inputs[:4]
        return f"words such as {', '.join(words)}, as in {' '.join(words)!r}"

    def sample_between(self, rng: np.random.Generator, n: int, low: int, high: int) -> Pairs:
        lengths = rng.integers(low, high + 1, n)
        known = np.array([self.symbols.index(word) for word in self.inputs], np.int16)
        source = from_flat(known[rng.integers(0, len(known), int(lengths.sum()))], lengths)
        answers = [self.solve(self.text(source.row(i))).split() for i in range(n)]
        return Pairs(source, self.tokens(answers))

    def _distinct(self, kind: int, n: int, low: int, high: int) -> Pairs:
        """``n`` pairs without a source twice, or as many as a few draws give."""
        rng = np.random.default_rng([DATA_SEED, kind, low, high])
        drawn = self.sample_between(rng, n + n // 4 + 64, low, high)
        inside = np.where(drawn.source.inside, drawn.source.values, -1)
        _, first = np.unique(inside, axis=0, return_index=True)
        return drawn.take(np.sort(first)[:n])

    def split(self, name: str) -> Pairs:
        raise self.no_split(name)

    def training_set(self, length: int) -> Pairs:
        return self._distinct(0, TRAINING, min(self.shortest, length), length)

    def held_out_set(self, length: int) -> Pairs:
        """Of the training lengths; as in the paper, not checked against the training set."""
        return self._distinct(1, SMALL, min(self.shortest, length), length)

    def longer_set(self, length: int) -> Pairs:
        return self._distinct(2, SMALL, length, length + 5)

    def test_set(self, length: int, n: int, seed: int) -> Pairs:
        rng = np.random.default_rng([seed, 3, length])
        return self.sample(rng, n, length, exact=True)
