"""Formats: how a problem of digits is laid out for the model, and rows of tokens one after another.

A *format* is how a problem is laid out for the model. In all of them the source reads
``$ operand [operator operand] &`` and the target is the answer, least significant digit
first, then ``&``.

Index hints (Zhou et al. 2024, arXiv 2402.09371, after Zhou et al. 2023) are a token before each
digit that says which column it stands in: with ``#0``, ``#1``, ..., counted from the last digit on,
``42+39`` reads ``$ #1 4 #0 2 + #1 3 #0 9 &`` and is answered by ``#0 1 #1 8 &``. In training hints
begin at a random one for each problem, so that those of longer numbers have been seen; else at
``#0``. Beyond the last hint all columns have that one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from abc_calib.errors import OptionError
from tasks import Ragged
from tasks.ragged import join

WIDEST = 100_000
"""Digits of the format ``fixed:N`` at most."""
HINTS, MOST_HINTS = 100, 10_000
"""Hints there are, unless it is said, and at most."""


class Format:
    """``free``: no operand wider than the longer one. ``fixed:N``: each of N digits.

    Operands are zero-padded at the left, to one width, as when sums are written in columns;
    an operand that is always one digit (N x 1) stays one digit, as in the paper's ``0123*6``.

    ``aligned`` (paper, appendix A.4): the operator in front, then the digits column by column,
    ``12+34`` as ``+ 1 3 2 4`` and ``12*6`` as ``* 1 6 2 6``. With one operand it is ``free``.
    ``aligned,fixed:N``: both, as in the paper.

    ``hints``, or ``hints:N`` with N of them: see the module.
    """

    def __init__(self, text: str = "free"):
        self.text = text
        self.aligned = text == "aligned" or text.startswith("aligned,fixed:")
        padding = text.removeprefix("aligned,") if self.aligned else text
        kind, colon, value = padding.partition(":")
        plain = value.isascii() and value.isdigit() and len(value) < 10
        number = int(value) if plain else 0
        fixed = kind == "fixed" and 0 < number <= WIDEST
        if kind == "hints" and colon and not 2 <= number <= MOST_HINTS:
            raise OptionError("format", text, f"give hints:N, N from 2 to {MOST_HINTS:,}")
        if text not in ("free", "aligned") and not fixed and kind != "hints":
            raise OptionError(
                "format",
                text,
                "choose free, aligned, hints, fixed:N (fixed:60) or aligned,fixed:N",
            )
        self.width = number if fixed else None
        self.hints = tuple(f"#{k}" for k in range(number or HINTS)) if kind == "hints" else ()


def interleaved(operands: tuple[Ragged, ...]) -> Ragged:
    """The digits of operands of one length, column by column from their first ones on."""
    values = np.stack([operand.reversed().values for operand in operands], axis=2)
    return Ragged(values.reshape(len(values), -1), len(operands) * operands[0].lengths)


def as_ids(parts: Sequence[Ragged | int], pad: int) -> Tensor:
    """Rows of the parts one after another, ``(n, longest)`` int64, padded at the right."""
    return torch.from_numpy(join(*parts, fill=pad, dtype=np.int64).values)
