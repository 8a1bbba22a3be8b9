"""Tasks on tokens: a source and a target are words separated by spaces.

In bulk they are arrays of token numbers, an index into ``task.symbols``. No row holds an end:
closing a sequence is the affair of ``abc_calib.data``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tasks.base import Task, TaskError

EOS = "<eos>"
"""A token that some published sources end with; a target is closed by the model's own end."""


@dataclass(frozen=True)
class Tokens:
    """``n`` sequences: ``values (n, width)`` int16 aligned at the left, ``lengths (n,)``.

    What stands in ``values`` behind a row's length means nothing.
    """

    values: np.ndarray
    lengths: np.ndarray

    def __len__(self) -> int:
        return len(self.values)

    @property
    def inside(self) -> np.ndarray:
        """``(n, width)`` bool: which places hold a token."""
        return np.arange(self.values.shape[1]) < self.lengths[:, None]

    @property
    def flat(self) -> np.ndarray:
        """All tokens, row after row."""
        return self.values[self.inside]

    def take(self, rows: np.ndarray) -> Tokens:
        return Tokens(self.values[rows], self.lengths[rows])

    def reversed(self) -> Tokens:
        """Each row from its last token to its first."""
        columns = self.lengths[:, None] - 1 - np.arange(self.values.shape[1])
        return Tokens(np.take_along_axis(self.values, np.maximum(columns, 0), 1), self.lengths)

    def row(self, index: int) -> np.ndarray:
        return self.values[index, : self.lengths[index]]


def from_flat(flat: np.ndarray, lengths: np.ndarray) -> Tokens:
    """The inverse of ``Tokens.flat``."""
    lengths = np.asarray(lengths, np.int64)
    values = np.zeros((len(lengths), int(lengths.max(initial=0))), np.int16)
    values[np.arange(values.shape[1]) < lengths[:, None]] = flat
    return Tokens(values, lengths)


def stack(parts: Sequence[Tokens]) -> Tokens:
    """The rows of all, one below the other."""
    flat = np.concatenate([part.flat for part in parts])
    return from_flat(flat, np.concatenate([part.lengths for part in parts]))


