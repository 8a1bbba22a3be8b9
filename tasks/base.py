"""What a task is: a pure rule, and a way to draw problems for it.

Nothing here knows tensors, token ids, padding or the order in which a model reads:
those belong to ``abc_calib.data``. A task speaks the notation that a person writes
(``"199+7"``) and, in bulk, arrays of digits or of token numbers, so that problems may have any
length.
"""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from abc_calib.errors import UsageError
from tasks.ragged import Ragged, Rng, stack
from tasks.rules import Rule

MOST_TRIES = 20
"""Draws of a number of problems, where many that are drawn are not sources."""


def unknown(what: str, name: str, names: Collection[str], advice: str = "") -> str:
    """What to say of a name that a registry does not hold: the one that is meant, or all.

    ``advice``: what to do where none is near, or besides.
    """
    holding = [other for other in names if name and other.endswith(f"-{name}")]
    near = holding or difflib.get_close_matches(name, names, 1, cutoff=0.7)
    if near:
        return f"unknown {what} {name!r}: did you mean {near[0]}?{advice and f' ({advice})'}"
    hints = [advice, f"choose one of {', '.join(names)}"]
    return f"unknown {what} {name!r}: {'; '.join(filter(None, hints))}"


def text_of(path: Path) -> str:
    """The text of a regular file; ``OSError`` or ``ValueError`` for others, which may not end."""
    if path.exists() and not path.is_file():
        raise ValueError("it is not a regular file")
    return path.read_text("utf-8-sig")


class TaskError(UsageError):
    """A source or an option that the task cannot take; the message says what it can."""


def not_a_source(task: Any, source: str, why: str) -> TaskError:
    """Return the error of a source that a task cannot take: what is wrong, and what it takes."""
    return TaskError(f"{source!r} is not a source of {task.name}: {why}; write {task.usage}")


Size = int | tuple[int, int]
"""A length; where an output has rows, digits and how many rows: one number is both."""


def extent(size: Size) -> tuple[int, int]:
    """A size as digits and rows."""
    return size if isinstance(size, tuple) else (size, size)


R = TypeVar("R", bound="Rows")


class Rows(Protocol):
    """A batch as a task draws it: something with rows."""

    def __len__(self) -> int:
        """How many rows there are."""

    def take(self: R, rows: np.ndarray) -> R:
        """These rows alone."""

    def joined(self: R, *others: R) -> R:
        """The rows of all, one below the other."""


@dataclass(frozen=True)
class Problems:
    """A batch of problems: the operands and, as the model must write it, the answer.

    Problems on words have one operand, the source. Where some rows have fewer operands than
    others, those that they lack have no digits.
    """

    operands: tuple[Ragged, ...]
    answer: Ragged

    def __len__(self) -> int:
        return len(self.answer)

    @classmethod
    def of(cls, source: Ragged, answer: Ragged) -> Problems:
        """Problems on words."""
        return cls((source,), answer)

    @property
    def source(self) -> Ragged:
        return self.operands[0]

    def take(self, rows: np.ndarray) -> Problems:
        return Problems(tuple(o.take(rows) for o in self.operands), self.answer.take(rows))

    def joined(self, *others: Problems) -> Problems:
        parts = (self, *others)
        most = max(len(part.operands) for part in parts)
        operands = (stack([part._operand(k) for part in parts]) for k in range(most))
        return Problems(tuple(operands), stack([part.answer for part in parts]))

    def _operand(self, k: int) -> Ragged:
        if k < len(self.operands):
            return self.operands[k]
        return Ragged(np.zeros((len(self), 1), np.uint8), np.zeros(len(self), int))

    def between(self, low: int, high: int) -> Problems:
        """Those with an answer of ``low`` to ``high`` tokens."""
        lengths = self.answer.lengths
        return self.take(np.flatnonzero((low <= lengths) & (lengths <= high)))

    def drawn(self, n: int, *seed: int) -> Problems:
        """At most ``n`` of them, in an order that follows from ``seed``."""
        return self.take(np.random.default_rng(seed).permutation(len(self))[:n])


