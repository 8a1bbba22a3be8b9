"""What a task is: a pure rule, and a way to draw problems for it.

Nothing here knows tensors, token ids, padding or the order in which a model reads:
those belong to ``abc_calib.data``. A task speaks the notation that a person writes
(``"199+7"``) and, in bulk, arrays of digits or of token numbers, so that problems may have any
length.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from tasks.digits import Digits


class TaskError(ValueError):
    """A source or an option that the task cannot take; the message says what it can."""


R = TypeVar("R", bound="Rows")


class Rows(Protocol):
    """A batch as a task draws it: something with rows."""

    def __len__(self) -> int:
        """How many rows there are."""

    def take(self: R, rows: np.ndarray) -> R:
        """These rows alone."""


@dataclass(frozen=True)
class Problems:
    """A batch of arithmetic problems: the operands and, as the model must write it, the answer."""

    operands: tuple[Digits, ...]
    answer: Digits

    def __len__(self) -> int:
        return len(self.answer)

    def take(self, rows: np.ndarray) -> Problems:
        return Problems(tuple(o.take(rows) for o in self.operands), self.answer.take(rows))


class Task(ABC):
    """One rule. Subclasses are listed in ``tasks.TASKS``; get one with ``tasks.get_task``."""

    name: ClassVar[str]
    #: names of the options that ``get_task`` passes on
    options: ClassVar[tuple[str, ...]] = ()
    #: sampling laws that ``sample`` takes
    laws: ClassVar[tuple[str, ...]]
    #: every symbol that a source or an answer may hold, in the order of its token id
    symbols: tuple[str, ...]
    #: symbols that end one part of a source and begin the next
    delimiters: tuple[str, ...]
    #: longest training problem by default, in digits (tasks on tokens: see their classes)
    train_length: int
    #: what a length counts
    unit: ClassVar[str] = "digits"

    @abstractmethod
    def solve(self, source: str) -> str:
        """The right answer to ``source`` as a person writes both; ``TaskError`` on bad input."""

    @abstractmethod
    def sample(
        self,
        rng: np.random.Generator,
        n: int,
        length: int,
        law: str = "balanced",
        exact: bool = False,
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
