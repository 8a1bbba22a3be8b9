"""Digits to token ids: formats, the split of the numbers, training batches and test sets.

A *format* is how a problem is laid out for the model. In all of them the source reads
``$ operand [operator operand] &`` and the target is the answer, least significant digit
first, then ``&``.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from abc_calib.data.vocabulary import Vocabulary
from abc_calib.errors import UsageError
from tasks import Digits, Problems, Rows, TaskError
from tasks.arithmetic import Arithmetic
from tasks.digits import stack
from tasks.hard import hard

PAPER_RANGE = 2**20 + 1
"""Numbers of the paper's permutation: 0 to 2^20 (section 3.3)."""


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
            digest.update(part.to(torch.uint8).numpy().tobytes())
        return digest.hexdigest()[:16]


class Data(Protocol):
    """What training, calibration and evaluation need of data: batches of one task from one seed.

    ``Source`` has it for arithmetic, ``abc_calib.data.tokens.TokenSource`` for tokens.
    """

    task: Any
    vocabulary: Vocabulary
    seed: int
    length: int
    #: sampling law of each test set, by its name
    tests: dict[str, str]

    @property
    def segments(self) -> int:
        """How many parts the delimiters cut a source into."""

    @property
    def column(self) -> int:
        """How many tokens of a source stand in one column: more than 1 if they are aligned."""

    def training(self, step: int, n: int, exact: bool = False) -> Batch:
        """The training batch of a step: the same for the same seed, step and size."""

    def validation(self, n: int) -> Batch:
        """At most ``n`` held-out problems, by which training goes."""

    def test(self, length: int, n: int, law: str = ..., seed: int = 0) -> Batch:
        """At most ``n`` problems of exactly ``length``, none of them for training."""

    def test_size(self, length: int) -> int:
        """How many problems of a length are tested unless it is said."""

    def extent(self, kind: str, length: int) -> tuple[int, int]:
        """The length that a test of a kind is stored under, and how many problems it has."""

    def source_tokens(self, length: int) -> int:
        """The longest source of a problem of that length, roughly."""

    def shortened(self, length: int) -> Data:
        """The same data, trained on up to a shorter length."""

    def lay_out(self, problems: Any) -> Batch:
        """Token ids of problems as the task drew or parsed them."""

    def read(self, output: Sequence[str]) -> str:
        """What a person reads in the symbols that a model wrote, its end left out."""


MOST_SAMPLES = 10_000


def default_samples(base: int, length: int) -> int:
    """min(base^L - base^(L-1), 10000)."""
    if length * math.log2(base) > 20:
        return MOST_SAMPLES
    return min(base**length - base ** (length - 1), MOST_SAMPLES)


class Format:
    """``free``: no operand wider than the longer one. ``fixed:N``: each of N digits.

    Operands are zero-padded at the left, to one width, as when sums are written in columns;
    an operand that is always one digit (N x 1) stays one digit, as in the paper's ``0123*6``.

    ``aligned`` (paper, appendix A.4): the operator in front, then the digits column by column,
    ``12+34`` as ``+ 1 3 2 4`` and ``12*6`` as ``* 1 6 2 6``. With one operand it is ``free``.
    """

    def __init__(self, text: str = "free"):
        self.text = text
        kind, _, width = text.partition(":")
        number = width.isascii() and width.isdigit() and int(width) > 0
        valid = text in ("free", "aligned") or (kind == "fixed" and number)
        if not valid:
            raise UsageError(
                f"unknown format {text!r}: choose free, aligned or fixed:N, as in fixed:60"
            )
        self.width = int(width) if width else None
        self.aligned = text == "aligned"

    def lay_out(self, task: Arithmetic, vocabulary: Vocabulary, problems: Problems) -> Batch:
        """Token ids of ``problems``; ``TaskError`` if an operand is wider than the format."""
        operands = task.padded(problems.operands, self.width)
        answer = task.answer(*operands)
        parts: list[Digits | int] = [vocabulary.sos]
        if self.aligned and task.operator:
            parts += [vocabulary.ids[task.operator], _interleaved(task.columns(operands))]
        else:
            for i, operand in enumerate(operands):
                parts += [vocabulary.ids[task.operator or ""], operand] if i else [operand]
        source = _join([*parts, vocabulary.eos], vocabulary.pad)
        backwards = Digits(_left_to_right(answer), answer.lengths)
        target = _join([backwards, vocabulary.eos], vocabulary.pad)
        return Batch(torch.from_numpy(source), torch.from_numpy(target), problems)


