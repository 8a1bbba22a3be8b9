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

from tasks.base import Problems, TaskError, text_of
from tasks.published.sets import SetTask
from tasks.tokens import EOS

KEYS = "questionPatternModEntities", "sparqlPatternModEntities"
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


def _sample(samples: list[dict[str, str]], k: int) -> tuple[list[str], list[str]]:
    """The words of a question and of its query; an error where there are none."""
    question, query = (samples[k][key] for key in KEYS)
    words = question_words(question), query_words(query)
    if type(k) is not int or k < 0 or not all(words):
        raise ValueError(f"{k!r} names no sample with a question and a query")
    return words


class Cfq(SetTask):
    """Questions to queries, read from files: ``data`` is the folder of the public data.

    A length counts the words of a query.
    """

    name = "cfq"
    unit = "words of a query"
    options = ("data",)
    drawn_from = ("train",)

    def __init__(self, data: str | None = None):
        if data is None:
            raise TaskError(
                "cfq reads a local copy of the public data: give its folder (--data FOLDER), "
                f"with dataset.json and splits/{LENGTH_SPLIT}.json"
            )
        self.data = Path(data)
        self.texts = self._read()
        questions, queries = ({w for p in self.texts["train"] for w in p[side]} for side in (0, 1))
        self.inputs = tuple(dict.fromkeys([*sorted(questions), "<unk>"]))
        self.symbols = tuple(dict.fromkeys([*self.inputs, *sorted(queries)]))
        self.train_length = max(len(query) for _, query in self.texts["train"])

    @property
    def usage(self) -> str:
        return f"a question of {self.data}, as in {' '.join(self.texts['train'][0][0])!r}"

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
        words = self.words(source)
        for part in self.texts.values():
            for question, query in part:
                if question == words:
                    return " ".join(query)
        raise TaskError(f"{source!r} is not a question of {self.data}: cfq knows only those")

    def _read(self) -> dict[str, list[tuple[list[str], list[str]]]]:
        """The words of questions and queries, by their set; ``TaskError`` for other data."""
        path = self.data / "dataset.json"
        try:
            samples = json.loads(text_of(path))
            path = self.data / "splits" / f"{LENGTH_SPLIT}.json"
            chosen = json.loads(text_of(path))
            parts = {
                part: [_sample(samples, k) for k in chosen[name]] for part, name in PARTS.items()
            }
            if shared := {*chosen["trainIdxs"]} & {*chosen["devIdxs"], *chosen["testIdxs"]}:
                raise ValueError(f"sample {min(shared)} is for training and held out")
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as e:
            why = getattr(e, "strerror", None) or repr(e)
            raise TaskError(
                f"{path} cannot be read ({why}): give the public data (--data FOLDER)"
            ) from None
        if not all(parts.values()):
            raise TaskError(f"{path} has a set without samples: give the public data")
        return parts

    @cached_property
    def sets(self) -> dict[str, Problems]:
        symbols = {*self.symbols}
        sides = {
            part: [
                [[w if w in symbols else "<unk>" for w in p[side]] for p in texts]
                for side in (0, 1)
            ]
            for part, texts in self.texts.items()
        }
        return {part: Problems.of(*map(self.tokens, both)) for part, both in sides.items()}
