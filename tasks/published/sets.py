"""Tasks whose pairs are a fixed list, in sets for training, validation and test."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

import numpy as np

from tasks.base import Problems, TaskError
from tasks.ragged import Rng
from tasks.tokens import TokenTask


class SetTask(TokenTask):
    """A subclass has ``sets``. As in the public code of the attenders, its sources end with a
    literal ``<eos>``, and models are chosen by the validation set."""

    closes_source = True
    splits = ("train", "validation", "test")
    #: the sets that ``sample`` draws from
    drawn_from: ClassVar[tuple[str, ...]] = splits

    @cached_property
    def sets(self) -> dict[str, Problems]:
        """The pairs by the names in ``splits``."""
        raise NotImplementedError

    def split(self, name: str) -> Problems:
        if name not in self.splits:
            return super().split(name)
        return self.sets[name]

    def sample_between(self, rng: Rng, n: int, low: int, high: int) -> Problems:
        """Draw pairs, with repetition, with targets of ``low`` to ``high`` tokens."""
        sets = [self.sets[name].between(low, high) for name in self.drawn_from]
        sizes = [len(pairs) for pairs in sets]
        if not sum(sizes):
            raise TaskError(
                f"no source of {self.name} has {high} {self.unit}: choose another length"
            )
        which = rng.choice(len(sets), n, p=np.array(sizes) / sum(sizes))
        parts = [p.take(rng.integers(0, len(p), (which == i).sum())) for i, p in enumerate(sets)]
        return parts[0].joined(*parts[1:]).take(rng.permutation(n))

    def training_set(self, length: int) -> Problems:
        return self.sets["train"].between(0, length)

    def held_out_set(self, length: int, law: str = "uniform") -> Problems:
        return self.sets["validation"]

    def longer_set(self, length: int) -> Problems:
        return self.held_out_set(length)

    def test_set(self, length: int, n: int, seed: int) -> Problems:
        """Those of the test set, or where it has none of that length, held-out ones."""
        pairs = self.sets["test"].between(length, length)
        if not len(pairs):
            pairs = self.sets["validation"].between(length, length)
        if not len(pairs):
            lengths = ", ".join(map(str, np.unique(self.sets["test"].answer.lengths)))
            raise TaskError(
                f"no test of {self.name} has {length} {self.unit}: choose among {lengths}"
            )
        return pairs.drawn(n, seed, 3, length)