def _interleaved(operands: tuple[Digits, ...]) -> Digits:
    """The digits of operands of one length, column by column."""
    values = np.stack([operand.values for operand in operands], axis=2)
    return Digits(values.reshape(len(values), -1), len(operands) * operands[0].lengths)


def _left_to_right(number: Digits) -> np.ndarray:
    """The digits of each row from the last to the first, aligned at the right again."""
    columns = np.arange(number.width) - (number.width - number.lengths[:, None])
    columns = np.where(columns >= 0, number.width - 1 - columns, 0)
    return np.take_along_axis(number.values, columns, 1)


def _join(parts: list[Digits | int], pad: int) -> np.ndarray:
    """Rows of the parts one after another, ``(n, longest)`` int64, padded at the right."""
    n = next(len(p) for p in parts if isinstance(p, Digits))
    lengths = [p.lengths if isinstance(p, Digits) else np.ones(n, int) for p in parts]
    ids = np.full((n, int(sum(lengths).max(initial=0))), pad, np.int64)  # type: ignore[union-attr]
    start = np.zeros(n, int)
    for part, length in zip(parts, lengths, strict=True):
        if isinstance(part, Digits):
            inside = np.arange(part.width) >= part.width - part.lengths[:, None]
            rows, columns = np.nonzero(inside)
            to = start[rows] + columns - (part.width - part.lengths[rows])
            ids[rows, to] = part.values[rows, columns]
        else:
            ids[np.arange(n), start] = part
        start = start + length
    return ids


