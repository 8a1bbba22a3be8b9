"""The different rows of a layer, each computed once.

A row is given by its state before the layer, the states that its heads read, and which of their
lines meet on a key. The numbers of these make a code, and the code has a number: that of the state
after the layer.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from abc_calib.errors import AbcError
from abc_calib.geometry.coords import AttentionView
from abc_calib.geometry.lines import Heads, Site, formula
from abc_calib.nn.lines import LineGather
from abc_calib.nn.transformer.blocks import Blocks, States

NEW_AT_ONCE = 2**13
"""Rows that are computed at once."""
NUMBER, PART, CODE = 18, 28, 62
"""Bits of the number of a row in a code, of a part of a code, and of a code."""


class Full(AbcError):
    """A table that does not pay: too many windows, or too few rows that read the same."""


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
        numbers = self._slots.index_select(0, slot)  # a quarter of what an index in brackets takes
        left = (self._codes.index_select(0, numbers) != codes).nonzero()[:, 0]
        while len(left := left[numbers[left] != 0]):
            slot[left] = slot[left] + 1 & len(self._slots) - 1
            numbers[left] = self._slots[slot[left]]
            left = left[self._codes[numbers[left]] != codes[left]]
        return numbers - 1

    def add(self, codes: Tensor) -> None:
        """Number codes ``(n,)`` that are new, each once."""
        first, self.count = self.count + 1, self.count + len(codes)
        if self.count >= len(self._codes):
            table = self._codes.new_full((2 * self.count,), -1)
            table[:first] = self._codes[:first]
            self._codes = table
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


class Attended:
    """What one attention reads at one site: its different lines, and those of each head.

    ``first``: the slot of the first of them. ``pairs``: lines of one head that may meet on a key.
    """

    def __init__(self, site: Site, heads: Heads, first: int):
        line_of = {formula(line, site): line for head in heads for line in head}
        order = {line_formula: k for k, line_formula in enumerate(line_of)}
        self.site, self.first, self.count = site, first, len(line_of)
        self.lines = LineGather({site: (tuple(line_of.values()),)})
        self.heads = [[(order[formula(x, site)], x.value) for x in head] for head in heads]
        pairs = {(i, j) for head in self.heads for i, _ in head for j, _ in head if i < j}
        self.pairs = sorted(pairs)

    def without_duplicates(self, equal: set[tuple[int, int]]) -> list[list[tuple[int, float]]]:
        """The (slot, bias) of each head where ``equal`` pairs have met: once, the higher bias."""
        heads = []
        for head in self.heads:
            kept: dict[int, float] = {}
            for slot, bias in head:
                pairs = {k: (min(k, slot), max(k, slot)) for k in kept}
                same = next((k for k in kept if k == slot or pairs[k] in equal), slot)
                kept[same] = max(kept.get(same, bias), bias)
            heads.append([(self.first + slot, bias) for slot, bias in kept.items()])
        return heads


class Layer:
    """The rows of a site after a layer, each different one once."""

    def __init__(
        self,
        blocks: Blocks,
        site: Site,
        number: int,
        attentions: list[list[tuple[Site, Heads]]],
        below: dict[Site, States | Layer],
        last: bool = False,
    ):
        """``attentions``: of each, what it reads; ``below``: whose states those are, by site.

        Of the ``last`` layer's rows the logits are kept.
        """
        self.blocks, self.site, self.number, self.last = blocks, site, number, last
        row_site: Site = "encoder" if site == "encoder" else "self"
        self.below: list[States | Layer] = [below[row_site]]
        self.attentions: list[list[Attended]] = []
        for parts in attentions:
            attended = []
            for where, heads in parts:
                if not any(heads):  # of a stream, whose heads read the other site alone
                    continue
                attended.append(Attended(where, heads, len(self.below)))
                self.below += [below[where]] * attended[-1].count
            self.attentions.append(attended)
        #: how many pairs of lines may meet
        self.pairs = sum(len(part.pairs) for parts in self.attentions for part in parts)
        self.numbering = Numbering()
        self.partial: list[Numbering] = []
        self.made: States | None = None

    @property
    def states(self) -> States:
        assert self.made is not None
        return self.made

    @property
    def size(self) -> int:
        """Bytes that are held."""
        return sum(x.size for x in (self.numbering, *self.partial)) + (
            self.made.size if self.made else 0
        )

    def numbers(
        self, rows: Tensor, below: dict[Site, Tensor], views: dict[Site, AttentionView]
    ) -> Tensor:
        """The numbers ``(b, i)`` of rows with the number ``rows (b, i)`` below.

        ``below[site] (b, n)``: the numbers of the tokens there; ``views``: where they stand.
        """
        fields, pattern = [rows], torch.zeros(1, rows.shape[1], dtype=torch.long)
        for part in (part for parts in self.attentions for part in parts):
            keys = part.lines.positions(views[part.site])[0][:, 0].unbind(-1)
            numbers = below[part.site]
            fields += [
                numbers.index_select(1, key[0]) if len(key) == 1 else numbers.gather(1, key)
                for key in keys
            ]
            for i, j in part.pairs:
                pattern = (pattern << 1) | (keys[i] == keys[j])
        if self.pairs:
            fields.append(pattern.expand(rows.shape))
        flat = [field.reshape(-1) for field in fields]
        code = self._code(flat)
        result = self.numbering.find(code)
        new = (result < 0).nonzero()[:, 0]
        if len(new):
            _, once = np.unique(code[new].numpy(), return_index=True)
            first = new[np.sort(once)]
            if (count := self.numbering.count + len(first)) > 2**NUMBER and not self.last:
                raise Full(f"it has read {count:,} different windows")
            for chunk in first.split(NEW_AT_ONCE):
                self._make([field[chunk].long() for field in flat])
            self.numbering.add(code[first])
            result[new] = self.numbering.find(code[new])
        return result.view(rows.shape)

    def _code(self, fields: list[Tensor]) -> Tensor:
        """One number ``(n,)`` for what all fields are; of many fields by numbers of a part."""
        total, used, folded = fields[0].long(), _bits(self.below[0]), 0
        for k, field in enumerate(fields[1:], 1):
            bits = _bits(self.below[k]) if k < len(self.below) else self.pairs
            if used + bits > CODE:
                if folded == len(self.partial):
                    self.partial.append(Numbering())
                table = self.partial[folded]
                numbers = table.find(total)
                if len(new := total[numbers < 0]):
                    table.add(new.unique())
                    numbers = table.find(total)
                total, used, folded = numbers.long(), PART, folded + 1
            total, used = (total << bits) | field, used + bits
        return total

    def _make(self, where: list[Tensor]) -> None:
        """Compute new rows, by which of their lines meet."""
        slots = [layer if isinstance(layer, States) else layer.states for layer in self.below]
        *indices, pattern = where if self.pairs else (*where, torch.zeros_like(where[0]))
        states = torch.empty(0)
        for met in pattern.unique().tolist():
            rows = (pattern == met).nonzero()[:, 0]
            picked = [numbers[rows] for numbers in indices]
            outputs = self.blocks.row(self.site, self.number, self._heads(met), slots, picked)
            outputs = self.blocks.logits(outputs) if self.last else outputs
            if not len(states):
                states = outputs.new_empty(len(pattern), outputs.shape[1])
            states[rows] = outputs
        if self.made is None:
            self.made = States(states)
        else:
            self.made.add(states)

    def _heads(self, met: int) -> Any:
        """Of each attention the (slot, bias) of each head's keys; ``met``: bits of the pairs."""
        pairs = [(a, pair) for parts in self.attentions for a in parts for pair in a.pairs]
        equal: dict[Attended, set[tuple[int, int]]] = {}
        for k, (part, pair) in enumerate(reversed(pairs)):
            if met >> k & 1:
                equal.setdefault(part, set()).add(pair)
        attention_heads = []
        for parts in self.attentions:
            each = [part.without_duplicates(equal.get(part, set())) for part in parts]
            attention_heads.append(tuple(tuple(chain(*heads)) for heads in zip(*each, strict=True)))
        return tuple(attention_heads)


def _bits(below: States | Layer) -> int:
    """Bits of the numbers of states."""
    return (len(below.states) - 1).bit_length() if isinstance(below, States) else NUMBER