@dataclass(frozen=True)
class Pairs:
    """Sources and their targets, row by row."""

    source: Tokens
    target: Tokens

    def __len__(self) -> int:
        return len(self.source)

    def take(self, rows: np.ndarray) -> Pairs:
        return Pairs(self.source.take(rows), self.target.take(rows))

    def joined(self, *others: Pairs) -> Pairs:
        parts = (self, *others)
        return Pairs(stack([p.source for p in parts]), stack([p.target for p in parts]))

    def between(self, low: int, high: int) -> Pairs:
        """Those with a target of ``low`` to ``high`` tokens."""
        lengths = self.target.lengths
        return self.take(np.flatnonzero((low <= lengths) & (lengths <= high)))

    def drawn(self, n: int, *seed: int) -> Pairs:
        """At most ``n`` of them, in an order that follows from ``seed``."""
        return self.take(np.random.default_rng(seed).permutation(len(self))[:n])


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
        self,
        rng: np.random.Generator,
        n: int,
        length: int,
        law: str = "uniform",
        exact: bool = False,
    ) -> Pairs:
        """Draw ``n`` pairs of lengths from ``shortest`` (``exact``: all) to ``length``."""
        self.check(length, law, self.least)
        return self.sample_between(rng, n, length if exact else min(self.shortest, length), length)

    def sample_between(self, rng: np.random.Generator, n: int, low: int, high: int) -> Pairs:
        """Draw ``n`` pairs of lengths from ``low`` to ``high``, both possible."""
        raise NotImplementedError

    @abstractmethod
    def split(self, name: str) -> Pairs:
        """A set of data of the papers by its name; ``TaskError`` names those that there are."""

    @abstractmethod
    def training_set(self, length: int) -> Pairs:
        """Everything that a model trains on, up to ``length``."""

    def fresh(
        self, rng: np.random.Generator, n: int, length: int, law: str, exact: bool
    ) -> Pairs | None:
        """``n`` training problems that are drawn now; None where the training set is fixed."""
        return None

    def pass_size(self, length: int) -> int:
        """The whole training set."""
        return len(self.training_set(length))

    @abstractmethod
    def held_out_set(self, length: int, law: str = "uniform") -> Pairs:
        """Held-out pairs of the training lengths."""

    def is_held_out(self, source: Tokens, length: int) -> np.ndarray:
        """Which sources are among the held-out pairs, ``(n,)`` bool."""
        held_out = self.held_out_set(length).source
        texts = {tuple(held_out.row(i)) for i in range(len(held_out))}
        return np.array([tuple(source.row(i)) in texts for i in range(len(source))])

    @abstractmethod
    def longer_set(self, length: int) -> Pairs:
        """What the papers choose a model by: somewhat longer than what it trained on."""

    @abstractmethod
    def test_set(self, length: int, n: int, seed: int) -> Pairs:
        """At most ``n`` pairs of exactly ``length``, none of them for training."""

    def gold_attention(self, source: str) -> list[int]:
        """Which word of ``source`` (from 0) each target token is read from.

        ``TaskError`` where nothing says so.
        """
        raise TaskError(f"{self.name} has no gold attention: no rule says where a token comes from")

    def parse(self, source: str) -> Pairs:
        answer = self.solve(source)
        return Pairs(self.tokens([self.words(source)]), self.tokens([answer.split()]))

    def write(self, problems: Pairs, row: int) -> str:
        return self.text(problems.source.row(row))

    def read(self, output: str) -> str:
        return " ".join(output.split())

    def words(self, source: str) -> list[str]:
        """The words of a source; ``TaskError`` for one that is none of the task's."""
        words = source.split()
        if self.closes_source and words[-1:] == [EOS]:
            words = words[:-1]
        if not words:
            raise TaskError(f"an empty source: {self.name} takes {self.usage}")
        for word in words:
            if word not in self.inputs:
                raise TaskError(f"{word!r} is not a token of {self.name}: it takes {self.usage}")
        return words

    @property
    @abstractmethod
    def usage(self) -> str:
        """How a source is written, for messages."""

    def text(self, tokens: np.ndarray) -> str:
        words = (*self.symbols, *self.separators)
        return " ".join(words[token] for token in tokens)

    def tokens(self, rows: Sequence[Sequence[str]]) -> Tokens:
        """Rows of words, all of them symbols."""
        numbers = {symbol: i for i, symbol in enumerate(self.symbols)}
        flat = np.array([numbers[word] for row in rows for word in row], np.int16)
        return from_flat(flat, np.array([len(row) for row in rows]))

    def check(self, length: int, law: str, shortest: int) -> None:
        """``TaskError`` unless pairs of that length can be drawn by that law."""
        if law not in self.laws:
            raise TaskError(
                f"{self.name} has no sampling law {law!r}: choose {' or '.join(self.laws)}"
            )
        if length < shortest:
            raise TaskError(
                f"length {length} is not possible for {self.name}: give {shortest} or more"
            )

    def no_split(self, name: str) -> TaskError:
        return TaskError(f"{self.name} has no set {name!r}: choose one of {', '.join(self.splits)}")


def join(*parts: Tokens) -> Tokens:
    """Row by row, the tokens of each part one after another."""
    lengths = np.sum([part.lengths for part in parts], axis=0)
    values = np.zeros((len(parts[0]), int(lengths.max(initial=0))), np.int16)
    start = np.zeros(len(values), np.int64)
    for part in parts:
        rows, columns = np.nonzero(part.inside)
        values[rows, start[rows] + columns] = part.values[rows, columns]
        start = start + part.lengths
    return Tokens(values, lengths)


def column(values: np.ndarray) -> Tokens:
    """Rows of one token each."""
    return Tokens(values.astype(np.int16)[:, None], np.ones(len(values), np.int64))
