"""Tasks on tokens: a source and a target are words separated by spaces.

In bulk they are arrays of token numbers, an index into ``task.symbols``. No row holds an end:
closing a sequence is the affair of ``abc_calib.data``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from tasks.base import Problems, Task, TaskError, not_a_source
from tasks.ragged import Ragged, Rng, from_flat

EOS = "<eos>"
"""A token that some published sources end with; a target is closed by the model's own end."""


class TokenTask(Task):
    """A rule on tokens, with the sets of data that its papers trained and tested on.

    ``inputs`` are the symbols that a source may hold. ``shortest`` and ``train_length`` are the
    lengths of training; what a task counts as length, its class says.
    """

    notation = "tokens"
    laws = ("uniform",)
    unit = "tokens"
    delimiters = ()
    inputs: tuple[str, ...]
    shortest: int = 1
    #: the shortest length that ``sample`` takes
    least: int = 1
    #: names that ``split`` takes; a name that ends in ``N`` stands for any number there
    splits: tuple[str, ...]
    #: does training draw new sources all the time?
    redrawn: bool = False
    #: the source that models read ends with a literal ``<eos>``
    closes_source: bool = False

    def sample(
        self, rng: Rng, n: int, length: int, law: str = "uniform", exact: bool = False
    ) -> Problems:
        """Draw ``n`` pairs of lengths from ``shortest`` (``exact``: all) to ``length``."""
        self.check_sampling(length, law, self.least)
        return self.sample_between(rng, n, length if exact else min(self.shortest, length), length)

    def sample_between(self, rng: Rng, n: int, low: int, high: int) -> Problems:
        """Draw ``n`` pairs of lengths from ``low`` to ``high``, both possible."""
        raise NotImplementedError

    def split(self, name: str) -> Problems:
        """A set of data of the papers by its name; ``TaskError`` names those that there are."""
        sets = ", ".join(self.splits)
        raise TaskError(f"{self.name} has no set {name!r}: choose one of {sets}")

    @abstractmethod
    def training_set(self, length: int) -> Problems:
        """Everything that a model trains on, up to ``length``."""

    def fresh(self, rng: Rng, n: int, length: int, law: str, exact: bool) -> Problems | None:
        """``n`` training problems that are drawn now; None where the training set is fixed."""
        return None

    def pass_size(self, length: int) -> int:
        """The whole training set."""
        return len(self.training_set(length))

    @abstractmethod
    def held_out_set(self, length: int, law: str = "uniform") -> Problems:
        """Held-out pairs of the training lengths."""

    def is_held_out(self, source: Ragged, length: int) -> np.ndarray:
        """Which sources are among the held-out pairs, ``(n,)`` bool."""
        held_out = self.held_out_set(length).source
        texts = {tuple(held_out.row(i)) for i in range(len(held_out))}
        return np.array([tuple(source.row(i)) in texts for i in range(len(source))])

    @abstractmethod
    def longer_set(self, length: int) -> Problems:
        """What the papers choose a model by: somewhat longer than what it trained on."""

    @abstractmethod
    def test_set(self, length: int, n: int, seed: int) -> Problems:
        """At most ``n`` pairs of exactly ``length``, none of them for training."""

    def gold_attention(self, source: str) -> list[int]:
        """Which word of ``source`` (from 0) each target token is read from.

        ``TaskError`` where nothing says so.
        """
        raise TaskError(f"{self.name} has no gold attention: no rule says where a token comes from")

    def parse(self, source: str) -> Problems:
        answer = self.solve(source)
        return Problems.of(self.tokens([self.words(source)]), self.tokens([answer.split()]))

    def write(self, problems: Problems, row: int) -> str:
        return self.text(problems.source.row(row))

    def read(self, output: str) -> str:
        return " ".join(output.split())

    def words(self, source: str) -> list[str]:
        """The words of a source; ``TaskError`` for one that is none of the task's."""
        words = source.split()
        if self.closes_source and words[-1:] == [EOS]:
            words = words[:-1]
        if not words:
            raise not_a_source(self, source, "it is empty")
        for word in words:
            if word not in self.inputs:
                raise not_a_source(self, source, f"{word!r} is not one of its tokens")
        return words

    @property
    @abstractmethod
    def usage(self) -> str:
        """How a source is written, for messages."""

    def text(self, tokens: np.ndarray) -> str:
        words = (*self.symbols, *self.separators)
        return " ".join(words[token] for token in tokens)

    def tokens(self, rows: Sequence[Sequence[str]]) -> Ragged:
        """Rows of words, all of them symbols or separators."""
        numbers = {symbol: i for i, symbol in enumerate((*self.symbols, *self.separators))}
        if unknown := {word for row in rows for word in row} - {*numbers}:
            raise TaskError(f"{min(unknown)!r} is written and is not a symbol of {self.name}")
        flat = np.array([numbers[word] for row in rows for word in row], np.int16)
        return from_flat(flat, np.array([len(row) for row in rows]))
