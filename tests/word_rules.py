"""Small rules on words, of every kind that there is, with answers by other means."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from tasks import WordTask
from tasks.copies import Duplicate
from tasks.rules import ROW
from tasks.tape import Tape


def repeated(words: list[str], below: Callable[[list[str]], list[str]]) -> str:
    """The rows of a source such as ``3 : a b``, each of them made of the one above."""
    row, rows = words[2:], []
    for _ in range(int(words[0])):
        rows.append(" ".join(row))
        row = below(row)
    return f" {ROW} ".join(rows)


def running(row: list[str]) -> list[str]:
    """Running sums modulo three."""
    return [str(x % 3) for x in itertools.accumulate(map(int, row))]


class Copied(WordTask):
    """A base: words are written as they are read."""

    symbols = ("a", "b")

    def step(self, state: Any, word: Any) -> Any:
        return state, word


class Again(WordTask):
    """A base: as many rows as asked for, each made of the row above as the first of the source."""

    counted = True

    def step_below(self, state: Any, above: str, *word: str) -> Any:
        return self.step(state, above)


class Running(WordTask):
    """Running sums modulo three."""

    name = "running"
    symbols = ("0", "1", "2")

    def step(self, state: int, word: str) -> Any:
        total = (state + int(word)) % 3
        return total, str(total)

    def expected(self, words: list[str]) -> str:
        return " ".join(running(words))


class Backwards(WordTask):
    """From the last word to the first, and the first one read again at the end."""

    name = "backwards"
    symbols = ("a", "b")
    backward = True
    start = ""

    def step(self, state: str, word: str) -> Any:
        return state or word, word

    def end(self, state: str) -> Any:
        return (state,)

    def expected(self, words: list[str]) -> str:
        return " ".join([*words[::-1], words[-1]])


class Ahead(WordTask):
    """Is each word the same as the next one?"""

    name = "ahead"
    symbols = ("0", "1")
    ahead = 1
    start = ""

    def step(self, state: str, word: str) -> Any:
        return word, str(int(state == word))

    def end(self, state: str) -> Any:
        return ("0",)

    def expected(self, words: list[str]) -> str:
        same = [str(int(a == b)) for a, b in itertools.pairwise(words)]
        return " ".join([*same, "0"])


class Behind(Copied):
    """The source without its first two words."""

    name = "behind"
    ahead = 2

    def expected(self, words: list[str]) -> str:
        return " ".join(words[2:])


class Twice(Duplicate):
    """The source, and in a second row again."""

    name = "twice_in_rows"
    symbols = ("a", "b")

    def expected(self, words: list[str]) -> str:
        return " ".join([*words, ROW, *words])


class Cells(Tape):
    """An elementary cellular automaton, rule 110, with zeros at both ends."""

    def expected(self, words: list[str]) -> str:
        def below(row: list[str]) -> list[str]:
            wide = [0, *map(int, row), 0]
            cells = zip(wide, wide[1:], wide[2:], strict=False)
            return [str(110 >> (4 * a + 2 * b + c) & 1) for a, b, c in cells]

        return repeated([*words[:2], *below(words[2:])], below)


class Shorter(WordTask):
    """Each row is the one above without its first word, until one is left."""

    name = "shorter"
    symbols = ("a", "b")
    start = (0, "a")
    ahead = 1

    def step(self, state: Any, word: str) -> Any:
        count, held = state
        return (min(count + 1, 2), word), held

    def end(self, state: Any) -> Any:
        count, held = state
        return (held, ROW) if count > 1 else (held,)

    def step_below(self, state: Any, above: str, *word: str) -> Any:
        count, _ = state
        return (min(count + 1, 3), "a"), above

    def end_below(self, state: Any) -> Any:
        count, _ = state
        return (ROW,) if count > 2 else () if count == 2 else None

    def expected(self, words: list[str]) -> str:
        return f" {ROW} ".join(" ".join(words[k:]) for k in range(len(words)))


class Longer(Again):
    """Each row has one word more than the row above, at its end."""

    name = "longer"
    symbols = ("a", "b")

    def step(self, state: int, word: str) -> Any:
        return state ^ (word == "b"), word

    def end(self, state: int) -> Any:
        return ("ab"[state],)

    def expected(self, words: list[str]) -> str:
        def below(row: list[str]) -> list[str]:
            return [*row, "ab"[row.count("b") % 2]]

        return repeated([*words[:2], *below(words[2:])], below)


class PairSums(WordTask):
    """Sums modulo three of two words each, the last one maybe of one alone."""

    name = "pair_sums"
    symbols = ("0", "1", "2")
    stride = 2

    def step(self, state: int, *words: str | None) -> Any:
        return state, str(sum(int(word or 0) for word in words) % 3)

    def expected(self, words: list[str]) -> str:
        numbers = [*map(int, words)]
        return " ".join(str(sum(numbers[k : k + 2]) % 3) for k in range(0, len(numbers), 2))


class Thirds(WordTask):
    """From the last word on every third, and how many words stand before the first of them."""

    name = "thirds"
    symbols = ("a", "b")
    backward = True
    stride = 3
    ahead = 1
    start = ""

    def step(self, state: str, *words: str | None) -> Any:
        return f"{words[0]}{sum(word is not None for word in words)}", state[:1] or None

    def end(self, state: str) -> Any:
        return (state[0], "ab"[state[1] == "3"])

    def expected(self, words: list[str]) -> str:
        return " ".join([*words[::-1][::3], "ab"[len(words) % 3 == 0]])


class Turns(Copied):
    """Every second word from the last one on, and in a second row the others."""

    name = "turns"
    rereads = True
    stride = 2

    def step(self, state: int, *words: str | None) -> Any:
        return state, words[0]

    def end(self, state: int) -> Any:
        return (ROW,)

    def step_below(self, state: int, above: str, *words: str | None) -> Any:
        if above != words[0]:
            return None
        return (1, None) if words[1] is None else (0, words[1])

    def end_below(self, state: int) -> Any:
        return ()

    def expected(self, words: list[str]) -> str:
        return " ".join([*words[::2], ROW, *words[1::2]])


class Counted(PairSums):
    """The same sums, and in each further row running sums of the row above."""

    name = "counted_pairs"
    counted = True
    start_below = 0

    def step_below(self, state: int, above: str, *word: str) -> Any:
        total = (state + int(above)) % 3
        return total, str(total)

    def expected(self, words: list[str]) -> str:
        return repeated([*words[:2], *super().expected(words[2:]).split()], running)


WORD_RULES: list[type[Any]] = [
    *(Running, Backwards, Ahead, Behind, Twice, Cells, Shorter, Longer),
    *(PairSums, Thirds, Turns, Counted),  # of several words a column
]
