"""Data of tasks whose output has rows: sources as of other digits, sizes in place of lengths."""

from __future__ import annotations

from typing import Any

import numpy as np

from abc_calib.config import TrainOptions
from abc_calib.data.base import Batch
from abc_calib.data.digits import DigitData
from abc_calib.errors import OptionError, UsageError
from tasks import Digits, Problems, Size
from tasks.rows import RowTask, extent

TESTED = 1000
"""Problems of a size, unless it is said."""
TOKENS = 200_000
"""Tokens of all outputs of a size that are tested unless it is said."""


class RowData(DigitData):
    """Batches of problems of at most ``size``: ``length`` digits, and a number of rows."""

    task: RowTask
    fit = "rows"
    broad = RowTask.laws

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

    def operands(self, problems: Problems) -> tuple[Digits, ...]:
        return problems.operands

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
