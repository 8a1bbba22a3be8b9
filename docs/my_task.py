"""A task on digits, a task on words and a position scheme: explained in docs/own-task.md."""

import torch
from torch import nn

from abc_calib.nn.positions import Scheme
from tasks import Arithmetic, WordTask


class Minus(Arithmetic):
    """A difference with as many digits as its operands: ``502-7 -> 495``, written as ``5 9 4``."""

    name, operator, count = "minus", "-", 2

    def step(self, borrow, a, b):
        """The next borrow, and the digit that is written."""
        return int(a - b - borrow < 0), (a - b - borrow) % self.base

    def end(self, borrow):
        return ()  # a borrow beyond the first digit is dropped


class Twice(WordTask):
    """Each word two times: ``c a b -> c c a a b b``."""

    name = "twice"
    symbols = tuple("abcdefgh")

    def solve(self, source):
        return " ".join(f"{word} {word}" for word in self.words(source))


class Nearby(Scheme):
    """Each head prefers near keys, with a strength that it learns."""

    name = "nearby"

    def __init__(self, shape, options):
        super().__init__(shape, options)
        self.strength = nn.Parameter(torch.empty(shape.heads))
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.zeros_(self.strength)

    def score_bias(self, queries, keys, view):
        return -self.strength.exp()[:, None, None] * view.offsets().abs()
