"""Data of tasks on digits: the split of the numbers, training batches and test sets.

Of tasks whose output has rows with sizes in place of lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from abc_calib.config import TrainOptions
from abc_calib.data.base import Batch, Data
from abc_calib.data.formats import Format, as_ids, interleaved
from abc_calib.data.vocabulary import EOS, SOS, Vocabulary
from abc_calib.errors import OptionError, UsageError
from abc_calib.geometry import Layout
from tasks import Problems, Ragged, Size, TaskError
from tasks.arithmetic import Arithmetic
from tasks.ragged import as_integers, from_integers
from tasks.rows import RowTask, extent

PAPER_RANGE = 2**20 + 1
"""Numbers of the paper's permutation: 0 to 2^20 (section 3.3)."""
MOST_SAMPLES = 10_000
TESTED = 1000
"""Problems of a size, unless it is said."""
TOKENS = 200_000
"""Tokens of all outputs of a size that are tested unless it is said."""


class Split:
    """Which numbers are for training and which are held out, 7:1, by a seeded permutation.

    Numbers up to 2^20 follow a permutation as in the paper; larger ones (other bases) a keyed
    hash. The few numbers of three digits or less (in small bases, below 1,000) are always for
    training: they are the only examples of their kind.
    """

    def __init__(self, base: int, seed: int):
        self.base = base
        self.seed = seed
        self.few = max(base**3, 1000)

    @cached_property
    def _held_out(self) -> np.ndarray:
        """Which of the numbers of the paper's range are held out; takes a moment to draw."""
        order = np.random.default_rng([self.seed, 0]).permutation(PAPER_RANGE)
        held_out = np.zeros(PAPER_RANGE, bool)
        held_out[order[: PAPER_RANGE // 8]] = True
        held_out[: self.few] = False
        return held_out

    def held_out(self, number: Ragged) -> np.ndarray:
        """``(n,)`` bool: is each number kept from training?"""
        integers = as_integers(number, self.base)
        is_in_table = self._held_out[np.minimum(integers, PAPER_RANGE - 1).astype(np.int64)]
        mixed = integers ^ np.uint64((self.seed + 1) * 0x9E3779B97F4A7C15 % 2**64)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        return np.where(integers < PAPER_RANGE, is_in_table, (mixed >> np.uint64(61)) == 0)

    def allows(self, problems: Problems, held_out: bool) -> np.ndarray:
        """``(n,)`` bool: are all the problem's numbers on the asked side of the split?

        The few short numbers that are always for training count for both sides. Of three or more
        numbers, hardly ever all held out, one is enough: no such problem is for training.
        """
        side = np.stack([self.held_out(operand) for operand in problems.operands])
        some = np.logical_or.reduce(side)
        if not held_out:
            return ~some
        few = np.stack([as_integers(o, self.base) < self.few for o in problems.operands])
        fits = np.logical_and.reduce(side | few)
        return fits | some if len(side) > 2 else fits


class DigitData(Data):
    """Draws batches of one task in one format from one seed."""

    task: Arithmetic
    laws = {"random": "balanced", "carry": "carry", "hard": "hard"}
    """How each test set is drawn."""
    #: laws in whose place held-out problems are drawn ``balanced``
    broad: ClassVar[tuple[str, ...]] = ("mixed",)

    def __init__(self, task: Arithmetic, options: TrainOptions):
        self.format = Format(options.format)
        self.hints = self.format.hints
        if clash := {*self.hints} & {*task.symbols}:
            rule = f"{task.name} has the symbol {min(clash)} itself; choose the format free"
            raise OptionError("format", options.format, rule)
        super().__init__(task, options, Vocabulary(task, self.hints))
        if options.sampling not in task.laws:
            raise OptionError("sampling", options.sampling, f"choose {', '.join(task.laws)}")
        self.sampling = options.sampling
        self.split = Split(task.base, options.seed)
        self.tests = tuple(self.laws)
        #: do the digits of all operands stand column by column?
        self.aligned = self.format.aligned and task.operator is not None

    # Batches

    def training(self, step: int, n: int, exact: bool = False) -> Batch:
        rng = np.random.default_rng([self.seed, 1, step])
        drawn = self._draw(rng, n, self.size, self.sampling, exact, held_out=False)
        if not self.hints:
            return self.lay_out(drawn)
        used = np.max([drawn.answer.lengths, *(o.lengths for o in drawn.operands)], axis=0)
        first = rng.integers(0, np.maximum(len(self.hints) - used, 0) + 1)
        return self.lay_out(drawn, first)

    def validation(self, n: int) -> Batch:
        """Held-out numbers of exactly the training length."""
        rng = np.random.default_rng([self.seed, 2])
        law = "balanced" if self.sampling in self.broad else self.sampling
        return self.lay_out(self._draw(rng, n, self.size, law, True, held_out=True))

    def test(self, length: Any, n: int, kind: str = "random", seed: int = 0) -> Batch:
        """``n`` problems of exactly ``length`` digits; never a training number of that length.

        Depends on the task, ``length``, ``n``, ``kind`` and ``seed`` and, up to the training
        length, on the split of the training run. The set ``hard`` has inputs of every family of
        ``tasks.hard``: where they are short there are few, so training numbers stay in.
        """
        law, size = self.laws[kind], self.sized(length)
        rng = np.random.default_rng([seed, *self._stream(kind, size)])
        if law == "hard":
            return self.lay_out(self.task.hard(rng, n, size))
        if self.named(size)["length"] > self.length:
            return self.lay_out(self.task.sample(rng, n, size, law, exact=True))
        return self.lay_out(self._draw(rng, n, size, law, True, held_out=True))

    def every(self, length: Any, n: int, kind: str) -> Batch | None:
        if type(self.task).sample is not Arithmetic.sample or self.task.count != 1:
            return None  # it draws as it likes, or pairs of numbers
        most = self.task.base ** min(length, 15)
        if kind != "random" or n < self.test_size(length) or most > MOST_SAMPLES:
            return None
        numbers = np.arange(most // self.task.base * (length > 1), most)
        problems = self.task.problems(from_integers(numbers, self.task.base))
        if length <= self.length:
            problems = problems.take(np.flatnonzero(self.split.allows(problems, held_out=True)))
        return self.lay_out(problems) if len(problems) else None

    def _stream(self, kind: str, size: Any) -> tuple[int, ...]:
        """Which random numbers a test set is drawn with."""
        law = self.laws[kind]
        return (4, size) if law == "hard" else (3, size, self.task.laws.index(law))

    def test_size(self, length: int) -> int:
        """min(base^L - base^(L-1), 10000), as in the paper (section 3.3)."""
        base, short = self.task.base, min(length, 15)  # of which there are more in every base
        return min(base**short - base ** (short - 1), MOST_SAMPLES)

    def _draw(
        self,
        rng: np.random.Generator,
        n: int,
        length: Any,
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
        return parts[0] if len(parts) == 1 else parts[0].joined(*parts[1:])

    # Tokens

    def operands(self, problems: Problems) -> tuple[Ragged, ...]:
        """The numbers of ``problems`` as wide as they are written."""
        return self.task.padded(problems.operands, self.format.width)

    def lay_out(self, problems: Problems, first: np.ndarray | int = 0) -> Batch:
        """Token ids of ``problems``; ``TaskError`` if an operand is wider than the format.

        ``first (n,)``: the number of the hints of last digits.
        """
        task, vocabulary, operands = self.task, self.vocabulary, self.operands(problems)
        answer = problems.answer if self.format.width is None else task.answer(*operands)
        sign = vocabulary.ids.get(task.operator or "", 0)
        parts: list[Ragged | int] = [vocabulary.sos]
        if self.aligned:
            parts += [sign, interleaved(task.columns(operands))]
        else:
            for number, operand in enumerate(operands):
                if number:  # before an operand that is there
                    counts = np.minimum(operand.lengths, 1)
                    parts.append(Ragged(np.full((len(problems), 1), sign, np.int64), counts))
                parts.append(self._hinted(operand, first, hint_first=False).reversed())
        answer = self._hinted(answer, first, hint_first=True)
        source, target = (
            as_ids([*each, vocabulary.eos], vocabulary.pad) for each in (parts, [answer])
        )
        return Batch(source, target, problems)

    def _hinted(self, number: Ragged, first: np.ndarray | int, hint_first: bool) -> Ragged:
        """Each digit with its hint, where the format has hints."""
        if not self.hints:
            return number
        column = np.arange(number.width) + np.reshape(first, (-1, 1))
        hints = self.vocabulary.ids[self.hints[0]] + np.minimum(column, len(self.hints) - 1)
        digits = number.values.astype(np.int64)
        pairs = np.broadcast_arrays(hints, digits)
        pair = np.stack(pairs if hint_first else pairs[::-1], axis=2)
        return Ragged(pair.reshape(len(digits), -1), 2 * number.lengths)

    def layout(self, problems: Problems) -> Layout:
        widths = (int(operand.lengths[0]) for operand in self.operands(problems))
        return self._layout(tuple(width for width in widths if width))

    def layout_at(self, length: Any) -> Layout:
        size = self.sized(length)
        return self._layout(self.task.widths(self.format.width or size))

    def _layout(self, widths: tuple[int, ...]) -> Layout:
        operators = [self.task.operator or ""] * (1 if self.aligned else len(widths) - 1)
        return Layout(widths, (SOS, *operators, EOS), self.aligned, hints=bool(self.hints))

    def output_steps(self, length: Any) -> int:
        return (2 if self.hints else 1) * self.task.tokens(length) + 1

    def read(self, output: Sequence[str]) -> str:
        return self.task.read("".join(s for s in reversed(output) if s not in self.hints))

    def spelling(self) -> dict[str, Any] | None:
        """The digits, the operator, and which operands (None) are as wide as the widest of those.

        ``usage``: for messages. ``last``: the answer is the token written last alone, as of parity.
        """
        if self.hints or self.aligned:
            return None
        widths = zip(self.task.widths(1), self.task.widths(2), strict=True)
        return self._spelled(
            widths=[None if a < b else a for a, b in widths],
            fixed=self.format.width,
            last=self.task.read("10") == "1",
        )

    def _spelled(self, **facts: Any) -> dict[str, Any]:
        names = ("notation", "operator", "usage")
        digits = self.task.symbols[: self.task.base]
        return {**{name: getattr(self.task, name) for name in names}, "digits": digits, **facts}

    @property
    def no_window(self) -> str:
        one_line = self.aligned or len(self.layout_at(1).parts) == 1
        return "" if one_line and not self.hints else super().no_window

    def size_of(self, problems: Problems) -> int:
        return int(max(operand.lengths[0] for operand in problems.operands))

    def may_train(self, problems: Problems) -> bool:
        """Is the first of ``problems`` of a training size, and not held out?"""
        allowed = self.split.allows(problems, held_out=False)
        return self.size_of(problems) <= self.length and bool(allowed[0])


class RowData(DigitData):
    """Batches of problems of at most ``size``: ``length`` digits, and a number of rows."""

    task: RowTask
    fit = "rows"
    broad = RowTask.laws
    no_window = Data.no_window

    def __init__(self, task: RowTask, options: TrainOptions, rows: int | None = None):
        if options.format != "free":
            raise OptionError("format", options.format, f"{task.name} has free alone; leave it out")
        super().__init__(task, options)
        self.rows = rows or task.train_rows(self.length)
        self.size = self.length, self.rows
        self.coupling = task.coupling

    def sized(self, length: Size) -> tuple[int, int]:
        if min(extent(length)) < 1:
            raise UsageError(f"size {length} is not possible: give 1 or more")
        return extent(length)

    def named(self, length: Size) -> dict[str, int]:
        digits, rows = extent(length)
        return {"length": digits, "rows": rows}

    def digits_of(self, length: Size) -> int:
        return self.task.tokens(length)

    def _stream(self, kind: str, size: tuple[int, int]) -> tuple[int, ...]:
        return (3, *size, list(self.laws).index(kind))

    def test_size(self, length: Size) -> int:
        return int(np.clip(TOKENS // self.task.tokens(length), 1, TESTED))

    def may_train(self, problems: Problems) -> bool:
        return super().may_train(problems) and self.task.size_of(problems.operands)[1] <= self.rows

    def training_of_few_digits(self, n: int) -> Batch:
        """Training problems in which tokens repeat, so that windows do."""
        rng = np.random.default_rng([self.seed, 5])
        return self.lay_out(self.task.sample(rng, n, self.size, "few"))

    def operands(self, problems: Problems) -> tuple[Ragged, ...]:
        return problems.operands

    def spelling(self) -> dict[str, Any]:
        """As of other digits, but that operands keep their widths, and there may be any number."""
        return self._spelled(operands=self.task.count if self.task.count > 1 else None)