class Split:
    """Which numbers are for training and which are held out, 7:1, by a seeded permutation.

    Numbers up to 2^20 follow a permutation as in the paper; larger ones (other bases) a keyed
    hash. The few numbers of three digits or less (in small bases, below 1,000) are always for
    training: they are the only examples of their kind.
    """

    def __init__(self, base: int, seed: int):
        self.base = base
        self.seed = seed
        order = np.random.default_rng([seed, 0]).permutation(PAPER_RANGE)
        self._held_out = np.zeros(PAPER_RANGE, bool)
        self._held_out[order[: PAPER_RANGE // 8]] = True
        self.few = max(base**3, 1000)
        self._held_out[: self.few] = False

    def held_out(self, number: Digits) -> np.ndarray:
        """``(n,)`` bool: is each number kept from training?"""
        integers = number.as_integers(self.base)
        known = self._held_out[np.minimum(integers, PAPER_RANGE - 1).astype(np.int64)]
        mixed = integers ^ np.uint64((self.seed + 1) * 0x9E3779B97F4A7C15 % 2**64)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        return np.where(integers < PAPER_RANGE, known, (mixed >> np.uint64(61)) == 0)

    def allows(self, problems: Problems, held_out: bool) -> np.ndarray:
        """``(n,)`` bool: are all the problem's numbers on the asked side of the split?

        The few short numbers that are always for training count for both sides. Of three or more
        numbers, hardly ever all held out, one is enough: no such problem is for training.
        """
        side = np.stack([self.held_out(operand) for operand in problems.operands])
        some = np.logical_or.reduce(side)
        if not held_out:
            return ~some
        few = np.stack([o.as_integers(self.base) < self.few for o in problems.operands])
        fits = np.logical_and.reduce(side | few)
        return fits | some if len(side) > 2 else fits


class Source:
    """Draws batches of one task in one format from one seed."""

    def __init__(self, task: Arithmetic, layout: Format, seed: int, law: str, length: int):
        self.task = task
        self.layout = layout
        self.vocabulary = Vocabulary(task)
        self.seed = seed
        self.law = law
        self.length = length
        self.split = Split(task.base, seed)
        self.tests = {"random": "balanced", "carry": "carry", "hard": "hard"}

    @property
    def segments(self) -> int:
        """How many parts the delimiters cut a source into."""
        return min(self.task.count, 2) if self.layout.aligned else self.task.count

    @property
    def column(self) -> int:
        """How many digits of a source stand in one column: more than 1 if they are aligned."""
        return self.task.count if self.layout.aligned else 1

    def training(self, step: int, n: int, exact: bool = False) -> Batch:
        """The training batch of a step: the same for the same seed, step and size."""
        rng = np.random.default_rng([self.seed, 1, step])
        return self.lay_out(self._draw(rng, n, self.length, self.law, exact, held_out=False))

    def validation(self, n: int) -> Batch:
        """Held-out numbers of exactly the training length."""
        rng = np.random.default_rng([self.seed, 2])
        law = "balanced" if self.law == "mixed" else self.law
        return self.lay_out(self._draw(rng, n, self.length, law, True, held_out=True))

    def test(self, length: int, n: int, law: str = "balanced", seed: int = 0) -> Batch:
        """``n`` problems of exactly ``length`` digits; never a training number of that length.

        Depends on the task, ``length``, ``n``, ``law`` and ``seed`` and, up to the training
        length, on the split of the training run. The law ``hard`` has inputs of every family of
        ``tasks.hard``: where they are short there are few, so training numbers stay in.
        """
        if law == "hard":
            rng = np.random.default_rng([seed, 4, length])
            return self.lay_out(hard(self.task, rng, n, length))
        rng = np.random.default_rng([seed, 3, length, self.task.laws.index(law)])
        if length > self.length:
            problems = self.task.sample(rng, n, length, law, exact=True)
        else:
            problems = self._draw(rng, n, length, law, True, held_out=True)
        return self.lay_out(problems)

    def test_size(self, length: int) -> int:
        """min(base^L - base^(L-1), 10000), as in the paper (section 3.3)."""
        return default_samples(self.task.base, length)

    def extent(self, kind: str, length: int) -> tuple[int, int]:
        return length, self.test_size(length)

    def source_tokens(self, length: int) -> int:
        return length * self.task.count

    def shortened(self, length: int) -> Source:
        return Source(self.task, self.layout, self.seed, self.law, length)

    def lay_out(self, problems: Problems) -> Batch:
        return self.layout.lay_out(self.task, self.vocabulary, problems)

    def read(self, output: Sequence[str]) -> str:
        return self.task.read("".join(reversed(output)))

    def _draw(
        self,
        rng: np.random.Generator,
        n: int,
        length: int,
        law: str,
        exact: bool,
        held_out: bool,
    ) -> Problems:
        """Problems from one side of the split: rows of the wrong side are drawn again."""
        parts: list[Problems] = []
        missing, attempts = n, 0
        while missing > 0:
            extra = missing * (10 if held_out else 2) + 64
            drawn = self.task.sample(rng, extra, length, law, exact)
            kept = drawn.take(np.flatnonzero(self.split.allows(drawn, held_out))[:missing])
            if len(kept):
                parts.append(kept)
            missing -= len(kept)
            attempts += 1
            if attempts > 200:
                raise TaskError(f"no {'held-out ' if held_out else ''}numbers of {length} digits")
        return concatenate(parts)


def concatenate(parts: list[Problems]) -> Problems:
    """The rows of all parts, one below the other."""
    operands = zip(*(part.operands for part in parts), strict=True)
    return Problems(tuple(stack(*o) for o in operands), stack(*(part.answer for part in parts)))
