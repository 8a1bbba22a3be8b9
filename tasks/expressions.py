"""Stacks, as rows: each is the one after one more instruction, or symbol of an expression.

``stack_manipulation``, ``modular_arithmetic_brackets`` and ``solve_equation`` of Delétang et al.
(2023, arXiv 2207.02098), with the stacks in between. A cell of an expression's stack is a bracket
that is open: a number and an operator that waits for its right side, ``2*``. On top there may be a
number that is complete, ``3``. Symbols that do not fit change nothing, so that every row has a next
one for each symbol.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from tasks.rules import ROW
from tasks.word_rule import COLON
from tasks.words import WordTask

MODULUS = 5
Value = tuple[int, ...]
POP, PUSH = "pop", {"push0": "0", "push1": "1"}
BOTTOM = "_"


class Expression(WordTask):
    """Subclasses say which values there are, and what operators make of two of them."""

    backward = True
    ahead = 1
    train_length = 8
    operators: str
    #: the name of each value, and what a symbol of a source stands for
    names: dict[Value, str]
    read_as: dict[str, Value]

    def __init__(self) -> None:
        self.waiting = {
            f"{n}{o}": (v, o) for (v, n), o in product(self.names.items(), self.operators)
        }
        self.values = {name: value for value, name in self.names.items()}
        self.row_words = (*self.read_as, *self.operators, "(", ")", *self.extra_words)
        self.symbols = tuple(dict.fromkeys((*self.values, *self.waiting, *self.row_words)))

    #: symbols besides
    extra_words: tuple[str, ...] = ()

    def apply(self, left: Value, operator: str, right: Value) -> Value:
        raise NotImplementedError

    @property
    def zero(self) -> str:
        """A bracket that has just been opened: something is added to 0."""
        return f"{self.names[self.read_as['0']]}+"

    def _top(self, does: str | None, top: str) -> Any:
        """What a symbol does to a stack: the state after its top was read."""
        if top in self.values:
            if does == ")":
                return "pop", top
            does = "-" if does == "=" else does
            return "keep", f"{top}{does}" if does and does in self.operators else top
        value, operator = self.waiting[top]
        if does == "(":
            return "push", self.zero, top
        if does in self.read_as:
            return "keep", self.names[self.apply(value, operator, self.read_as[does])]
        if does == "-":  # a sign: a - -b is a + b, and a * -b is -a * b
            negative = self.names[self.apply(self.read_as["0"], "-", value)]
            return "keep", f"{negative}*" if operator == "*" else top[:-1] + "-+"[
                "+-".index(operator)
            ]
        return "keep", top

    def begin(self, word: str | None, closer: str | None) -> Any:
        """The state: what happens, and the cells that are to be written."""
        return "top", word

    def step(self, state: Any, word: Any) -> Any:
        mode, *cells = state
        if word not in self.waiting and (mode != "top" or word not in self.values):
            return None
        if mode == "top":
            return self._top(cells[0], word), word
        if mode == "pop":
            value, operator = self.waiting[word]
            return ("shift",), self.names[self.apply(value, operator, self.values[cells[0]])]
        return (mode, *cells[1:], *([word] * (mode != "shift"))), cells[0] if cells else word

    def end(self, state: Any) -> Any:
        mode, *cells = state
        return None if mode == "top" else tuple(cells)

    def step_below(self, state: Any, above: str, *word: str) -> Any:
        return self.step(state, above)

    def parts(self, source: str) -> list[str]:
        return super().parts(source if COLON in source.split() else f"{source} {COLON} {self.zero}")

    def read(self, output: str) -> str:
        """The number that the last stack has on top, or the stack where it has another top."""
        top, *below = output.rpartition(ROW)[2].split() or [""]
        value = self.values.get(top)
        return " ".join([top, *below]) if below or value is None else self.answer(top, value)

    def answer(self, top: str, value: Value) -> str:
        return top

    @property
    def usage(self) -> str:
        return f"symbols with spaces, as in '{self.example}', and maybe a stack: '2 : 0+ 3-'"

    example = ""


class Brackets(Expression):
    """Arithmetic modulo 5, brackets first, else from left to right: ``( 3 + 4 ) -> 2``."""

    name = "brackets"
    operators = "+-*"
    names = {(v,): str(v) for v in range(MODULUS)}
    read_as = {name: value for value, name in names.items()}
    example = "( 3 + 4 )"

    def apply(self, left: Value, operator: str, right: Value) -> Value:
        (a,), (b,) = left, right
        return ((a + b if operator == "+" else a - b if operator == "-" else a * b) % MODULUS,)


class Equation(Expression):
    """The x that solves an equation modulo 5 in which it stands once: ``( 3 + x ) = 2 -> 4``.

    A value is ``a x + b``, with ``a`` modulo 3: -1, 0 or 1.
    """

    name = "solve_equation"
    operators = "+-"
    extra_words = ("=",)
    names = {(a, b): f"{('', 'x', '-x')[a]}{b}" for a in range(3) for b in range(MODULUS)}
    read_as = {**{str(b): (0, b) for b in range(MODULUS)}, "x": (1, 0)}
    example = "( 3 + x ) = 2"

    def apply(self, left: Value, operator: str, right: Value) -> Value:
        sign = 1 if operator == "+" else -1
        return (left[0] + sign * right[0]) % 3, (left[1] + sign * right[1]) % MODULUS

    def answer(self, top: str, value: Value) -> str:
        a, b = value
        return str((-b if a == 1 else b) % MODULUS) if a else top


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
