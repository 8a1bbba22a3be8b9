"""Data of tasks on tokens: what they train on, and the papers' test sets.

A model reads ``$ source &`` and writes ``target &``, as in arithmetic; the tokens keep the order
in which a person writes them. A source that is published with a literal ``<eos>`` at its end
has the model's end sign twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from abc_calib.config import TrainOptions
from abc_calib.data.base import Batch, Data
from abc_calib.data.formats import as_ids
from abc_calib.data.vocabulary import EOS, SOS
from abc_calib.errors import OptionError, UsageError
from abc_calib.geometry import Layout
from tasks import Problems, TaskError, TokenTask

UNTRAINED = 2**31 + 5
"""A step that no training reaches."""
TEST_SIZE = 5_000
"""Problems of a length that are tested by default: all of a published set."""


class TokenData(Data):
    """Draws batches of one task on tokens.

    Training goes through the task's training set again and again, in an order that follows from
    the seed and the pass, or draws new problems where the task does. ``dev`` is what models are
    chosen by: ``same``, held-out problems of the training lengths, or ``longer``, the papers' own
    set, which is somewhat longer.
    """

    task: TokenTask
    decoded = True
    in_rows: ClassVar[bool] = False
    """Have outputs several rows?"""
    drawn = ("random", "hard")
    """Test sets that there are of every length."""

    def __init__(self, task: TokenTask, options: TrainOptions):
        super().__init__(task, options)
        if options.format != "free":
            raise OptionError("format", options.format, f"{task.name} has only the format free")
        task.check_sampling(options.length, options.sampling, task.shortest)
        names = [name for name in task.splits if not name.endswith("N")]
        self.tests = (*(self.drawn if task.redrawn else ("random",)), *names)
        self._order: tuple[int, np.ndarray] | None = None

    @cached_property
    def everything(self) -> Batch:
        """The whole training set."""
        return self.lay_out(self.task.training_set(self.length))

    def training(self, step: int, n: int, exact: bool = False) -> Batch:
        """The training batch of a step; with ``exact``, ``n`` problems of the longest targets."""
        rng, law = np.random.default_rng([self.seed, 1, step]), self.options.sampling
        if (fresh := self.task.fresh(rng, n, self.length, law, exact)) is not None:
            return self.lay_out(fresh)
        everything = self.everything
        if exact:
            lengths = everything.problems.answer.lengths  # type: ignore[attr-defined]
            longest = np.flatnonzero(lengths == lengths.max())
            return everything.take(rng.permutation(longest)[:n]).cut(self.vocabulary.pad)
        number, part = divmod(step, -(-len(everything) // n))
        if self._order is None or self._order[0] != number:
            rng = np.random.default_rng([self.seed, 1, number])
            self._order = number, rng.permutation(len(everything))
        rows = self._order[1][part * n : (part + 1) * n]
        return everything.take(rows).cut(self.vocabulary.pad)

    def validation(self, n: int) -> Batch:
        """What training goes by: see ``dev``."""
        longer = self.options.dev == "longer"
        if longer:
            pairs = self.task.longer_set(self.length)
        else:
            pairs = self.task.held_out_set(self.length, self.options.sampling)
        if not len(pairs):
            raise UsageError(f"{self.task.name} has no held-out problems up to {self.length}")
        return self.lay_out(pairs.take(np.arange(min(n, len(pairs)))))

    def test(self, length: int, n: int, kind: str = "random", seed: int = 0) -> Batch:
        """At most ``n`` problems of a set: of exactly ``length`` if they are ``random`` or
        ``hard``, else of one of the papers' sets, whatever the length. ``TaskError`` if there is
        none. Where training is of ``few`` symbols, so are they."""
        if kind in self.drawn and self.options.sampling != self.task.sampling:
            law, rng = self.options.sampling, np.random.default_rng([seed, 7, length])
            return self.lay_out(self.task.sample(rng, n, length, law, exact=True))
        if kind == "random":
            return self.lay_out(self.task.test_set(length, n, seed))
        if kind in self.drawn:
            return self.lay_out(self.task.hard(np.random.default_rng([seed, 6, length]), n, length))
        pairs = self.task.split(kind)
        order = np.random.default_rng([seed, 5]).permutation(len(pairs))
        return self.lay_out(pairs.take(np.sort(order[:n])))

    def may_train(self, problems: Problems) -> bool:
        """Is the first of ``problems`` of a training size, and not held out?"""
        held_out = self.task.is_held_out(problems.source, self.length)
        return self.size_of(problems) <= self.length and not held_out[0]

    def gold_attention(self, batch: Batch) -> list[list[int]] | None:
        pairs: Any = batch.problems
        try:
            return [
                self.task.gold_attention(self.task.write(pairs, row)) for row in range(len(pairs))
            ]
        except TaskError:
            return None

    def tests_of(self, kind: str, lengths: Sequence[int]) -> list[tuple[int, int]]:
        """One of the papers' sets has the length of its longest target, whatever is asked for."""
        if kind in self.drawn:
            return super().tests_of(kind, lengths)
        pairs = self.task.split(kind)
        return [(int(pairs.answer.lengths.max()), len(pairs))]

    def test_size(self, length: int) -> int:
        return len(self.task.test_set(length, TEST_SIZE, 0))

    def shortened(self, length: int) -> Self:
        return super().shortened(max(length, self.task.shortest))

    def lay_out(self, problems: Problems) -> Batch:
        vocabulary = self.vocabulary
        closes = [vocabulary.eos] * (2 if self.task.closes_source else 1)
        source = as_ids([vocabulary.sos, problems.source, *closes], vocabulary.pad)
        target = as_ids([problems.answer, vocabulary.eos], vocabulary.pad)
        return Batch(source, target, problems)

    def layout(self, problems: Problems) -> Layout:
        between = len(self.task.delimiters)
        return self.layout_at((int(problems.source.lengths[0]) - between) // (1 + between))

    def layout_at(self, length: int) -> Layout:
        return self._layout((length,) * (1 + len(self.task.delimiters)))

    def _layout(self, widths: tuple[int, ...]) -> Layout:
        words = len(widths) == 1 and not self.in_rows
        return Layout(widths, (SOS, *self.task.delimiters, EOS), words=words)

    def output_steps(self, length: int) -> int:
        if self.task.delimiters or self.in_rows:
            drawn = self.task.sample(np.random.default_rng(0), 4, length, exact=True)
            return 2 + int(drawn.answer.lengths.max())
        longest = self.training(0, 64, exact=True)
        return 1 + (longest.target.shape[1] - 1) * length // (longest.source.shape[1] - 2)

    def spelling(self) -> dict[str, Any] | None:
        """The words, and how many ends close a source."""
        if self.task.delimiters or self.in_rows:
            return None
        return {
            "notation": self.task.notation,
            "words": self.task.symbols,
            "closes": 2 if self.task.closes_source else 1,
            "usage": self.task.usage,
        }

    def read(self, output: Sequence[str]) -> str:
        return self.task.read(" ".join(output))


class RowWordData(TokenData):
    """Batches of rules on words whose outputs have rows; a length is that of source and count."""

    task: Any
    fit = "rows"
    in_rows = True

    def __init__(self, task: Any, options: TrainOptions):
        super().__init__(task, options)
        self.coupling = "first" if task.in_front else "own"
        self.above = not task.rereads

    def training_of_few_digits(self, n: int) -> Batch:
        """Training problems in which tokens repeat, so that windows do."""
        return self.training(UNTRAINED, n)

    def layout(self, problems: Problems) -> Layout:
        return self._layout(tuple(int(text.lengths[0]) for text in self.task.texts(problems)))

    def digits_of(self, length: int) -> int:
        return self.output_steps(length)
