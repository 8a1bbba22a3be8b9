"""Long lookup tables: apply tables to a 3-bit string, in order, writing every result.

The tasks and sets of Dubois et al. (2020), section 4, and of the public generator of long
lookup tables. A length counts the words of a source without noise: the string, k tables and
the full stop, so k + 2; training has k from 1 to 4. Six tables compose, two more occur only
alone.
"""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tasks.base import Problems, TaskError
from tasks.published.lookup_sets import COMPOSING, Chains, LookupSets
from tasks.ragged import Ragged, Rng, column, from_flat, join
from tasks.words import WordTask

STRINGS = tuple(f"{number:03b}" for number in range(8))
MOST_NOISE = 10
STOP, START = ".", "!"


TABLES = Path(__file__).parent / "lookup_tables.json"
"""The eight published tables, each as its outputs."""


class Lookups(WordTask):
    """What all tasks on the tables share; a subclass says where a source has what counts."""

    unit = "words"
    shortest = least = 3
    train_length = 6
    splits = (
        "train",
        "train_before_new_tables",
        "validation",
        "heldout_inputs",
        "heldout_compositions",
        "heldout_tables",
        "new_compositions",
        "longer_seen_N",
        "longer_incremental_N",
        "longer_new_N",
    )
    marks: tuple[str, ...] = (STOP,)
    redrawn = False

    def __init__(self) -> None:
        tables = json.loads(TABLES.read_text()).values()
        #: ``(8, 8)``: by table and input
        self.outputs = np.array([[int(x, 2) for x in row.split()] for row in tables], np.int16)
        self.symbols = (*STRINGS, *(f"t{i + 1}" for i in range(len(self.outputs))), *self.marks)

    # The rule

    def solve(self, source: str) -> str:
        start, tables = self.chain(self.words(source), source)
        value = STRINGS.index(start)
        written = [value]
        for table in tables:
            value = int(self.outputs[int(table[1:]) - 1, value])
            written.append(value)
        return " ".join(STRINGS[v] for v in written)

    def words(self, source: str) -> list[str]:
        words = super().words(source)
        if words[-1] != STOP:
            raise TaskError(f"{source!r} has no '.' at its end: {self.name} takes {self.usage}")
        return words

    def places(self, words: list[str], source: str) -> list[int]:
        """Which words are the string and the tables that count, in the order of the rule."""
        return list(range(len(words) - 1))

    def chain(self, words: list[str], source: str) -> tuple[str, list[str]]:
        """The string and the tables that are applied to it, in order; ``TaskError`` if none."""
        kept = [words[place] for place in self.places(words, source)]
        if not kept or kept[0] not in STRINGS or any(w[0] != "t" for w in kept[1:]):
            raise TaskError(f"{source!r} is not a source of {self.name}: write {self.usage}")
        return kept[0], kept[1:]

    def gold_attention(self, source: str) -> list[int]:
        """The word of each result, and the full stop for the end."""
        words = self.words(source)
        self.chain(words, source)
        return [*self.places(words, source), len(words) - 1]

    # In bulk

    def pairs(self, chains: Chains, rng: Rng) -> Problems:
        """Sources and targets of ``chains``."""
        values, applied = [chains.source.values[:, 0]], chains.answer
        for tables in applied.values.T:
            values.append(self.outputs[tables, values[-1]])
        target = Ragged(np.stack(values, 1).astype(np.int16), applied.lengths + 1)
        named = Ragged(applied.values + len(STRINGS), applied.lengths)
        return Problems.of(self.source(chains.source, named, rng), target)

    def source(self, start: Ragged, tables: Ragged, rng: Rng) -> Ragged:
        """The source of each row; all numbers are tokens."""
        return join(start, tables, self._stop)

    @property
    def _stop(self) -> int:
        return self.symbols.index(STOP)

    def _noise(self, lengths: np.ndarray, rng: Rng) -> Ragged:
        """Random tables that compose."""
        flat = rng.integers(0, COMPOSING, int(lengths.sum())) + len(STRINGS)
        return from_flat(flat, lengths)

    def sample_between(self, rng: Rng, n: int, low: int, high: int) -> Problems:
        counts = rng.integers(low, high + 1, n) - 2
        tables = rng.integers(0, COMPOSING, int(counts.sum()))
        start = rng.integers(0, len(STRINGS), n)
        return self.pairs(Problems.of(column(start), from_flat(tables, counts)), rng)

    # The sets

    @cached_property
    def sets(self) -> LookupSets:
        return LookupSets(self.outputs)

    def split(self, name: str) -> Problems:
        chains = self.sets.named(name)
        if chains is None:
            return super().split(name)
        return self.pairs(chains, np.random.default_rng([123, *name.encode()]))

    def training_set(self, length: int) -> Problems:
        return self.split("train").between(0, length - 1)

    def held_out_set(self, length: int, law: str = "uniform") -> Problems:
        return self.split("validation").between(0, length - 1)

    def longer_set(self, length: int) -> Problems:
        """Validation and 500 of the first longer set, as Ray Chowdhury & Caragea choose by."""
        longer = self.split("longer_seen_1").take(self._chosen)
        return self.split("validation").joined(longer)

    @cached_property
    def _chosen(self) -> np.ndarray:
        size = len(self.sets.named("longer_seen_1"))  # type: ignore[arg-type]
        return np.random.default_rng(500).permutation(size)[:500]

    def test_set(self, length: int, n: int, seed: int) -> Problems:
        """Held-out inputs at the longest training length, the published longer sets (without the
        500 that models are chosen by), beyond them fresh ones."""
        beyond = length - self.train_length
        if not 0 <= beyond <= 5:
            return self.sample(np.random.default_rng([seed, 3, length]), n, length, exact=True)
        pairs = self.split(f"longer_seen_{beyond}" if beyond else "heldout_inputs")
        if beyond == 1:
            pairs = pairs.take(np.setdiff1d(np.arange(len(pairs)), self._chosen))
        return pairs.drawn(n, seed, 3, length)


