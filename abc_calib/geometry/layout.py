"""Names of rows and keys: which token of a source or an output stands where.

Digits are counted from the least significant, so that ``a1`` is the ones of the first operand
whatever its length: ``$ a3 a2 a1 + b3 b2 b1 &`` is answered by ``y1 y2 y3 y4 &``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from string import ascii_lowercase

import numpy as np

from abc_calib.data.vocabulary import EOS, SOS
from abc_calib.errors import UsageError
from tasks.arithmetic import Arithmetic


@dataclass(frozen=True)
class Layout:
    """One source: the width of each operand, between SOS, operators and EOS.

    ``aligned``: the operator first, then the digits of all operands column by column; an operand
    of one digit stands in every column.
    The ``words`` of a token task are one operand, and counted from its first, from 0.
    """

    widths: tuple[int, ...]
    operator: str | None = None
    aligned: bool = False
    words: bool = False

    @classmethod
    def of(
        cls, task: Arithmetic, digits: int, width: int | None = None, aligned: bool = False
    ) -> Layout:
        """The source of a problem of ``digits`` digits; of ``width`` in a format ``fixed:N``.

        A second operand that is always one digit stays one digit. ``UsageError`` for a length
        below 1.
        """
        if digits < 1:
            raise UsageError(f"length {digits} is not possible: give 1 or more")
        problem = task.sample(np.random.default_rng(0), 1, width or digits, exact=True)
        operands = task.padded(problem.operands, width)
        widths = tuple(int(operand.lengths[0]) for operand in operands)
        return cls(widths, task.operator, aligned and task.operator is not None)

    @property
    def digits(self) -> int:
        """How long the problem is: the width of its first operand."""
        return self.widths[0]

    @property
    def keys(self) -> int:
        """The length of the source, in tokens."""
        if self.aligned:
            return self.digits * len(self.widths) + 3
        return sum(self.widths) + len(self.widths) + 1

    @property
    def delimiters(self) -> tuple[int, ...]:
        """Positions of SOS, every operator, and EOS."""
        if self.aligned:
            return (0, 1, self.keys - 1)
        return (0, *accumulate(width + 1 for width in self.widths))

    def source_labels(self) -> list[str]:
        """One label a key, such as ``$ a2 a1 + b2 b1 &``."""
        if self.words:
            return [SOS, *map(str, range(self.digits)), EOS]
        labels = [SOS]
        if self.aligned:
            labels.append(self.operator or "")
            for digit in range(self.digits, 0, -1):
                pairs = zip(ascii_lowercase, self.widths, strict=False)
                labels += [f"{letter}{min(digit, width)}" for letter, width in pairs]
            return [*labels, EOS]
        for i, (letter, width) in enumerate(zip(ascii_lowercase, self.widths, strict=False)):
            if i:
                labels.append(self.operator or "")
            labels += [f"{letter}{digit}" for digit in range(width, 0, -1)]
        return [*labels, EOS]


def written_labels(steps: int) -> list[str]:
    """What each of ``steps`` rows writes: ``y1 y2 ... &``."""
    return [*(f"y{step}" for step in range(1, steps)), EOS]


def read_labels(steps: int) -> list[str]:
    """What the decoder reads at each of ``steps`` positions: ``$ y1 y2 ...``."""
    return [SOS, *(f"y{step}" for step in range(1, steps))]
