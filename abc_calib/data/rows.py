"""Data of tasks whose output has rows: sources as of other digits, sizes in place of lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from abc_calib.config import TrainOptions
from abc_calib.data.base import Batch
from abc_calib.data.digits import DigitData, join, left_to_right
from abc_calib.errors import OptionError, UsageError
from abc_calib.geometry import Layout
from tasks import Digits, Problems, Size
from tasks.rows import RowTask, extent

TESTED = 1000
"""Problems of a size, unless it is said."""
TOKENS = 200_000
"""Tokens of all outputs of a size that are tested unless it is said."""


class RowData(DigitData):
    """Batches of problems of at most ``size``: ``length`` digits, and so many rows."""

    task: RowTask
    fit = "rows"

    def __init__(self, task: RowTask, options: TrainOptions, rows: int | None = None):
        if options.format != "free":
            raise OptionError("format", options.format, f"{task.name} has free alone; leave it out")
        super().__init__(task, options)
        self.rows = rows or task.train_rows(self.length)
        self.size = self.length, self.rows
        self.coupling = task.coupling

    # Batches

    def training(self, step: int, n: int, exact: bool = False) -> Batch:
        rng = np.random.default_rng([self.seed, 1, step])
        return self.lay_out(self._draw(rng, n, self.size, self.sampling, exact, held_out=False))

    def validation(self, n: int) -> Batch:
        rng = np.random.default_rng([self.seed, 2])
        return self.lay_out(self._draw(rng, n, self.size, "balanced", True, held_out=True))

    def sized(self, length: Size) -> tuple[int, int]:
        if min(extent(length)) < 1:
            raise UsageError(f"size {length} is not possible: give 1 or more")
        return extent(length)

    def named(self, length: Size) -> dict[str, int]:
        digits, rows = extent(length)
        return {"length": digits, "rows": rows}

    def digits_of(self, length: Size) -> int:
        return self.task.tokens(length)

    def test(self, length: Size, n: int, kind: str = "random", seed: int = 0) -> Batch:
        law, size = self.laws[kind], extent(length)
        number = list(self.laws).index(kind)
        rng = np.random.default_rng([seed, 3, *size, number])
        if law == "hard":
            return self.lay_out(self.task.hard(rng, n, size))
        if size[0] > self.length:
            return self.lay_out(self.task.sample(rng, n, size, law, exact=True))
        return self.lay_out(self._draw(rng, n, size, law, True, held_out=True))

    def test_size(self, length: Size) -> int:
        return int(np.clip(TOKENS // self.task.tokens(length), 1, TESTED))

    def source_tokens(self, length: Size) -> int:
        return sum(self.task.outline(length))

    def may_train(self, problems: Problems) -> bool:
        return super().may_train(problems) and self.task.size_of(problems.operands)[1] <= self.rows

    def training_of_few_digits(self, n: int) -> Batch:
        """Training problems in which tokens repeat, so that windows do."""
        rng = np.random.default_rng([self.seed, 5])
        return self.lay_out(self.task.sample(rng, n, self.size, "few"))

    # Tokens

    def lay_out(self, problems: Problems) -> Batch:
        operator = self.vocabulary.ids[self.task.operator or ""]
        parts: list[Digits | int] = [self.vocabulary.sos]
        for number, operand in enumerate(problems.operands):
            if number:  # before an operand that is there
                there = (operand.lengths > 0).astype(int)
                sign = np.full((len(problems), 1), operator, np.uint8)
                parts.append(Digits(sign, there))
            parts.append(operand)
        source = join([*parts, self.vocabulary.eos], self.vocabulary.pad)
        written = Digits(left_to_right(problems.answer), problems.answer.lengths)
        target = join([written, self.vocabulary.eos], self.vocabulary.pad)
        return Batch(torch.from_numpy(source), torch.from_numpy(target), problems)

    def layout(self, problems: Problems) -> Layout:
        widths = (int(operand.lengths[0]) for operand in problems.operands)
        return self._layout(tuple(width for width in widths if width))

    def layout_at(self, length: Size) -> Layout:
        if min(extent(length)) < 1:
            raise UsageError(f"size {length} is not possible: give 1 or more")
        return self._layout(self.task.outline(length))

    def output_steps(self, length: Size) -> int:
        return self.task.tokens(length) + 1

    def spelling(self) -> dict[str, Any]:
        """As of other digits, but that operands keep their widths, and there may be any number."""
        task = self.task
        return {
            "notation": task.notation,
            "digits": task.symbols[: task.base],
            "operator": task.operator,
            "operands": task.count if task.count > 1 else None,
            "usage": task.usage,
        }

    def check_window(self, window: int) -> None:
        raise OptionError(
            "attention_window",
            window,
            f"a window follows one line, and {self.task.name} writes rows; leave it out",
        )
