"""CFQ (Keysers et al. 2020): questions to SPARQL queries, from a local copy of the public data.

The folder holds ``dataset.json`` (a list of objects with ``questionPatternModEntities`` and
``sparqlPatternModEntities``) and ``splits/NAME.json`` (``trainIdxs``, ``devIdxs``,
``testIdxs``), as the public archive does. The length split is ``query_complexity_split``.
"""

from __future__ import annotations

import json
import re
import string
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tasks.base import TaskError, text_of
from tasks.tokens import EOS, Pairs, Tokens, TokenTask

QUESTION, QUERY = "questionPatternModEntities", "sparqlPatternModEntities"
PARTS = {"train": "trainIdxs", "validation": "devIdxs", "test": "testIdxs"}
LENGTH_SPLIT = "query_complexity_split"


def question_words(text: str) -> list[str]:
    """The words of a question, every ASCII punctuation mark a word of its own."""
    return re.sub(f"([{re.escape(string.punctuation)}])", r" \1 ", text).split()


def query_words(text: str) -> list[str]:
    """The words of a query: ``count ( * )``, no ``ns:`` at the start of a word, ``m_`` for an
    initial ``m.``; an ``ns:`` inside a path stays."""
    words = text.replace("count(*)", "count ( * )").split()
    words = [word.removeprefix("ns:") for word in words]
    return [f"m_{word[2:]}" if word.startswith("m.") else word for word in words]


class Cfq(TokenTask):
    """Questions to queries, read from files: ``data`` is the folder of the public data.

    A length counts the words of a query. As in the public code of the attenders, the source
    that a model reads ends with a literal ``<eos>``.
    """

    name = "cfq"
    unit = "words of a query"
    options = ("data",)
    closes_source = True
    splits = tuple(PARTS)

    def __init__(self, data: str | None = None):
        if data is None:
            raise TaskError(
                "cfq reads a local copy of the public data: give its folder (--data FOLDER), "
                f"with dataset.json and splits/{LENGTH_SPLIT}.json"
            )
        self.data = Path(data)
        self._known = self._read()
        words = [[w for pair in self._known["train"] for w in pair[side]] for side in (0, 1)]
        self.inputs = tuple(dict.fromkeys([*sorted(set(words[0])), "<unk>"]))
        self.symbols = tuple(dict.fromkeys([*self.inputs, *sorted(set(words[1]))]))
        self.train_length = max(len(pair[1]) for pair in self._known["train"])

    @property
    def usage(self) -> str:
        return f"a question of {self.data}, as in {' '.join(self._known['train'][0][0])!r}"

    def words(self, source: str) -> list[str]:
        words = question_words(source.removesuffix(EOS))
        if not words:
            raise TaskError(f"an empty source: {self.name} takes {self.usage}")
        for word in words:
            if word not in self.inputs:
                raise TaskError(f"{word!r} is not a word of the training questions of {self.data}")
        return words

    def solve(self, source: str) -> str:
        """The query that the data have for a question; no rule says it for another one."""
        words = tuple(self.words(source))
        if words not in self._answers:
            raise TaskError(f"{source!r} is not a question of {self.data}: cfq knows only those")
        return " ".join(self._answers[words])

    # The files

    def _read(self) -> dict[str, list[tuple[list[str], list[str]]]]:
        samples = _load(self.data / "dataset.json", list)
        chosen = _load(self.data / "splits" / f"{LENGTH_SPLIT}.json", dict)
        parts: dict[str, list[tuple[list[str], list[str]]]] = {}
        for part, key in PARTS.items():
            if not isinstance(chosen.get(key), list) or not chosen[key]:
                raise TaskError(f"{self.data}/splits/{LENGTH_SPLIT}.json: {key} has no numbers")
            parts[part] = [self._pair(samples, index) for index in chosen[key]]
        return parts

    def _pair(self, samples: list[Any], index: Any) -> tuple[list[str], list[str]]:
        if not isinstance(index, int) or not 0 <= index < len(samples):
            raise TaskError(
                f"{self.data}/splits/{LENGTH_SPLIT}.json: there is no sample {index!r}, "
                f"dataset.json has {len(samples)}"
            )
        sample = samples[index]
        sides = [sample.get(k) if isinstance(sample, dict) else None for k in (QUESTION, QUERY)]
        if not all(isinstance(side, str) and side.strip() for side in sides):
            raise TaskError(f"{self.data}/dataset.json, sample {index}: no {QUESTION} or {QUERY}")
        return question_words(str(sides[0])), query_words(str(sides[1]))

    @cached_property
    def _answers(self) -> dict[tuple[str, ...], list[str]]:
        return {tuple(q): a for part in self._known.values() for q, a in part}

    # The sets

    def split(self, name: str) -> Pairs:
        if name not in self._known:
            raise self.no_split(name)
        return self._sets[name]

    @cached_property
    def _sets(self) -> dict[str, Pairs]:
        return {part: self._encoded(pairs) for part, pairs in self._known.items()}

    def _encoded(self, pairs: list[tuple[list[str], list[str]]]) -> Pairs:
        symbols = set(self.symbols)

        def tokens(side: int) -> Tokens:
            rows = (pair[side] for pair in pairs)
            return self.tokens([[w if w in symbols else "<unk>" for w in row] for row in rows])

        return Pairs(tokens(0), tokens(1))

    def sample_between(self, rng: np.random.Generator, n: int, low: int, high: int) -> Pairs:
        """Draw training questions, with repetition, of queries of ``low`` to ``high`` words."""
        questions = self._sets["train"].between(low, high)
        if not len(questions):
            most = self.train_length
            raise TaskError(f"no training query has {high} words: the longest has {most}")
        return questions.take(rng.choice(len(questions), n))

    def training_set(self, length: int) -> Pairs:
        return self._sets["train"].between(0, length)

    def held_out_set(self, length: int, law: str = "uniform") -> Pairs:
        return self._sets["validation"]

    def longer_set(self, length: int) -> Pairs:
        """Validation, which in this split has the longer queries of the test."""
        return self._sets["validation"]

    def test_set(self, length: int, n: int, seed: int) -> Pairs:
        pairs = self._sets["test"].between(length, length)
        if not len(pairs):
            lengths = ", ".join(map(str, np.unique(self._sets["test"].target.lengths)))
            raise TaskError(f"no test query has {length} words: choose among {lengths}")
        return pairs.drawn(n, seed, 3, length)


def _load(path: Path, kind: type) -> Any:
    try:
        data = json.loads(text_of(path))
    except OSError as error:
        raise TaskError(f"{path} cannot be read ({error.strerror}): give the public data") from None
    except (ValueError, RecursionError) as error:
        raise TaskError(f"{path} is malformed: {error}") from None
    if not isinstance(data, kind):
        raise TaskError(f"{path} is malformed: expected a JSON {kind.__name__}")
    return data
