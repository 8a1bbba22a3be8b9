"""2-tag systems as tapes of a universal Turing machine, Rogozhin's UTM(4,6).

A 2-tag system takes the first two letters off a word and appends the production of the first one:
with ``a -> aa``, ``aaH`` becomes ``Haa``, and halts at H. Systems of this kind can do what any
Turing machine does (Cocke & Minsky 1964), and so can a machine that runs them all (Rogozhin 1996,
https://doi.org/10.1016/S0304-3975(96)00077-1). The encoding here was derived from the machine's
table: a letter is as many ones as there are marks b in the productions before its own, and one;
``<b b P_n ... P_1 b`` and the word follow each other, where of ``x -> y_1 ... y_m``

    P = b 1 b 1^N(y_m) bb ... bb 1^N(y_2) bb 1^(N(y_1) - N(x)).

>>> TagSystem({"a": "aa"}).encode("aaH")
'518 : 4 2 2 1 2 1 2 2 2 A1 5 1 5 1 1 1 1 1'
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Self

from tasks.base import TaskError
from tasks.tape import read

UNIVERSAL = "4LA4LA3RA2LA0RA0RD_1LB0RB3LC4RB3LB2RB_5RA1RC4RD2RC---1RA_5LB0RD5LB4RD---2RD"
"""UTM(4,6) as a rule of ``tape``: Rogozhin (1996), section 8. Its symbols 0, 1, b, b>, <b and c are
0 to 5 here."""
ONE, MARK, EDGE, COMMA = "1", "2", "4", "5"
COMPLETE = f"C{COMMA}"
"""The head's cell in the rows in which a word stands complete: to the right of it, up to the end of
the row. The head is there once in each tag step, and erases what parts the word from its past."""
MOST_STEPS = 99_999
"""Of the machine: the rows of an output of ``tape``."""


class TagSystem:
    """A 2-tag system: what each letter but ``halt`` produces.

    In an order in which no production is empty or begins with a letter before its own;
    ``TaskError`` where that fails.
    """

    def __init__(self, productions: Mapping[str, str], halt: str = "H"):
        self.productions, self.halt = {**productions}, halt
        letters = (*productions, halt)
        if halt in productions or any(len(x) != 1 or x.isspace() for x in letters):
            raise TaskError(
                f"letters {', '.join(map(repr, letters))}: give single characters, and no "
                "production of the last one, at which the system halts"
            )
        marks = (2 * len(word) for word in productions.values())
        self._ones = dict(zip(letters, accumulate(marks, initial=1), strict=True))
        for letter, word in productions.items():
            self._check_letters(word)
            if not _fits(letters, letter, word):
                raise TaskError(
                    f"{letter} -> {word}: a production cannot be empty or begin with a letter "
                    "before its own; give another order, or use TagSystem.padded"
                )

    @classmethod
    def padded(cls, productions: Mapping[str, str], halt: str = "H", dummy: str = "D") -> Self:
        """Any 2-tag system: productions that are not possible begin with two dummies.

        As these come and go in twos (``D -> DD``), nothing else changes: see ``plain``.
        """
        if dummy in (*productions, halt):
            raise TaskError(f"the letter {dummy!r} is taken: give another dummy")
        letters = (*productions, dummy, halt)
        padded = {x: w if _fits(letters, x, w) else 2 * dummy + w for x, w in productions.items()}
        return cls({**padded, dummy: 2 * dummy}, halt)

    def run(self, word: str) -> Iterator[str]:
        """The words after each tag step.

        Until one begins with ``halt`` or has fewer than two letters.
        """
        self._check_letters(word)
        while len(word) > 1 and word[0] != self.halt:
            word = word[2:] + self.productions[word[0]]
            yield word

    def encode(self, word: str, most: int = MOST_STEPS) -> str:
        """A source of ``tape``: rows until the machine halts, for ``most`` tag steps at most.

        It halts where ``halt`` begins a word of two letters or more; a word of fewer ends the rows.
        ``TaskError`` for more than 99,999 steps of the machine.
        """
        self._check_letters(word)
        if len(word) < 2 or most < 1:
            raise TaskError(
                f"{most} tag steps on {word!r}: give at least 1, and a word of two letters or more"
            )
        tape = [EDGE, MARK]
        for letter in reversed(self.productions):
            first, *others = (self._ones[y] for y in self.productions[letter])
            parts = [ONE * n for n in (*reversed(others), first - self._ones[letter])]
            tape += MARK + ONE + MARK + (2 * MARK).join(parts)
        tape += MARK
        front, cells = len(tape), COMMA.join(ONE * self._ones[x] for x in word)
        steps = self._steps([*tape, *cells], front, most)
        return f"{steps} : {' '.join(tape)} A{' '.join(cells)}"

    def words(self, output: Iterable[str]) -> list[str]:
        """The words after each tag step, from the tokens of an output; ``?`` is no letter."""
        letters = {n: letter for letter, n in self._ones.items()}
        segments = re.findall(f"{COMPLETE}((?: [{ONE}{COMMA}])*)", " ".join(output))
        runs = (cells.replace(" ", "").split(COMMA) for cells in segments)
        return ["".join(letters.get(len(ones), "?") for ones in word) for word in runs]

    def plain(self, words: Iterable[str], dummy: str = "D") -> list[str]:
        """The words of the system that was ``padded``, from those of this one."""
        return [word.replace(dummy, "") for word in words if word[:1] != dummy]

    def _check_letters(self, word: str) -> None:
        if odd := {*word} - {*self._ones}:
            raise TaskError(f"{min(odd)!r} in {word!r} is not a letter: {', '.join(self._ones)}")

    def _steps(self, tape: list[str], at: int, most: int) -> int:
        """Steps of the machine from a tape and the head's place on it."""
        machine: Any = read(UNIVERSAL)
        state, words = "A", 0
        for step in range(1, MOST_STEPS + 1):
            tape[at], way, state = machine.moves[state, tape[at]]
            at += 1 if way == "R" else -1
            if at == len(tape):
                tape.append("0")
            if state not in machine.states:
                return step
            words += (complete := state + tape[at] == COMPLETE)
            if complete and (words == most or COMMA not in tape[at + 1 :]):
                return step
        raise TaskError(
            f"the machine does {words} tag steps in {MOST_STEPS:,} steps of its own, the most that "
            "an output has: give as many or fewer"
        )


def _fits(letters: Sequence[str], letter: str, word: str) -> bool:
    """Can a letter produce a word, in this order of letters?"""
    return word[:1] in letters[letters.index(letter) :]
