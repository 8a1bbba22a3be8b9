"""How pairs write a rule of the registry: order, zeros, spaces, and what stands around numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tasks.base import TaskError
from tasks.pair_files import Texts

MOST_OF_THEM = 0.9
"""Share of pairs that follow a rule from which on it is theirs, and the others are wrong."""
TRIED = 200
"""Pairs by which a rule is looked for."""
FEW = 10
"""Pairs of which most have to follow a rule before the others are tried."""
ORDERS = ("", "backwards", "columns", "zeros", "backwards-zeros")
"""Of answers: as a person writes them; from the last digit on; the same with every zero that a
column gives; filled up with zeros to one width for every width of operands; that backwards."""
NUMBER = r"[0-9a-z](?:{between}[0-9a-z])*"


@dataclass(frozen=True)
class Style:
    """What stands around the digits of a text: before, between two, between numbers, behind."""

    before: str
    between: str
    operator: str
    behind: str

    @classmethod
    def of(cls, text: str) -> Style:
        """That of a text with numbers in it."""
        spaced = re.search(r"[0-9a-z](\s+)[0-9a-z]", text)
        between = spaced[1] if spaced else ""
        number = NUMBER.format(between=re.escape(between))
        numbers = list(re.finditer(number, text))
        if not numbers:
            return cls("", "", "", text)
        ends = numbers[0].start(), numbers[-1].end()
        operator = text[numbers[0].end() : numbers[1].start()] if len(numbers) > 1 else ""
        return cls(text[: ends[0]], between, operator, text[ends[1] :])

    def write(self, *numbers: str) -> str:
        inside = self.operator.join(self.between.join(number) for number in numbers)
        return self.before + inside + self.behind


@dataclass(frozen=True)
class Written:
    """A rule of the registry, and how the pairs write it.

    ``order``: of answers, one of ``ORDERS``. ``extra``: digits that one filled with zeros has more
    than its operands. ``reversed``: are operands written from their last digit on? ``padded``: are
    they filled up to one width?
    """

    task: Any
    source: Style
    target: Style
    order: str
    extra: int
    reversed: bool
    padded: bool

    def problem(self, source: str) -> str:
        """What a source asks, as a person writes it."""
        text, before, behind = map(squeezed, (source, self.source.before, self.source.behind))
        if not (text.startswith(before) and text.endswith(behind)):
            begins = f"begin with {before!r} and " if before else ""
            raise TaskError(f"{source!r} does not {begins}end in {behind!r}: write one that does")
        text = text[len(before) : len(text) - len(behind)]
        return self._turned(text) if self.reversed else text

    def _numbers(self, text: str) -> list[str]:
        return text.split(self.task.operator) if self.task.operator else [text]

    def _turned(self, text: str) -> str:
        """Every number of a text from its other end."""
        return (self.task.operator or "").join(n[::-1] for n in self._numbers(text))

    def solve(self, source: str) -> str:
        """The right target."""
        options = self.problem(source)
        problems = self.task.parse(options)
        if self.order not in ("", "backwards"):  # zeros of the operands count
            width = max(map(len, self._numbers(options)))
            problems = self.task.problems(*self.task.padded(problems.operands, width))
        return self._answer(problems, 0)

    def _answer(self, problems: Any, row: int) -> str:
        written = self.task.digits_of(problems.answer, row)
        if self.order != "columns":
            written = self.task.read(written)
        if self.filled:
            width = max(int(operand.lengths[row]) for operand in problems.operands)
            written = written.zfill(width + self.extra)
        return self.target.write(written[::-1] if self.backwards else written)

    @property
    def filled(self) -> bool:
        """Are answers filled up with zeros?"""
        return self.order.endswith("zeros")

    @property
    def backwards(self) -> bool:
        """Do answers begin with their last digit?"""
        return self.order in ("backwards", "columns", "backwards-zeros")

    def texts(self, problems: Any) -> Texts:
        """Problems of the rule's own task as pairs."""
        if self.padded:
            operands = self.task.padded(problems.operands)
            problems = self.task.problems(*operands)
        write = self.task.write if self.padded else self.task.plain
        sources = []
        for row in range(len(problems)):
            text = write(problems, row)
            sources.append(self.render(self._turned(text) if self.reversed else text))
        return Texts(tuple(sources), tuple(self._answer(problems, r) for r in range(len(sources))))

    def render(self, text: str) -> str:
        """A source as the pairs write it, from one as its task does."""
        return self.source.write(*self._numbers(text))

    @property
    def name(self) -> str:
        """``addition backwards padded``: what ``rule_named`` reads."""
        ways = self.order, "reversed" * self.reversed, "padded" * self.padded
        return " ".join(filter(None, (self.task.name, *ways)))

    @property
    def description(self) -> str:
        """The same for people: ``addition, answers backwards``."""
        answers = {
            "backwards": "answers backwards",
            "columns": "answers backwards with all zeros",
            "zeros": "answers filled with zeros",
            "backwards-zeros": "answers backwards, filled with zeros",
        }
        ways = answers.get(self.order), "operands backwards" * self.reversed
        return ", ".join(filter(None, (self.task.name, *ways, "operands padded" * self.padded)))


