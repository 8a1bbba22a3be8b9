"""A task that is given by a file of pairs, ``{"source": "12+34=", "target": "64"}`` a line.

Where all pairs follow a rule of the registry it is the rule of the task, and says what is right
beyond the file; otherwise only the file does.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tasks.base import Task, TaskError, text_of
from tasks.digits import from_integers

MOST_OF_THEM = 0.9
"""Share of pairs that follow a rule from which on it is theirs, and the others are wrong."""
TRIED = 200
"""Pairs by which a rule is looked for."""


@dataclass(frozen=True)
class Texts:
    """A batch of pairs; an empty target stands for one that nobody knows."""

    source: tuple[str, ...]
    target: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.source)

    def take(self, rows: np.ndarray) -> Texts:
        return Texts(*(tuple(part[i] for i in rows) for part in (self.source, self.target)))

    def joined(self, *others: Texts) -> Texts:
        every = (self, *others)
        return Texts(
            tuple(text for one in every for text in one.source),
            tuple(text for one in every for text in one.target),
        )


@dataclass(frozen=True)
class Rule:
    """A rule of the registry, and how the pairs write it.

    ``between``: what stands between two symbols; ``end``: what closes a source. ``order``: empty
    where answers are as a person writes them, ``backwards`` from the last digit on, ``columns`` the
    same with every zero that a column gives. ``padded``: are operands filled up to one width?
    """

    task: Any
    between: str
    end: str
    order: str
    padded: bool

    def problem(self, source: str) -> str:
        """What a source asks, as a person writes it."""
        text = source.replace(self.between, "") if self.between else source
        if not text.endswith(self.end):
            raise TaskError(f"{source!r} does not end in {self.end!r}: write one that does")
        return text.removesuffix(self.end) if self.end else text

    def solve(self, source: str) -> str:
        return self._answer(self.task.parse(self.problem(source)), 0)

    def _answer(self, problems: Any, row: int) -> str:
        written = self.task.digits_of(problems.answer, row)
        if self.order != "columns":
            written = self.task.read(written)
        return self.between.join(written[::-1] if self.order else written)

    def texts(self, problems: Any) -> Texts:
        """Problems of the rule's own task as pairs."""
        if self.padded:
            operands = self.task.padded(problems.operands)
            problems = self.task.problems(*operands)
        write = self.task.write if self.padded else self.task.plain
        rows = range(len(problems))
        sources = (self.between.join(write(problems, row) + self.end) for row in rows)
        return Texts(tuple(sources), tuple(self._answer(problems, row) for row in rows))

    @property
    def name(self) -> str:
        """``addition backwards padded``: what ``rule_named`` reads."""
        return " ".join(filter(None, (self.task.name, self.order, "padded" * self.padded)))


class FilePairs(Task):
    """The pairs of a file."""

    name = "pairs"
    notation = "pairs"
    options = ("data", "sha256", "tokenizer", "delimiters", "eos", "rule", "fit", "check")
    laws = ("uniform",)
    unit = "tokens"

    def __init__(
        self,
        data: str,
        tokenizer: str,
        delimiters: str,
        eos: int,
        sha256: str = "",
        rule: str = "",
        fit: str = "",
        check: str = "",
    ):
        self.path, self.tokenizer, self.eos = Path(data), tokenizer, eos
        self.fit, self.check = fit, check
        self.delimiters = tuple(delimiters.split(","))
        self.symbols = ()
        self.pairs, found = read_pairs(self.path)
        if sha256 and sha256 != found:
            raise TaskError(f"{self.path} was changed since (its SHA-256 is another): put it back")
        self.follows = rule_named(rule, self.pairs.source[0]) if rule else None

    @cached_property
    def known(self) -> dict[str, str]:
        """The target of every source."""
        return dict(zip(self.pairs.source, self.pairs.target, strict=True))

    @property
    def train_length(self) -> int:  # type: ignore[override]
        """The widest part of a source."""
        return max(map(self.width, self.pairs.source))

    def width(self, source: str) -> int:
        """Symbols of the widest part of a source: words if it has spaces, else characters."""
        parts = re.split("|".join(map(re.escape, self.delimiters)), source)
        return max(len(part.split() if " " in source else part) for part in parts)

    def solve(self, source: str) -> str:
        if self.follows is not None:
            return self.follows.solve(source)
        if source not in self.known:
            raise TaskError(f"{source!r} is not in {self.path.name}, and its pairs follow no rule")
        return self.known[source]

    def parse(self, source: str) -> Texts:
        if not source.strip():
            raise TaskError(f"{source!r} is no source: write one as in {self.pairs.source[0]!r}")
        try:
            return Texts((source,), (self.solve(source),))
        except TaskError:
            if self.follows is not None:
                raise
            return Texts((source,), ("",))

    @property
    def ruled(self) -> Any:
        return self._rule().task

    def asked(self, problems: Any) -> Texts:
        return self._rule().texts(problems)

    def write(self, problems: Texts, row: int) -> str:
        return problems.source[row]

    def read(self, output: str) -> str:
        return output

    def sample(
        self,
        rng: np.random.Generator,
        n: int,
        length: int,
        law: str = "balanced",
        exact: bool = False,
    ) -> Texts:
        rule = self._rule()
        return rule.texts(rule.task.sample(rng, n, length, law, exact))

    def families(self, rng: np.random.Generator, n: int, length: int) -> dict[str, Any]:
        rule = self._rule()
        return {k: rule.texts(v) for k, v in rule.task.families(rng, n, length).items()}

    def hard(self, rng: np.random.Generator, n: int, length: int) -> Texts:
        rule = self._rule()
        return rule.texts(rule.task.hard(rng, n, length))

    def mutated(self, rng: np.random.Generator, parents: Texts, n: int) -> Texts:
        rule = self._rule()
        first, *others = (rule.task.parse(rule.problem(source)) for source in parents.source)
        return rule.texts(rule.task.mutated(rng, first.joined(*others), n))

    def smallest(self) -> list[str]:
        rule = self._rule()
        return [rule.between.join(source + rule.end) for source in rule.task.smallest()]

    def every(self, length: int, most: int) -> Texts | None:
        """All problems whose operands have at most so many digits; None if there are too many."""
        rule = self._rule()
        sizes = [rule.task.base**width for width in rule.task.widths(length)]
        if math.prod(sizes) > most:
            return None
        numbers = np.indices(sizes).reshape(len(sizes), -1)
        operands = (from_integers(number, rule.task.base) for number in numbers)
        return rule.texts(rule.task.problems(*operands))

    def _rule(self) -> Rule:
        if self.follows is None:
            raise TaskError(
                f"the pairs of {self.path.name} follow no rule that is known: nothing says what is "
                "right beyond the file"
            )
        return self.follows


