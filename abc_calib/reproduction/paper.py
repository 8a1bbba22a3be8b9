"""The numbers of Duan & Shi, "From Interpolation to Extrapolation" (2024), as printed there.

Exact match in percent. Task names are those of the command line: ``multiplication`` is N x 1.
"""

from __future__ import annotations

LENGTHS = (6, 10, 15, 20, 50)
"""Digits of an operand: the columns of tables 1 and 3."""

Numbers = tuple[float | None, ...]

INTERPOLATES: Numbers = (100.0, 0.0, 0.0, 0.0, 0.0)
EXACT: Numbers = (100.0, 100.0, 100.0, 100.0, 100.0)

PAPER: dict[tuple[str, str], Numbers] = {
    # Table 1, and table 3 where it has the same row
    ("successor", "vanilla"): INTERPOLATES,
    ("successor", "alibi"): (1.3, 0.0, 0.0, 0.0, 0.0),
    ("successor", "rope"): INTERPOLATES,
    ("successor", "abc"): EXACT,
    ("successor", "abc-padded"): EXACT,
    ("addition", "vanilla"): INTERPOLATES,
    ("addition", "alibi"): (0.0, 0.0, 0.0, 0.0, 0.0),
    ("addition", "rope"): INTERPOLATES,
    ("addition", "rpe"): (100.0, 99.9, 97.2, 21.3, None),  # from Jelassi et al. (2023)
    ("addition", "abc"): (100.0, 100.0, 99.9, 99.9, 99.8),
    ("multiplication", "vanilla"): INTERPOLATES,
    ("multiplication", "abc"): EXACT,
    # Table 3 (appendix A.5)
    ("successor", "window"): EXACT,
    ("successor", "window+cyclic"): EXACT,
    ("successor", "nope+window"): EXACT,
    ("addition", "window"): INTERPOLATES,
    ("addition", "window+cyclic"): EXACT,
    ("addition", "nope+window"): (99.95, 99.81, 99.84, 99.76, 99.35),
    ("parity", "window"): EXACT,
    ("parity", "window+cyclic"): EXACT,
    ("parity", "nope+window"): EXACT,
    ("multiplication", "window"): (100.0, 6.0, 0.19, 0.0, 0.0),
    ("multiplication", "window+cyclic"): EXACT,
    ("multiplication", "nope+window"): (99.89, 99.63, 99.49, 99.39, 98.31),
    ("multiplication", "rope"): INTERPOLATES,
}
"""By task and row. A row that is not here has no number in the paper."""

TABLE2: dict[str, tuple[bool, bool]] = {
    "successor": (True, False),
    "addition": (True, False),
    "parity": (False, False),
    "multiplication": (True, False),
}
"""Does the vanilla Transformer interpolate, and does it extrapolate? (Table 2)"""

PARITY_NOTE = (
    "The paper prints one number for a Transformer on parity, 52.00, and gives no length: it is "
    "the best of five position encodings in Delétang et al. (2023), who ask for one bit. Here "
    "parity is the paper's running xor, trained on up to 20 bits (its numbers go to 2^20), so "
    "that 6 to 20 bits are training lengths."
)


def number(task: str, row: str, length: int) -> float | None:
    """What the paper has for a task, row and length."""
    numbers = PAPER.get((task, row))
    return numbers[LENGTHS.index(length)] if numbers and length in LENGTHS else None
