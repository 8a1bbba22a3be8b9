"""A stack that follows instructions, as rows: each is the stack after one more of them.

``stack_manipulation`` of Delétang et al. (2023, arXiv 2207.02098), with the states in between.
"""

from __future__ import annotations

from typing import Any

from tasks.rules import ROW
from tasks.words import WordTask

POP, PUSH = "pop", {"push0": "0", "push1": "1"}
BOTTOM = "_"


class Stack(WordTask):
    """The stack after each instruction, its top first: ``push1 pop pop : 0 1 -> 0``.

    A source has the instructions, and the stack from its bottom on; of an empty one nothing is
    taken. Rows end with a bottom, and the last stack stands there once more:
    ``1 1 0 _ | 1 0 _ | 0 _ | 0 _``.
    """

    name = "stack"
    row_words = (POP, *PUSH)
    symbols = ("0", "1", BOTTOM, *row_words)
    backward = True
    ahead = 1
    train_length = 6

    def begin(self, word: str | None, closer: str | None) -> Any:
        """The state: the row's instruction, and the last two words of the row above."""
        return word, None, None

    def step(self, state: Any, word: Any) -> Any:
        return self.step_below(state, word) if word in PUSH.values() else None

    def end(self, state: Any) -> Any:
        after, written = self.step_below(state, BOTTOM)
        return written, *self.end_below(after)

    def step_below(self, state: Any, above: str, *word: str) -> Any:
        does, last, before = state
        if last == BOTTOM or above in self.row_words:
            return None
        written = {None: last, POP: above}.get(does, before or PUSH.get(does))
        return (does, above, last), written

    def end_below(self, state: Any) -> Any:
        does, last, before = state
        if last != BOTTOM:
            return None
        if does == POP:
            return () if before else (last,)
        return (last,) if does is None else (before or PUSH[does], last)

    def read(self, output: str) -> str:
        return output.rpartition(ROW)[2].replace(BOTTOM, "").strip()
