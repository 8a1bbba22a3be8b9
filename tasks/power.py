"""Powers modulo a small number, in two rows of running residues.

The first row has the residues of the base number, from its first digit on, and closes with its
residue ``v``, which every column of the second row sees. There a residue ``s`` becomes ``s^b v^d``
for a digit ``d`` of the exponent, ``b`` being the base of the digits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tasks.base import TaskError
from tasks.rules import END
from tasks.whole import DIGITS, Whole

CLOSES = "="
LARGEST = len(DIGITS)


class Power(Whole):
    """A power modulo a number, by default 7, as ``101^11 -> 6``."""

    name = "power"
    options = ("base", "machine")
    bases = (2, *range(3, 11))
    operator = "^"
    example = "101^11"
    backward = False
    operands = 2
    rereads = True
    unit = "digits"
    train_length = 6

    def __init__(self, base: int | None = None, machine: str | None = None):
        super().__init__(base)
        found = re.fullmatch(r"mod:(\d{1,2})", machine or "mod:7")
        if not found or not 2 <= int(found[1]) <= LARGEST:
            raise TaskError(
                f"{machine!r} is no modulus of power: choose mod:K, K from 2 to {LARGEST}"
            )
        self.modulus = int(found[1])
        residues = DIGITS[: self.modulus]
        self.closers = tuple(CLOSES + digit for digit in residues)
        self.symbols = (*dict.fromkeys(self.digits + residues), *self.closers)

    def begin(self, word: str | None, closer: str | None) -> Any:
        """The state: the residue of the number, None in its own row, and that of what was read."""
        return (None, 0) if closer is None else (int(closer[1:]), 1 % self.modulus)

    def step(self, state: Any, a: str | None, b: str | None) -> Any:  # type: ignore[override]
        if not a or not b or not {a, b} <= {*self.digits}:
            return None
        residue = (state[1] * self.base + int(a)) % self.modulus
        return (None, residue), str(residue)

    def end(self, state: Any) -> Any:
        return (f"{CLOSES}{state[1]}",)

    def step_below(self, state: Any, above: str | None, *word: str) -> Any:
        if above is None or not {*word} <= {*self.digits}:
            return None
        residue, power = state
        power = pow(power, self.base) * pow(residue, int(word[1])) % self.modulus
        return (residue, power), str(power)

    def end_below(self, state: Any) -> Any:
        return (END,)

    def answer(self, rows: Sequence[tuple[list[str], str]]) -> str:
        return rows[1][0][-1]
