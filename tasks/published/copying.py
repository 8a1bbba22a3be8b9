"""The copy family of Ray Chowdhury & Caragea (2023), section 2 and appendix A.

Sources are digits, independent and uniform. A length counts the side that is not repeated
(``dedupe``: the runs drawn; ``posretrieve``: the source). In the tasks with repetition a digit
stands once if it is 3 or less, three times from 4 to 6, five times from 7 on.
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import Any, ClassVar

import numpy as np

from tasks.base import Problems, TaskError
from tasks.ragged import Ragged, Rng, from_flat
from tasks.tokens import EOS, TokenTask
from tasks.words import SMALL, WordTask

REPEATS = np.array([1, 1, 1, 1, 3, 3, 3, 5, 5, 5])
"""How often each digit stands where digits are repeated."""
RUNS = np.array([1, 3, 5])
"""Lengths of a run in ``dedupe``."""


class Copying(WordTask):
    """What the tasks of the family share: drawing digits, sets of distinct sources.

    With ``backward`` targets go from the last word of a source to its first.
    """

    symbols = tuple("0123456789")
    inputs = symbols
    redrawn = False
    shortest = 5
    train_length = 10
    splits = ("train", "dev", "iid", "test_N")
    usage = "digits separated by spaces, as in '4 7 9 8'"
    #: which side has each digit as often as ``REPEATS`` says: source, target or none
    repeats: ClassVar[str] = ""

    def solve(self, source: str) -> str:
        words = self.words(source)
        return " ".join(words[place] for place in self.gold_attention(source))

    def gold_attention(self, source: str) -> list[int]:
        places = self.places(self.words(source), source)
        return places[::-1] if self.backward else places

    def places(self, words: list[str], source: str) -> list[int]:
        """Which words of a source its target has, in the order of the source."""
        return [
            place
            for place, word in enumerate(words)
            for _ in range(REPEATS[int(word)] if self.repeats else 1)
        ]

    def pairs(self, rng: Rng, drawn: Ragged) -> Problems:
        """Sources and targets for the digits that were drawn."""
        other = drawn.reversed() if self.backward else drawn
        if self.repeats == "source":
            return Problems.of(repeated(other), drawn)
        return Problems.of(drawn, repeated(other) if self.repeats else other)

    def sample_between(self, rng: Rng, n: int, low: int, high: int) -> Problems:
        lengths = rng.integers(low, high + 1, n)
        digits = rng.integers(0, 10, int(lengths.sum()), np.int16)
        return self.pairs(rng, from_flat(digits, lengths))

    def split(self, name: str) -> Problems:
        """The sets of the paper."""
        if name in ("train", "dev", "iid"):
            draw = {"train": self.training_set, "dev": self.longer_set, "iid": self.held_out_set}
            return draw[name](self.train_length)
        if (number := re.fullmatch(r"test_([1-9]\d*)", name)) is None:
            return super().split(name)
        return self.test_set(int(number[1]), SMALL, 0)


class Copy(Copying):
    """The same again: ``4 7 9 8 -> 4 7 9 8``."""

    name = "copy"

    def step(self, state: Any, word: str) -> tuple[Any, str]:
        return state, word


class ReverseCopy(Copy):
    """Backwards: ``4 7 9 8 -> 8 9 7 4``."""

    name = "reverse_copy"
    backward = True


class ReCopy(Copying):
    """Each digit once, three or five times: ``3 5 -> 3 5 5 5``."""

    name = "recopy"
    repeats = "target"


class ReverseReCopy(ReCopy):
    """The same backwards: ``3 5 -> 5 5 5 3``."""

    name = "reverse_recopy"
    backward = True


class InvReCopy(Copying):
    """ReCopy undone: ``3 5 5 5 -> 3 5``."""

    name = "inv_recopy"
    repeats = "source"
    usage = "digits repeated as recopy does, as in '3 5 5 5'"

    def places(self, words: list[str], source: str) -> list[int]:
        """The first place of the repetitions of each digit of the answer."""
        places: list[int] = []
        start = 0
        for word, run in groupby(words):
            count, times = len(list(run)), int(REPEATS[int(word)])
            if count % times:
                raise TaskError(
                    f"{source!r}: {word} stands {count} times in a row, and {self.name} takes it "
                    f"{times} times for each {word} of the answer"
                )
            places += range(start, start + count, times)
            start += count
        return places


class InvReverseReCopy(InvReCopy):
    """Reverse ReCopy undone: ``5 5 5 3 -> 3 5``."""

    name = "inv_reverse_recopy"
    usage = "digits repeated as reverse_recopy does, as in '5 5 5 3'"
    backward = True


class DeDupe(Copying):
    """One digit per run of equal digits: ``0 0 0 5 5 5 5 5 -> 0 5``.

    As published, the source that a model reads ends with a literal ``<eos>``.
    """

    name = "dedupe"
    closes_source = True
    usage = f"digits in runs, as in '0 0 0 5 {EOS}'"

    def pairs(self, rng: Rng, drawn: Ragged) -> Problems:
        times = np.where(drawn.inside, rng.choice(RUNS, drawn.values.shape), 0)
        source = from_flat(np.repeat(drawn.flat, times[drawn.inside]), times.sum(1))
        new = drawn.inside.copy()
        new[:, 1:] &= drawn.values[:, 1:] != drawn.values[:, :-1]
        return Problems.of(source, from_flat(drawn.values[new], new.sum(1)))

    def places(self, words: list[str], source: str) -> list[int]:
        return [i for i, word in enumerate(words) if i == 0 or word != words[i - 1]]


class PosRetrieve(Copying):
    """What stands at the place that each digit names: ``1 0 7 -> 1 : 0 ; 0 : 1 ; 7 : n/a ;``."""

    name = "posretrieve"
    symbols = (*Copying.symbols, "n/a", ":", ";")

    def solve(self, source: str) -> str:
        words = self.words(source)
        retrieved = [words[int(w)] if int(w) < len(words) else "n/a" for w in words]
        return " ".join(f"{w} : {x} ;" for w, x in zip(words, retrieved, strict=True))

    gold_attention = TokenTask.gold_attention

    def pairs(self, rng: Rng, drawn: Ragged) -> Problems:
        targets = [self.solve(self.text(drawn.row(i))).split() for i in range(len(drawn))]
        return Problems.of(drawn, self.tokens(targets))


def repeated(digits: Ragged) -> Ragged:
    """Each digit as often as ``REPEATS`` says."""
    times = np.where(digits.inside, REPEATS[digits.values], 0)
    return from_flat(np.repeat(digits.flat, times[digits.inside]), times.sum(1))