def read_pairs(path: Path) -> tuple[Texts, str]:
    """The pairs of a file of JSON lines, and its SHA-256; ``TaskError`` names what is wrong."""
    try:
        text = text_of(path)
    except FileNotFoundError:
        raise TaskError(f"there is no file {path}: name a file of JSON lines") from None
    except (OSError, ValueError) as error:
        raise TaskError(f"{path} cannot be read ({error}): name a file of JSON lines") from None
    sources, targets = [], []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            one = json.loads(line)
            source, target = one["source"], one["target"]
            if not (isinstance(source, str) and isinstance(target, str) and source and target):
                raise TypeError("no texts")
        except (ValueError, KeyError, TypeError, RecursionError):
            raise TaskError(
                f"line {number} of {path} is no pair: write "
                '{"source": "12+34=", "target": "64"} on each line'
            ) from None
        sources.append(source)
        targets.append(target)
    if not sources:
        raise TaskError(f"{path} holds no pairs: write one on each line")
    return Texts(tuple(sources), tuple(targets)), hashlib.sha256(text.encode()).hexdigest()


ORDERS = ("", "backwards", "columns")


def rule_named(name: str, sample: str) -> Rule:
    """A rule by its name, written as a sample of a source is."""
    from tasks import ARITHMETIC, get_task

    first, *more = name.split()
    padded = more[-1:] == ["padded"]
    order = " ".join(more[:-1] if padded else more)
    if first not in ARITHMETIC or order not in ORDERS:
        raise TaskError(f"unknown rule {name!r}: choose one of {', '.join(ARITHMETIC)}")
    between = " " if " " in sample else ""
    end = re.search(r"[^0-9a-z]*$", sample.replace(between, "") if between else sample)
    return Rule(get_task(first), between, end[0] if end else "", order, padded)


def rule_of(pairs: Texts, names: Sequence[str] = ()) -> Rule | None:
    """The rule that most pairs follow, among those of these ``names``; None if none is."""
    from tasks import ARITHMETIC

    tried = pairs.take(np.linspace(0, len(pairs) - 1, min(TRIED, len(pairs))).astype(int))
    best: tuple[float, Rule | None] = (0.0, None)
    for name in names or ARITHMETIC:
        for order in ORDERS:
            rule = rule_named(f"{name} {order}", pairs.source[0])
            share = 1 - len(wrong_pairs(rule, tried)) / len(tried)
            if share > best[0]:
                best = share, rule
    share, found = best
    if found is None or share < MOST_OF_THEM:
        return None
    return replace(found, padded=all(_is_padded(found, source) for source in tried.source))


def _is_padded(rule: Rule, source: str) -> bool:
    """Are the operands of a source written in one width, which may be more than they need?"""
    try:
        text = rule.problem(source)
    except TaskError:
        return True
    widths = tuple(len(part) for part in re.split("[^0-9a-z]+", text) if part)
    return widths == rule.task.widths(max(widths, default=0))


def wrong_pairs(rule: Rule, pairs: Texts) -> list[int]:
    """The pairs that do not follow a rule, by their numbers from 0."""
    return [
        row
        for row, (source, target) in enumerate(zip(pairs.source, pairs.target, strict=True))
        if _solved(rule, source) != target
    ]


def _solved(rule: Rule, source: str) -> str | None:
    try:
        return rule.solve(source)
    except TaskError:
        return None