class Lookup(Lookups):
    """Tables applied in order: ``010 t3 t4 . -> 010 011 010``."""

    name = "lookup"
    usage = "a 3-bit string, tables t1 to t8 and '.', as in '010 t3 t4 .'"
    start = None

    def step(self, state: str | None, word: str) -> tuple[str | None, str | None] | None:
        """The string comes first; each table writes its result, and the full stop closes."""
        if state is None:
            return (word, word) if word in STRINGS else None
        if word in STRINGS or word == START:
            return None
        if word == STOP:
            return state, None
        value = STRINGS[self.outputs[int(word[1:]) - 1, STRINGS.index(state)]]
        return value, value

    def end(self, state: Any) -> None:
        return None  # without a full stop


class ReverseLookup(Lookups):
    """Tables before the string, applied from the last: ``t4 t3 010 . -> 010 011 010``."""

    name = "reverse_lookup"

    usage = "tables t1 to t8, a 3-bit string and '.', as in 't4 t3 010 .'"

    def places(self, words: list[str], source: str) -> list[int]:
        return list(range(len(words) - 2, -1, -1))

    def source(self, start: Ragged, tables: Ragged, rng: Rng) -> Ragged:
        return join(tables.reversed(), start, self._stop)


class NoisySingle(Lookups):
    """Noise up to a mark that starts the tables: ``001 t4 ! t1 . -> 001 001``."""

    name = "noisy_lookup_single"
    marks = (STOP, START)
    usage = "a 3-bit string, noise, '!', tables and '.', as in '001 t4 ! t1 .'"

    def places(self, words: list[str], source: str) -> list[int]:
        if START not in words:
            raise TaskError(f"{source!r} has no '!': {self.name} takes {self.usage}")
        if words.count(START) > 1 and type(self) is NoisySingle:
            raise TaskError(f"{source!r} has more than one '!': noisy_lookup_multi takes those")
        last = len(words) - 1 - words[::-1].index(START)
        return [0, *range(last + 1, len(words) - 1)]

    def source(self, start: Ragged, tables: Ragged, rng: Rng) -> Ragged:
        n = len(start)
        noise = self._noise(rng.integers(0, MOST_NOISE + 1, n), rng)
        return join(start, noise, self.symbols.index(START), tables, self._stop)


class NoisyMulti(NoisySingle):
    """Only the last of several marks starts the tables: ``001 ! t5 ! t1 . -> 001 001``."""

    name = "noisy_lookup_multi"

    def _noise(self, lengths: np.ndarray, rng: Rng) -> Ragged:
        noise = super()._noise(lengths, rng)
        marked = np.floor(rng.random(len(lengths)) * lengths)  # 0 .. m-1 of the m
        order = np.where(noise.inside, rng.random(noise.values.shape), 2.0)
        rank = order.argsort(1).argsort(1)
        values = np.where(rank < marked[:, None], self.symbols.index(START), noise.values)
        return Ragged(values.astype(np.int16), lengths)


class IntermediateNoise(Lookups):
    """Noise before, between and behind the tables: ``000 t5 t1 t2 . -> 000 011``."""

    name = "intermediate_noise"
    usage = "a 3-bit string, then noise and a table in turn, noise and '.': '000 t5 t1 t2 .'"

    def places(self, words: list[str], source: str) -> list[int]:
        if len(words) % 2 == 0 or any(w[0] != "t" for w in words[1:-1]):
            raise TaskError(f"{source!r} is not a source of {self.name}: write {self.usage}")
        return list(range(0, len(words) - 1, 2))

    def source(self, start: Ragged, tables: Ragged, rng: Rng) -> Ragged:
        n = len(start)
        noise = self._noise(tables.lengths + 1, rng)
        mixed = np.zeros((n, 2 * noise.values.shape[1]), np.int16)
        mixed[:, ::2] = noise.values
        mixed[:, 1 : 2 * tables.values.shape[1] : 2] = tables.values
        return join(start, Ragged(mixed, 2 * tables.lengths + 1), self._stop)


class OneShot(Lookup):
    """Lookup in which two tables appear late, and only alone: ``010 t7 . -> 010 001``.

    Train on this first, then on lookup with ``abc train lookup --finetune RUN``.
    """

    name = "lookup_one_shot"

    def training_set(self, length: int) -> Problems:
        """As lookup, without the late tables. Lookup, with which the paper goes on, has them
        alone."""
        return self.split("train_before_new_tables").between(0, length - 1)

    def test_set(self, length: int, n: int, seed: int) -> Problems:
        """At the longest training length, compositions of the late tables with the others."""
        if length != self.train_length:
            return super().test_set(length, n, seed)
        return self.split("heldout_tables").drawn(n, seed, 3, length)
