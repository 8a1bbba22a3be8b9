"""What data is: batches of one task from one seed, and where their tokens stand."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from abc_calib.config import TrainOptions
from abc_calib.data.vocabulary import Vocabulary
from abc_calib.errors import UsageError
from abc_calib.geometry import Layout
from tasks import Rows, Size


@dataclass(frozen=True)
class Batch:
    """Token ids: ``source (b, s)`` and ``target (b, t)`` int64, each row closed by EOS, then PAD.

    ``problems`` are the rows as the task drew them.
    """

    source: Tensor
    target: Tensor
    problems: Rows

    def __len__(self) -> int:
        return len(self.source)

    def hash(self) -> str:
        """A short fingerprint of the sources and targets."""
        digest = hashlib.sha256()
        for part in (self.source, self.target):
            digest.update(str(tuple(part.shape)).encode())
            small = not part.numel() or int(part.max()) < 256
            digest.update(part.to(torch.uint8 if small else torch.int32).numpy().tobytes())
        return digest.hexdigest()[:16]

    def take(self, rows: Tensor | np.ndarray) -> Batch:
        """These rows alone, by their numbers or as ``(b,)`` bool."""
        chosen = torch.as_tensor(rows)
        numbers = chosen.nonzero()[:, 0] if chosen.dtype == torch.bool else chosen
        return Batch(
            self.source[numbers], self.target[numbers], self.problems.take(numbers.numpy())
        )

    def cut(self, pad: int) -> Batch:
        """The same without columns of padding alone."""
        source, target = (
            ids[:, : int(ids.ne(pad).sum(1).max())] for ids in (self.source, self.target)
        )
        return Batch(source, target, self.problems)


class Data(ABC):
    """Batches of one task from one seed. Kinds are listed in ``abc_calib.data.DATA``.

    ``length``: the longest training problem. ``tests``: names of the test sets.
    """

    task: Any
    vocabulary: Any
    tests: tuple[str, ...]
    #: are outputs decoded and compared token by token, or only judged as a whole?
    decoded: ClassVar[bool] = False
    #: the fit that finds its lines by default, of ``abc_calib.calibration.fits``
    fit: ClassVar[str] = "nnls"
    #: which of its tokens stand in rows, as ``nn.positions.coupled`` has it
    coupling: str = "none"
    #: of outputs in rows on words: does the first row alone read the source, as a row above it?
    above: bool = False
    #: symbols that only say where a digit stands: exact match and reading leave them out
    hints: tuple[str, ...] = ()

    def __init__(self, task: Any, options: TrainOptions, vocabulary: Any = None):
        self.task = task
        self.options = options
        self.seed, self.length = options.seed, options.length
        #: the largest training problem: its length, and of outputs of several rows their number
        self.size: Any = options.length
        self.vocabulary = vocabulary or Vocabulary(task)

    @abstractmethod
    def training(self, step: int, n: int, exact: bool = False) -> Batch:
        """The training batch of a step: the same for the same seed, step and size.

        ``exact``: problems of the longest training length alone.
        """

    @abstractmethod
    def validation(self, n: int) -> Batch:
        """At most ``n`` held-out problems, by which training goes."""

    def sized(self, length: Size) -> Any:
        """A length as it was asked for, checked: of outputs of several rows digits and rows."""
        if isinstance(length, tuple):
            raise UsageError(
                f"size {length[0]}x{length[1]}: {self.task.name} has one number for its size; as "
                f"in {length[0]}"
            )
        if length < 1:
            raise UsageError(f"length {length} is not possible: give 1 or more")
        return length

    def named(self, length: Any) -> dict[str, int]:
        """A length as the row of an evaluation holds it."""
        return {"length": length}

    def digits_of(self, length: Any) -> int:
        """How many digits a problem of a length has at its largest, as far as memory goes."""
        return length

    @abstractmethod
    def test(self, length: Any, n: int, kind: str = "random", seed: int = 0) -> Batch:
        """At most ``n`` problems of exactly ``length`` of a test set, none of them for training."""

    def every(self, length: Any, n: int, kind: str) -> Batch | None:
        """Return all problems that a test of ``n`` can have, once each, where they are so few."""
        return None

    @abstractmethod
    def test_size(self, length: Any) -> int:
        """How many problems of a length are tested unless it is said."""

    def tests_of(self, kind: str, lengths: Sequence[Any]) -> list[tuple[Any, int]]:
        """The lengths that a test set has of those asked for, and how many problems at each."""
        return [(length, self.test_size(length)) for length in lengths]

    @property
    def only_lengths(self) -> Sequence[int] | None:
        """The lengths that there are problems of, where not of every one."""
        return None

    def shortened(self, length: int) -> Self:
        """The same data, trained on up to a shorter length."""
        return type(self)(self.task, self.options.model_copy(update={"length": length}))

    def left_out(self) -> tuple[Data, list[int]]:
        """For a trial: the same data up to a shorter length, and the lengths it is judged on."""
        short = self.shortened(max(1, self.length * 2 // 3))
        return short, list(range(short.length + 1, self.length + 1))

    @abstractmethod
    def lay_out(self, problems: Any) -> Batch:
        """Token ids of problems as the task drew or parsed them."""

    @abstractmethod
    def layout(self, problems: Any) -> Layout:
        """Where the tokens of the first of ``problems`` stand."""

    @abstractmethod
    def layout_at(self, length: Any) -> Layout:
        """Where the tokens of a problem of exactly ``length`` stand."""

    @abstractmethod
    def output_steps(self, length: Any) -> int:
        """How many tokens an answer to a problem of that length has, its end too; roughly."""

    @abstractmethod
    def read(self, output: Sequence[str]) -> str:
        """What a person reads in the symbols that a model wrote, its end left out."""

    def bare(self, ids: Tensor) -> Tensor:
        """Outputs ``(b, t)`` without their ``hints``, filled up with padding."""
        hints = torch.tensor([self.vocabulary.ids[hint] for hint in self.hints], dtype=torch.long)
        gone = torch.isin(ids, hints)
        order = gone.long().argsort(dim=1, stable=True)
        return ids.masked_fill(gone, self.vocabulary.pad).gather(1, order)

    def spelling(self) -> dict[str, Any] | None:
        """How a source becomes tokens, as plain data for programs in other languages.

        None where this class alone knows.
        """
        return None

    @property
    def no_window(self) -> str:
        """Why a model of these data has no window; empty where it may have one."""
        return (
            f"a window needs one line of digits, last digit first, and {self.task.name} in "
            f"format {self.options.format} has none: choose aligned for two operands of digits, "
            "or leave it out"
        )

    def gold_attention(self, batch: Batch) -> list[list[int]] | None:
        """For each row the word that each target token is read from; None if nothing says so."""
        return None

    def size_of(self, problems: Any) -> int:
        """The length of the first of ``problems``."""
        return max(self.layout(problems).widths)
