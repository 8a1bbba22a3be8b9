"""Data of tasks on tokens: a fixed training set in shuffled passes, and the papers' test sets.

A model reads ``$ source &`` and writes ``target &``, as in arithmetic; the tokens keep the order
in which a person writes them. A source that is published with a literal ``<eos>`` at its end
has the model's end sign twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch

from abc_calib.data.digits import Batch
from abc_calib.data.vocabulary import Vocabulary
from abc_calib.errors import UsageError
from tasks import Pairs, TaskError, Tokens, TokenTask

TEST_SIZE = 5_000
"""Problems of a length that are tested by default: all of a published set."""


class TokenSource:
    """Draws batches of one task on tokens.

    Training goes through the task's training set again and again, in an order that follows from
    ``seed`` and the pass. ``dev`` is what models are chosen by: ``same``, held-out problems of
    the training lengths, or ``longer``, the papers' own set, which is somewhat longer.
    """

    def __init__(self, task: TokenTask, seed: int, length: int, dev: str = "same"):
        if length < task.shortest:
            raise UsageError(
                f"length {length} is not possible for {task.name}: give {task.shortest} or more"
            )
        self.task = task
        named = [name for name in task.splits if not name.endswith("N")]
        self.tests = {"random": "uniform", **{name: name for name in named}}
        self.vocabulary = Vocabulary(task)
        self.seed = seed
        self.length = length
        self.dev = dev
        self._order: tuple[int, np.ndarray] | None = None

    @property
    def segments(self) -> int:
        """A source is one part: no delimiter stands inside it."""
        return 1

    @property
    def column(self) -> int:
        return 1

    @cached_property
    def everything(self) -> Batch:
        """The whole training set."""
        return self.lay_out(self.task.training_set(self.length))

    def steps_a_pass(self, n: int) -> int:
        """Batches of ``n`` that the training set makes; the last may be smaller."""
        return -(-len(self.everything) // n)

    def training(self, step: int, n: int, exact: bool = False) -> Batch:
        """The training batch of a step; with ``exact``, ``n`` problems of the longest targets."""
        everything = self.everything
        if exact:
            lengths = everything.problems.target.lengths  # type: ignore[attr-defined]
            longest = np.flatnonzero(lengths == lengths.max())
            rng = np.random.default_rng([self.seed, 1, step])
            return self._taken(everything, rng.permutation(longest)[:n])
        number, part = divmod(step, self.steps_a_pass(n))
        if self._order is None or self._order[0] != number:
            rng = np.random.default_rng([self.seed, 1, number])
            self._order = number, rng.permutation(len(everything))
        return self._taken(everything, self._order[1][part * n : (part + 1) * n])

    def _taken(self, batch: Batch, rows: np.ndarray) -> Batch:
        """These rows, without columns of padding alone."""
        index = torch.from_numpy(rows)
        pad = self.vocabulary.pad
        source, target = (
            ids[:, : int(ids.ne(pad).sum(1).max())]
            for ids in (batch.source[index], batch.target[index])
        )
        return Batch(source, target, batch.problems.take(rows))

    def validation(self, n: int) -> Batch:
        """What training goes by: see ``dev``."""
        chosen = self.task.longer_set if self.dev == "longer" else self.task.held_out_set
        pairs = chosen(self.length)
        if not len(pairs):
            raise UsageError(f"{self.task.name} has no held-out problems up to {self.length}")
        return self.lay_out(pairs.take(np.arange(min(n, len(pairs)))))

    def test(self, length: int, n: int, law: str = "uniform", seed: int = 0) -> Batch:
        """At most ``n`` problems of exactly ``length``; ``TaskError`` if there is none."""
        return self.lay_out(self.task.test_set(length, n, seed))

    def batches(
        self, kind: str, lengths: Sequence[int], samples: int | None, seed: int
    ) -> Iterator[tuple[int, Batch]]:
        """The test sets of a kind, each with its length: one for each of ``lengths``, or one of
        the papers' sets with its longest target's."""
        if kind == "random":
            for length in lengths:
                yield length, self.test(length, samples or TEST_SIZE, seed=seed)
            return
        pairs = self.task.split(kind)
        longest, _ = self.extent(kind, 1)
        order = np.random.default_rng([seed, 5]).permutation(len(pairs))
        pairs = pairs.take(np.sort(order[:samples]))
        yield longest, self.lay_out(pairs)

    def gold_attention(self, batch: Batch) -> list[list[int]] | None:
        """For each row the word that each target token is read from; None if nothing says so."""
        pairs: Any = batch.problems
        try:
            return [
                self.task.gold_attention(self.task.write(pairs, row)) for row in range(len(pairs))
            ]
        except TaskError:
            return None

    def extent(self, kind: str, length: int) -> tuple[int, int]:
        """The length that a test of a kind is stored under, and how many problems it has."""
        if kind == "random":
            return length, self.test_size(length)
        pairs = self.task.split(kind)
        return int(pairs.target.lengths.max()), len(pairs)

    def test_size(self, length: int) -> int:
        return len(self.task.test_set(length, TEST_SIZE, 0))

    def source_tokens(self, length: int) -> int:
        return len(self.test(length, 1).source[0])

    def shortened(self, length: int) -> TokenSource:
        return TokenSource(self.task, self.seed, max(length, self.task.shortest), self.dev)

    def lay_out(self, problems: Pairs) -> Batch:
        vocabulary = self.vocabulary
        closes = 2 if self.task.closes_source else 1
        source = _filled(problems.source, vocabulary, 1, closes)
        source[:, 0] = vocabulary.sos
        target = _filled(problems.target, vocabulary, 0, 1)
        return Batch(torch.from_numpy(source), torch.from_numpy(target), problems)

    def read(self, output: Sequence[str]) -> str:
        return self.task.read(" ".join(output))


def _filled(tokens: Tokens, vocabulary: Vocabulary, before: int, closes: int) -> np.ndarray:
    """Ids ``(n, longest)`` int64: ``before`` columns, the tokens, ``closes`` times EOS, PAD."""
    width = int(tokens.lengths.max(initial=0))
    ids = np.full((len(tokens), before + width + closes), vocabulary.pad, np.int64)
    inside = np.arange(width) < tokens.lengths[:, None]
    ids[:, before : before + width] = np.where(inside, tokens.values[:, :width], vocabulary.pad)
    for i in range(closes):
        ids[np.arange(len(tokens)), before + tokens.lengths + i] = vocabulary.eos
    return ids
