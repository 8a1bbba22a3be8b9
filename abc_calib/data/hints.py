"""Digits behind index hints: a token before each digit says which column it stands in.

Zhou et al. 2024 (arXiv 2402.09371), after Zhou et al. 2023: with hints ``#0``, ``#1``, ..., counted
from the last digit on, ``42+39`` reads ``$ #1 4 #0 2 + #1 3 #0 9 &`` and is answered by
``#0 1 #1 8 &``. In training hints begin at a random one for each problem, so that those of longer
numbers have been seen; else at ``#0``. Beyond the last hint all columns have that one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from abc_calib.config import TrainOptions
from abc_calib.data.base import Batch
from abc_calib.data.digits import DigitData, join, left_to_right
from abc_calib.data.vocabulary import Vocabulary
from abc_calib.errors import OptionError
from abc_calib.geometry import Layout
from tasks import Digits, Problems
from tasks.arithmetic import Arithmetic

USUAL, MOST = 100, 10_000
"""Hints there are, unless it is said, and at most."""


class HintData(DigitData):
    """Batches in the format ``hints``, or ``hints:N`` with N hints."""

    def __init__(self, task: Arithmetic, options: TrainOptions):
        super().__init__(task, options.model_copy(update={"format": "free"}))
        self.options = options
        _, colon, text = options.format.partition(":")
        plain = text.isascii() and text.isdigit() and len(text) < 6
        if colon and not (plain and 2 <= int(text) <= MOST):
            raise OptionError("format", options.format, f"give hints:N, N from 2 to {MOST:,}")
        self.hints = tuple(f"#{k}" for k in range(int(text) if colon else USUAL))
        if taken := {*self.hints} & {*task.symbols}:
            rule = f"{task.name} has the symbol {min(taken)} itself; choose the format free"
            raise OptionError("format", options.format, rule)
        self.vocabulary = Vocabulary(task, self.hints)

    def training(self, step: int, n: int, exact: bool = False) -> Batch:
        rng = np.random.default_rng([self.seed, 1, step])
        drawn = self._draw(rng, n, self.length, self.sampling, exact, held_out=False)
        used = np.max([drawn.answer.lengths, *(o.lengths for o in drawn.operands)], axis=0)
        return self._hinted(drawn, rng.integers(0, np.maximum(len(self.hints) - used, 0) + 1))

    def lay_out(self, problems: Problems) -> Batch:
        return self._hinted(problems, np.zeros(len(problems), int))

    def _hinted(self, problems: Problems, start: np.ndarray) -> Batch:
        """Token ids, the last digits having the hints of these numbers ``(n,)``."""
        parts: list[Digits | int] = [self.vocabulary.sos]
        for i, operand in enumerate(self.task.padded(problems.operands)):
            parts += [self.vocabulary.ids[self.task.operator or ""]] if i else []
            parts.append(self._pairs(operand, start, hint_first=True))
        written = self._pairs(problems.answer, start, hint_first=False)
        written = Digits(left_to_right(written), written.lengths)
        source = join([*parts, self.vocabulary.eos], self.vocabulary.pad)
        target = join([written, self.vocabulary.eos], self.vocabulary.pad)
        return Batch(torch.from_numpy(source), torch.from_numpy(target), problems)

    def _pairs(self, number: Digits, start: np.ndarray, hint_first: bool) -> Digits:
        """Each digit beside its hint."""
        column = np.arange(number.width)[::-1] + start[:, None]
        hints = self.vocabulary.ids[self.hints[0]] + np.minimum(column, len(self.hints) - 1)
        digits = number.values.astype(np.int64)
        pair = np.stack([hints, digits] if hint_first else [digits, hints], axis=2)
        return Digits(pair.reshape(len(digits), -1), 2 * number.lengths)

    def _layout(self, widths: tuple[int, ...]) -> Layout:
        plain = super()._layout(widths)
        return Layout(plain.widths, plain.delimiters, hints=True)

    def source_tokens(self, length: int) -> int:
        return 2 * super().source_tokens(length)

    def output_steps(self, length: int) -> int:
        return 2 * super().output_steps(length) - 1

    def read(self, output: Sequence[str]) -> str:
        return super().read([symbol for symbol in output if symbol not in self.hints])

    def bare(self, ids: Tensor) -> Tensor:
        first = self.vocabulary.ids[self.hints[0]]
        gone = (ids >= first) & (ids < first + len(self.hints))
        order = gone.long().argsort(dim=1, stable=True)
        return ids.masked_fill(gone, self.vocabulary.pad).gather(1, order)

    def spelling(self) -> None:
        """Which hints stand before the digits, this class alone knows."""

    def check_window(self, window: int) -> None:
        rule = "a window follows the digits, and hints stand between them; choose the format free"
        raise OptionError("attention_window", window, rule)