class Task(ABC):
    """One rule. Subclasses are listed in ``tasks.TASKS``; get one with ``tasks.get_task``."""

    name: ClassVar[str]
    #: what a person calls it, if not by its name
    title: ClassVar[str] = ""
    #: how sources are written, which is the data that they make: ``abc_calib.data.DATA``
    notation: ClassVar[str]
    #: names of the options that ``get_task`` passes on
    options: ClassVar[tuple[str, ...]] = ()
    #: sampling laws that ``sample`` takes
    laws: ClassVar[tuple[str, ...]]
    #: every symbol that a source or an answer may hold, in the order of its token id
    symbols: tuple[str, ...]
    #: symbols that end one part of a source and begin the next
    delimiters: tuple[str, ...]
    #: what else stands in sources and answers, behind the symbols in the order of ids
    separators: tuple[str, ...] = ()
    #: longest training problem by default, in digits (tasks on tokens: see their classes)
    train_length: int
    #: what a length counts
    unit: str = "digits"
    #: how many families of hard problems there are, about
    kinds: ClassVar[int] = 1

    @abstractmethod
    def solve(self, source: str) -> str:
        """The right answer to ``source`` as a person writes both; ``TaskError`` on bad input."""

    @abstractmethod
    def sample(
        self, rng: Rng, n: int, length: int, law: str = "balanced", exact: bool = False
    ) -> Rows:
        """Draw ``n`` problems of at most (``exact``: of exactly) ``length`` digits."""

    @abstractmethod
    def parse(self, source: str) -> Rows:
        """One problem from what a person wrote; ``TaskError`` says what is wrong with it."""

    @abstractmethod
    def write(self, problems: Any, row: int) -> str:
        """The source of one row as a person writes it."""

    @abstractmethod
    def read(self, output: str) -> str:
        """What a person reads in a model's ``output`` (most significant digit first)."""

    def check_sampling(self, length: Size, law: str, least: int = 1) -> None:
        """Raise ``TaskError`` unless problems of that length can be drawn by that law."""
        if law not in self.laws:
            choices = ", ".join(self.laws)
            raise TaskError(f"{self.name} has no sampling law {law!r}: choose one of {choices}")
        if min(extent(length)) < least:
            rule = f"give {least} or more"
            raise TaskError(f"length {length} is not possible for {self.name}: {rule}")

    # What a task may know besides

    def remark(self, answer: str) -> str:
        """What else a person should know of an answer; empty for nothing."""
        return ""

    @property
    def sampling(self) -> str:
        """How problems are drawn for training by default."""
        return self.laws[0]

    def pass_size(self, length: int) -> int:
        """Problems that count as one pass of training, where they are drawn without end."""
        return 10_001

    def rule(self) -> Rule | None:
        """The rule as transducers, from which certificates follow; None where it is not one."""
        return None

    def letters(self, problems: Any) -> list[Ragged]:
        """What the rule reads of problems: of each operand its letters in the order of columns."""
        raise self._no_rule()

    def posed(self, letters: Sequence[Ragged]) -> Any:
        """The problems with these letters; of words, those of them that are sources."""
        raise self._no_rule()

    @property
    def rule_task(self) -> Any:
        """The task whose rule this is, itself but for tasks that borrow one."""
        return self

    def render(self, problems: Any) -> Any:
        """Problems of ``rule_task`` as this task writes them."""
        return problems

    def families(self, rng: Rng, n: int, length: int) -> dict[str, Any]:
        """``n`` hard problems of exactly ``length`` of each family, by its name."""
        raise self._no_rule()

    def hard(self, rng: Rng, n: int, length: int) -> Any:
        """``n`` hard problems of exactly ``length``, of all families alike."""
        first, *others = self.families(rng, -(-n // self.kinds), length).values()
        problems = first.joined(*others)
        return problems.take(rng.permutation(len(problems))[:n])

    def plain(self, problems: Any, row: int) -> str:
        """The source of one row as a person writes it, without what only fills it up."""
        return self.write(problems, row)

    def mutated(self, rng: Rng, parents: Any, n: int) -> Any:
        """``n`` changed copies of problems, for the search of hard ones."""
        raise self._no_rule()

    def _no_rule(self) -> TaskError:
        return TaskError(
            f"{self.name} has no rule, since its class says no step: stress and certificates need "
            "one (docs/rules.md)"
        )
