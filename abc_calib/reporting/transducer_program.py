"""A transducer that was read out of a model, run with numpy alone."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

SYMBOLS, NUMBERS = ["0", "1"], True
TAPES: tuple[int, ...] = 0, 1
FORWARD: tuple[int, ...] = ()
OF_ROW: int | None = None
STARTS, LAG = {"": 0}, 0

# Code
END, FILE = len(SYMBOLS), Path(__file__).with_suffix(".csv")
"""A letter behind the last one of an operand; the table: state, letters, written, next state."""


def tables() -> tuple[np.ndarray, np.ndarray]:
    """The next state, and what is written: arrays of a state and one letter of each operand."""
    rows = np.loadtxt(FILE, delimiter=",", skiprows=1, dtype=int, ndmin=2)
    shape = rows[:, [0, -1]].max() + 1, *[END + 1] * len(TAPES)
    following, written = np.full(shape, -1), np.full(shape, -1)
    at = tuple(rows[:, :-2].T)
    following[at], written[at] = rows[:, -1], rows[:, -2]
    return following, written


def run(*operands: list[str]) -> list[str]:
    """What the model writes for operands, each a list of symbols, token by token."""
    following, written = tables()
    state = STARTS["" if OF_ROW is None else operands[OF_ROW][0]]
    letters = [[SYMBOLS.index(symbol) for symbol in operands[k]] for k in TAPES]
    letters = [tape if k in FORWARD else tape[::-1] for k, tape in zip(TAPES, letters, strict=True)]
    most, output = max(map(len, letters)), list[str]()
    if NUMBERS:
        letters = [tape + [0] * (most - len(tape)) for tape in letters]
    for column in range(most + LAG + 9):
        read = (state, *(tape[column] if column < most else END for tape in letters))
        state, token = following[read], written[read]
        if state < 0:
            raise ValueError(f"not a source of this task: {operands}")
        if token == END:
            return output
        if token >= 0:
            output.append(SYMBOLS[token])
    raise ValueError(f"it does not end: {operands}")


if __name__ == "__main__":
    split = list if max(map(len, SYMBOLS)) == 1 else str.split
    output = run(
        *(split(text if split is str.split else text.replace(" ", "")) for text in sys.argv[1:])
    )
    print("".join(output[::-1]) if NUMBERS else " ".join(output))
