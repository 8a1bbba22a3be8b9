"""Strings that stand twice, and every second word: rows of copies, of the Chomsky benchmark.

``duplicate_string``, ``odds_first`` and ``missing_duplicate`` of Delétang et al. (2023, arXiv
2207.02098).
"""

from __future__ import annotations

from typing import Any

from tasks.rules import ROW
from tasks.words import WordTask


class Duplicate(WordTask):
    """Twice, in two rows: ``4 7 -> 4 7 | 4 7``."""

    name = "duplicate"
    symbols = tuple("0123456789")
    rereads = True

    def step(self, state: Any, word: str) -> tuple[Any, str]:
        return state, word

    def end(self, state: Any) -> tuple[str, ...]:
        return (ROW,)

    def step_below(self, state: Any, above: str, *word: str) -> tuple[Any, str] | None:
        return (state, above) if (above,) == word else None

    def end_below(self, state: Any) -> tuple[str, ...]:
        return ()


class OddsFirst(WordTask):
    """Every second word, then the others: ``4 7 9 8 -> 7 8 4 9``, in the order of the benchmark.

    In two rows, ``7 8 | 4 9``, of which a column reads two words of the source.
    """

    name = "odds_first"
    symbols = tuple("0123456789")
    rereads = True
    stride = 2

    def step(self, state: Any, *words: str | None) -> tuple[Any, str]:
        return state, words[1] or ROW

    def end(self, state: Any) -> tuple[str, ...]:
        return (ROW,)

    def step_below(self, state: Any, above: str | None, *words: str | None) -> Any:
        word, other = words
        return (state, word) if word and above == other else None

    def end_below(self, state: Any) -> tuple[str, ...]:
        return ()

    def read(self, output: str) -> str:
        return " ".join(word for word in output.split() if word != ROW)


class MissingDuplicate(WordTask):
    """The word that is missing where a string stands twice: ``0 1 1 0 1 _ -> 1``.

    As rows of pairs: row ``r`` has each word with the one ``r + 1`` places on, and a ``*`` in
    column ``r``. The row that ends there has the string next to its copy.
    """

    name = "missing_duplicate"
    pairs = tuple(f"{a}{b}" for a in "01_" for b in "01_" if a + b != "__")
    symbols = ("0", "1", "_", *pairs, *(f"{pair}*" for pair in pairs))
    ahead = 1
    train_length = 8
    start = ("", 0, False)
    start_below = ("", False, None, False)

    @property
    def usage(self) -> str:
        return "a string of 0 and 1 twice, with _ for one word, as in '0 1 1 0 1 _'"

    def step(self, state: Any, word: str) -> Any:
        """The state: the word before, how many there are so far (see ``MORE``), one missing?"""
        before, count, missing = state
        if word not in ("0", "1", "_") or (missing and word == "_"):
            return None
        output = f"{before}{word}" + "*" * (count == 1) if before else word
        return (word, MORE[count], missing or word == "_"), output

    def end(self, state: Any) -> Any:
        _, count, missing = state
        return None if not missing or count not in (2, 4) else () if count == 2 else (ROW,)

    def step_below(self, state: Any, above: str, *word: str) -> Any:
        """The cell before, is the one before that marked, how many are behind a mark, any ``_``?"""
        before, marked, behind, missing = state
        second = above.endswith("*")
        if len(above) == 1 or (second and behind is not None) or (missing and above[1] == "_"):
            return None
        cell = f"{before[0]}{above[1]}" + "*" * marked if before else above
        after = 0 if second else MORE.get(behind)
        return (above, before.endswith("*"), after, missing or above[0] == "_"), cell

    def end_below(self, state: Any) -> Any:
        behind = state[2]
        return None if behind not in (2, 4) else () if behind == 2 else (ROW,)

    def read(self, output: str) -> str:
        pairs = [pair for pair in output.rpartition(ROW)[2].split() if "_" in pair]
        return pairs[0].strip("_*") if pairs else output


MORE = {0: 1, 1: 2, 2: 3, 3: 4, 4: 3}
"""One more than 0, 1, 2, an odd number above and an even one above."""