def squeezed(text: str) -> str:
    """A text without its spaces."""
    return "".join(text.split())


def rule_named(name: str, pairs: Texts) -> Written:
    """A rule by its name, written as the widest of some pairs are."""
    from tasks import ARITHMETIC, get_task

    first, *ways = name.split()
    order = next((way for way in ways if way in ORDERS), "")
    if first not in ARITHMETIC or {*ways} - {order, "reversed", "padded"}:
        raise TaskError(f"unknown rule {name!r}: choose one of {', '.join(ARITHMETIC)}")
    widest = max(range(len(pairs)), key=lambda row: len(pairs.source[row]))
    source, target = Style.of(pairs.source[widest]), Style.of(max(pairs.target, key=len))
    numbers = re.findall("[0-9a-z]+", squeezed(pairs.source[widest]))
    answer = re.findall("[0-9a-z]", pairs.target[widest])
    extra = len(answer) - max(map(len, numbers), default=0)
    ways_of = "reversed" in ways, "padded" in ways
    return Written(get_task(first), source, target, order, extra, *ways_of)


def rule_of(pairs: Texts, names: Sequence[str] = ()) -> Written | None:
    """The rule that most pairs follow, among those of these ``names``; None if none is."""
    from tasks import ARITHMETIC

    tried = pairs.take(np.linspace(0, len(pairs) - 1, min(TRIED, len(pairs))).astype(int))
    few = tried.take(np.linspace(0, len(tried) - 1, min(FEW, len(tried))).astype(int))
    best: tuple[float, Written | None] = (0.0, None)
    for name in names or ARITHMETIC:
        for order in ORDERS:
            for way in ("", " reversed"):
                rule = rule_named(f"{name} {order}{way}", pairs)
                if 2 * len(wrong_pairs(rule, few)) > len(few):
                    continue
                share = 1 - len(wrong_pairs(rule, tried)) / len(tried)
                if share > best[0]:
                    best = share, rule
    share, best_rule = best
    if best_rule is None or share < MOST_OF_THEM:
        return None
    return replace(best_rule, padded=all(_is_padded(best_rule, source) for source in tried.source))


def _is_padded(rule: Written, source: str) -> bool:
    """Are the operands of a source written in one width, which may be more than they need?"""
    try:
        text = rule.problem(source)
    except TaskError:
        return True
    widths = tuple(len(part) for part in re.split("[^0-9a-z]+", text) if part)
    return widths == rule.task.widths(max(widths, default=0))


def wrong_pairs(rule: Written, pairs: Texts) -> list[int]:
    """The pairs that do not follow a rule, by their numbers from 0; spaces do not count."""
    return [
        row
        for row, (source, target) in enumerate(zip(pairs.source, pairs.target, strict=True))
        if _solved(rule, source) != squeezed(target)
    ]


def _solved(rule: Written, source: str) -> str | None:
    try:
        return squeezed(rule.solve(source))
    except TaskError:
        return None
