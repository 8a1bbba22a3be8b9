"""Numbers for different things, in the order in which they were met."""

from __future__ import annotations

import torch
from torch import Tensor


class Numbering:
    """Numbers from 0 for codes, in the order in which they were met: a hash table."""

    def __init__(self) -> None:
        self.count = 0
        self._codes = torch.full((1024,), -1)  # that of number k at k + 1: 0 is an empty slot
        self._resize(12)

    def _resize(self, bits: int) -> None:
        self._bits = bits
        self._slots = torch.zeros(2**bits, dtype=torch.int32)
        self._place(self._codes[1 : self.count + 1], 1)

    def _slot(self, codes: Tensor) -> Tensor:
        return (codes * -7046029254386353131 >> 64 - self._bits) & (2**self._bits - 1)

    @property
    def size(self) -> int:
        """Bytes that are held."""
        return self._codes.nbytes + self._slots.nbytes

    def find(self, codes: Tensor) -> Tensor:
        """The numbers of ``codes (n,)``, ``(n,)``; -1 of those that were not met."""
        slot = self._slot(codes)
        found = self._slots[slot]
        left = (self._codes[found] != codes).nonzero()[:, 0]
        while len(left := left[found[left] != 0]):
            slot[left] = slot[left] + 1 & len(self._slots) - 1
            found[left] = self._slots[slot[left]]
            left = left[self._codes[found[left]] != codes[left]]
        return found - 1

    def add(self, codes: Tensor) -> None:
        """Number codes ``(n,)`` that are new, each once."""
        first, self.count = self.count + 1, self.count + len(codes)
        if self.count >= len(self._codes):
            more = self._codes.new_full((2 * self.count,), -1)
            more[:first] = self._codes[:first]
            self._codes = more
        self._codes[first : self.count + 1] = codes
        if 4 * self.count > len(self._slots):
            self._resize((8 * self.count).bit_length())
        else:
            self._place(codes, first)

    def _place(self, codes: Tensor, first: int) -> None:
        slot, left = self._slot(codes), torch.arange(len(codes))
        numbers = (left + first).int()
        while len(left):
            free = left[self._slots[slot[left]] == 0]
            self._slots[slot[free]] = numbers[free]
            left = left[self._slots[slot[left]] != numbers[left]]
            slot[left] = slot[left] + 1 & len(self._slots) - 1
