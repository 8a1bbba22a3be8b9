"""A transducer that was read out of a model, run with numpy alone: python FILE OPERAND ..."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

# Model
SYMBOLS, NUMBERS, LAG = ["0", "1"], True, 0
TAPES: tuple[int, ...] = 0, 1
FORWARD: tuple[int, ...] = ()
OF_ROW: int | None = None
STARTS = {"": 0}
# Code
END, FILE = len(SYMBOLS), Path(__file__).with_suffix(".csv")
"""A letter behind the last one of an operand; the table: state, letters, output, next state."""
COUNT = max(*TAPES, OF_ROW or 0) + 1
"""Operands."""


def run(*operands: list[str]) -> list[str]:
    """Return what the model writes for operands, each a list of symbols, token by token."""
    if len(operands) != COUNT:
        raise ValueError(f"{len(operands)} operands, and it reads {COUNT}")
    rows = np.loadtxt(FILE, delimiter=",", skiprows=1, dtype=int, ndmin=2).tolist()
    steps = {tuple(row[:-2]): row[-2:] for row in rows}
    state = STARTS["" if OF_ROW is None else "".join(operands[OF_ROW])]
    letters = [[SYMBOLS.index(symbol) for symbol in operands[k]] for k in TAPES]
    letters = [tape if k in FORWARD else tape[::-1] for k, tape in zip(TAPES, letters, strict=True)]
    most, output = max(map(len, letters)), list[str]()
    if NUMBERS:
        letters = [tape + [0] * (most - len(tape)) for tape in letters]
    for column in range(most + LAG + 9):
        read = (state, *(tape[column] if column < most else END for tape in letters))
        if read not in steps:
            raise ValueError(f"not a source of this task: {operands}")
        token, state = steps[read]
        if token == END:
            return output
        if token >= 0:
            output.append(SYMBOLS[token])
    raise ValueError(f"it does not end: {operands}")


if __name__ == "__main__":
    single = max(map(len, SYMBOLS)) == 1
    operands = [list(text.replace(" ", "")) if single else text.split() for text in sys.argv[1:]]
    try:
        output = run(*operands)
    except (LookupError, ValueError):
        shown = [SYMBOLS[1 : 0 if k == OF_ROW else None : -1] for k in range(COUNT)]
        words = " ".join(f'"{("" if single else " ").join(operand)}"' for operand in shown)
        text = f"call it as python {sys.argv[0]} {words}, of the symbols {' '.join(SYMBOLS)}"
        print(text, file=sys.stderr)
        sys.exit(2)
    print("".join(output[::-1]) if NUMBERS else " ".join(output))
