"""How pairs write a rule of the registry: order, zeros, spaces, and what stands around numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tasks.base import TaskError
from tasks.pair_files import Texts

MOST_OF_THEM = 0.9
"""Share of pairs that follow a rule from which on it is theirs, and the others are wrong."""
TRIED = 200
"""Problems by which a rule is recognised."""
WAYS = ("backwards", "columns", "zeros", "backwards-zeros", "reversed", "padded")
"""What may follow a task in the name of a rule: answers backwards; the same with every zero that a
column gives; answers filled with zeros to one width for every width of operands, and the same
backwards; operands backwards; operands padded to one width."""
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
        parts = re.split(NUMBER.format(between=re.escape(between)), text)
        operator = parts[1] if len(parts) > 2 else ""
        return cls(parts[0] if len(parts) > 1 else "", between, operator, parts[-1])

    def write(self, *numbers: str) -> str:
        """Numbers as the text has them."""
        inside = self.operator.join(self.between.join(number) for number in numbers)
        return self.before + inside + self.behind


@dataclass(frozen=True)
class Written:
    """A rule of the registry, and how pairs write it.

    ``ways``: those of ``WAYS`` in which answers and operands are written. ``extra``: digits that an
    answer filled with zeros has more than its operands.
    """

    task: Any
    source: Style
    target: Style
    ways: frozenset[str]
    extra: int

    @property
    def filled(self) -> bool:
        """Are answers filled up with zeros?"""
        return not self.ways.isdisjoint(("zeros", "backwards-zeros"))

    @property
    def backwards(self) -> bool:
        """Do answers begin with their last digit?"""
        return not self.ways.isdisjoint(("backwards", "columns", "backwards-zeros"))

    @property
    def name(self) -> str:
        """``addition backwards padded``, as ``rule_named`` and ``--task`` take it."""
        return " ".join((self.task.name, *(way for way in WAYS if way in self.ways)))

    def _numbers(self, text: str) -> list[str]:
        """The operands of a source of the task, from their first digit to their last, or back."""
        numbers = text.split(self.task.operator) if self.task.operator else [text]
        return [number[::-1] for number in numbers] if "reversed" in self.ways else numbers

    def problem(self, source: str) -> str:
        """What a source asks, as a person writes it."""
        text, before, behind = map(squeezed, (source, self.source.before, self.source.behind))
        if not (text.startswith(before) and text.endswith(behind)):
            begins = f"begin with {before!r} and " if before else ""
            raise TaskError(f"{source!r} does not {begins}end in {behind!r}: write one that does")
        text = text[len(before) : len(text) - len(behind)]
        return (self.task.operator or "").join(self._numbers(text))

    def width(self, source: str) -> int:
        """How many digits the longest number of a source has."""
        return max(map(len, re.split("[^0-9a-z]+", self.problem(source))))

    def solve(self, source: str) -> str:
        """The right target."""
        problems = self.task.parse(self.problem(source))
        if self.filled or "columns" in self.ways:  # zeros of the operands count
            padded = self.task.padded(problems.operands, self.width(source))
            problems = self.task.problems(*padded)
        return self._answer(problems, 0)

    def _answer(self, problems: Any, row: int) -> str:
        answer = self.task.digits_of(problems.answer, row)
        if "columns" not in self.ways:
            answer = self.task.read(answer)
        if self.filled:
            width = max(int(operand.lengths[row]) for operand in problems.operands)
            answer = answer.zfill(width + self.extra)
        return self.target.write(answer[::-1] if self.backwards else answer)

    def texts(self, problems: Any) -> Texts:
        """Problems of the rule's own task as pairs."""
        write = self.task.plain
        if "padded" in self.ways:
            write, operands = self.task.write, self.task.padded(problems.operands)
            problems = self.task.problems(*operands)
        rows = range(len(problems))
        sources = (self.source.write(*self._numbers(write(problems, row))) for row in rows)
        return Texts(tuple(sources), tuple(self._answer(problems, row) for row in rows))


def squeezed(text: str) -> str:
    """A text without its spaces."""
    return "".join(text.split())


def rule_named(name: str, pairs: Texts) -> Written:
    """A rule by its name, written as the widest of some pairs are."""
    from tasks import ARITHMETIC, get_task

    first, *ways = name.split() or [""]
    if first not in ARITHMETIC or {*ways} - {*WAYS}:
        raise TaskError(
            f"unknown rule {name!r}: choose one of {', '.join(ARITHMETIC)}, and of how pairs "
            f"write it, {', '.join(WAYS)}"
        )
    widest = max(range(len(pairs)), key=lambda row: len(pairs.source[row]))
    source, target = Style.of(pairs.source[widest]), Style.of(max(pairs.target, key=len))
    numbers = re.findall("[0-9a-z]+", squeezed(pairs.source[widest]))
    answer = re.findall("[0-9a-z]", pairs.target[widest])
    extra = len(answer) - max(map(len, numbers), default=0)
    return Written(get_task(first), source, target, frozenset(ways), extra)


def rule_of(pairs: Texts, name: str = "") -> Written | None:
    """The rule that most pairs follow, the one of that name or one that is seen at once.

    Those are the tasks on numbers with answers as a person writes them, or backwards. None if it is
    none of them.
    """
    from tasks import ARITHMETIC

    tried = pairs.take(np.linspace(0, len(pairs) - 1, min(TRIED, len(pairs))).astype(int))
    names = (
        [name] if name else [f"{task} {way}" for task in ARITHMETIC for way in ("", "backwards")]
    )
    wrong = {rule: len(wrong_pairs(rule, tried)) for rule in (rule_named(n, pairs) for n in names)}
    rule = min(wrong, key=wrong.__getitem__)
    if wrong[rule] > (1 - MOST_OF_THEM) * len(tried):
        return None
    padded = all(_is_padded(rule, source) for source in tried.source)
    return replace(rule, ways=rule.ways | {"padded"}) if padded else rule


def _is_padded(rule: Written, source: str) -> bool:
    """Are the operands of a source written in one width, which may be more than they need?"""
    try:
        widths = tuple(map(len, re.findall("[0-9a-z]+", rule.problem(source))))
    except TaskError:
        return True
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
