"""The copy family of Ray Chowdhury & Caragea (2023), section 2 and appendix A.

Sources are digits, independent and uniform. A length counts the side that is not repeated
(``dedupe``: the runs drawn; ``posretrieve``: the source). In the tasks with repetition a digit
stands once if it is 3 or less, three times from 4 to 6, five times from 7 on.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable
from itertools import groupby
from typing import Any

import numpy as np

from tasks.base import TaskError
from tasks.rules import ROW
from tasks.tokens import EOS, Pairs, Tokens, from_flat
from tasks.words import SMALL, WordTask

REPEATS = np.array([1, 1, 1, 1, 3, 3, 3, 5, 5, 5])
"""How often each digit stands where digits are repeated."""
RUNS = np.array([1, 3, 5])
"""Lengths of a run in ``dedupe``."""


class Copying(WordTask):
    """What the tasks of the family share: drawing digits, sets of distinct sources."""

    symbols = tuple("0123456789")
    inputs = symbols
    redrawn = False
    shortest = 5
    train_length = 10
    splits = ("train", "dev", "iid", "test_N")
    usage = "digits separated by spaces, as in '4 7 9 8'"

    def solve(self, source: str) -> str:
        words = self.words(source)
        return " ".join(words[place] for place in self.gold_attention(source))

    @abstractmethod
    def pairs(self, rng: np.random.Generator, drawn: Tokens) -> Pairs:
        """Sources and targets for the digits that were drawn."""

    def sample_between(self, rng: np.random.Generator, n: int, low: int, high: int) -> Pairs:
        lengths = rng.integers(low, high + 1, n)
        digits = rng.integers(0, 10, int(lengths.sum()), np.int16)
        return self.pairs(rng, from_flat(digits, lengths))

    # The sets of the paper

    def split(self, name: str) -> Pairs:
        sets: dict[str, Callable[[int], Pairs]] = {
            "train": self.training_set,
            "dev": self.longer_set,
            "iid": self.held_out_set,
        }
        if name in sets:
            return sets[name](self.train_length)
        number = re.fullmatch(r"test_([1-9]\d*)", name)
        if number is None:
            raise self.no_split(name)
        return self.test_set(int(number[1]), SMALL, 0)


class Copy(Copying):
    """The same again: ``4 7 9 8 -> 4 7 9 8``."""

    name = "copy"

    def step(self, state: Any, word: str) -> tuple[Any, str]:
        return state, word

    def pairs(self, rng: np.random.Generator, drawn: Tokens) -> Pairs:
        return Pairs(drawn, drawn)

    def gold_attention(self, source: str) -> list[int]:
        return list(range(len(self.words(source))))


class ReverseCopy(Copy):
    """Backwards: ``4 7 9 8 -> 8 9 7 4``."""

    name = "reverse_copy"
    backward = True

    def pairs(self, rng: np.random.Generator, drawn: Tokens) -> Pairs:
        return Pairs(drawn, drawn.reversed())

    def gold_attention(self, source: str) -> list[int]:
        return super().gold_attention(source)[::-1]


class Duplicate(WordTask):
    """Twice, in two rows: ``4 7 -> 4 7 | 4 7``."""

    name = "duplicate"
    symbols = Copying.symbols
    rereads = True

    def step(self, state: Any, word: str) -> tuple[Any, str]:
        return state, word

    def end(self, state: Any) -> tuple[str, ...]:
        return (ROW,)

    def step_below(self, state: Any, above: str, *word: str) -> tuple[Any, str] | None:
        return (state, above) if (above,) == word else None

    def end_below(self, state: Any) -> tuple[str, ...]:
        return ()


class OddsFirst(WordTask):
    """Every second word, then the others: ``4 7 9 8 -> 7 8 4 9``, in the order of the benchmark.

    In two rows, ``7 8 | 4 9``, of which a column reads two words of the source.
    """

    name = "odds_first"
    symbols = Copying.symbols
    rereads = True
    stride = 2

    def step(self, state: Any, *words: str | None) -> tuple[Any, str]:
        return state, words[1] or ROW

    def end(self, state: Any) -> tuple[str, ...]:
        return (ROW,)

    def step_below(self, state: Any, above: str | None, *words: str | None) -> Any:
        word, other = words
        return (state, word) if word and above == other else None

    def end_below(self, state: Any) -> tuple[str, ...]:
        return ()

    def read(self, output: str) -> str:
        return " ".join(word for word in output.split() if word != ROW)


class MissingDuplicate(WordTask):
    """The word that is missing where a string stands twice: ``0 1 1 0 1 _ -> 1``.

    As rows of pairs: row ``r`` has each word with the one ``r + 1`` places on, and a ``*`` in
    column ``r``. The row that ends there has the string next to its copy.
    """

    name = "missing_duplicate"
    pairs = tuple(f"{a}{b}" for a in "01_" for b in "01_" if a + b != "__")
    symbols = ("0", "1", "_", *pairs, *(f"{pair}*" for pair in pairs))
    ahead = 1
    train_length = 8
    start = ("", 0, False)
    start_below = ("", False, None, False)

    def step(self, state: Any, word: str) -> Any:
        """The state: the word before, how many there are so far (see ``MORE``), one missing?"""
        before, count, missing = state
        if word not in ("0", "1", "_") or (missing and word == "_"):
            return None
        output = f"{before}{word}" + "*" * (count == 1) if before else word
        return (word, MORE[count], missing or word == "_"), output

    def end(self, state: Any) -> Any:
        _, count, missing = state
        return None if not missing or count not in (2, 4) else () if count == 2 else (ROW,)

    def step_below(self, state: Any, above: str, *word: str) -> Any:
        """The cell before, is the one before that marked, how many are behind a mark, any ``_``?"""
        before, marked, behind, missing = state
        second = above.endswith("*")
        if len(above) == 1 or (second and behind is not None) or (missing and above[1] == "_"):
            return None
        cell = f"{before[0]}{above[1]}" + "*" * marked if before else above
        after = 0 if second else MORE.get(behind)
        return (above, before.endswith("*"), after, missing or above[0] == "_"), cell

    def end_below(self, state: Any) -> Any:
        behind = state[2]
        return None if behind not in (2, 4) else () if behind == 2 else (ROW,)

    def read(self, output: str) -> str:
        pairs = [pair for pair in output.rpartition(ROW)[2].split() if "_" in pair]
        return pairs[0].strip("_*") if pairs else output


MORE = {0: 1, 1: 2, 2: 3, 3: 4, 4: 3}
"""One more than 0, 1, 2, an odd number above and an even one above."""


def repeated(digits: Tokens) -> Tokens:
    """Each digit as often as ``REPEATS`` says."""
    times = np.where(digits.inside, REPEATS[digits.values], 0)
    return from_flat(np.repeat(digits.flat, times[digits.inside]), times.sum(1))


class ReCopy(Copying):
    """Each digit once, three or five times: ``3 5 -> 3 5 5 5``."""

    name = "recopy"

    def pairs(self, rng: np.random.Generator, drawn: Tokens) -> Pairs:
        return Pairs(drawn, repeated(drawn))

    def gold_attention(self, source: str) -> list[int]:
        words = self.words(source)
        return [i for i, word in enumerate(words) for _ in range(REPEATS[int(word)])]


class ReverseReCopy(ReCopy):
    """The same backwards: ``3 5 -> 5 5 5 3``."""

    name = "reverse_recopy"

    def pairs(self, rng: np.random.Generator, drawn: Tokens) -> Pairs:
        return Pairs(drawn, repeated(drawn.reversed()))

    def gold_attention(self, source: str) -> list[int]:
        return super().gold_attention(source)[::-1]


class InvReCopy(Copying):
    """ReCopy undone: ``3 5 5 5 -> 3 5``."""

    name = "inv_recopy"
    usage = "digits repeated as recopy does, as in '3 5 5 5'"

    def gold_attention(self, source: str) -> list[int]:
        """The first place of the repetitions of each digit of the answer."""
        places: list[int] = []
        start = 0
        for word, run in groupby(self.words(source)):
            count, times = len(list(run)), int(REPEATS[int(word)])
            if count % times:
                raise TaskError(
                    f"{source!r}: {word} stands {count} times in a row, and {self.name} takes it "
                    f"{times} times for each {word} of the answer"
                )
            places += range(start, start + count, times)
            start += count
        return places

    def pairs(self, rng: np.random.Generator, drawn: Tokens) -> Pairs:
        return Pairs(repeated(drawn), drawn)


class InvReverseReCopy(InvReCopy):
    """Reverse ReCopy undone: ``5 5 5 3 -> 3 5``."""

    name = "inv_reverse_recopy"
    usage = "digits repeated as reverse_recopy does, as in '5 5 5 3'"

    def gold_attention(self, source: str) -> list[int]:
        return super().gold_attention(source)[::-1]

    def pairs(self, rng: np.random.Generator, drawn: Tokens) -> Pairs:
        return Pairs(repeated(drawn.reversed()), drawn)


class DeDupe(Copying):
    """One digit a run: ``0 0 0 5 5 5 5 5 -> 0 5``.

    As published, the source that a model reads ends with a literal ``<eos>``.
    """

    name = "dedupe"
    closes_source = True
    usage = f"digits in runs, as in '0 0 0 5 {EOS}'"

    def pairs(self, rng: np.random.Generator, drawn: Tokens) -> Pairs:
        times = np.where(drawn.inside, rng.choice(RUNS, drawn.values.shape), 0)
        source = from_flat(np.repeat(drawn.flat, times[drawn.inside]), times.sum(1))
        new = drawn.inside.copy()
        new[:, 1:] &= drawn.values[:, 1:] != drawn.values[:, :-1]
        return Pairs(source, from_flat(drawn.values[new], new.sum(1)))

    def gold_attention(self, source: str) -> list[int]:
        words = self.words(source)
        return [i for i, word in enumerate(words) if i == 0 or word != words[i - 1]]


class PosRetrieve(Copying):
    """What stands at the place that each digit names: ``1 0 7 -> 1 : 0 ; 0 : 1 ; 7 : n/a ;``."""

    name = "posretrieve"
    symbols = (*Copying.symbols, "n/a", ":", ";")

    def solve(self, source: str) -> str:
        words = self.words(source)
        retrieved = [words[int(w)] if int(w) < len(words) else "n/a" for w in words]
        return " ".join(f"{w} : {x} ;" for w, x in zip(words, retrieved, strict=True))

    def pairs(self, rng: np.random.Generator, drawn: Tokens) -> Pairs:
        missing, colon, end = (self.symbols.index(s) for s in ("n/a", ":", ";"))
        places = np.minimum(drawn.values, max(drawn.values.shape[1] - 1, 0))
        retrieved = np.take_along_axis(drawn.values, places.astype(np.int64), 1)
        retrieved = np.where(drawn.values < drawn.lengths[:, None], retrieved, missing)
        marks = np.ones_like(drawn.values)
        parts = np.stack([drawn.values, marks * colon, retrieved, marks * end], axis=2)
        return Pairs(drawn, from_flat(parts[drawn.inside].reshape(-1), 4 * drawn.lengths))
