"""Rows that are computed alike, wherever they stand: what one of them gives, the others give too.

A row in the middle of a number and one with a column left read other tokens, but by the same lines
from rows and tokens that are arranged alike. So windows that agree are run once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from abc_calib.certification.field import Field
from abc_calib.certification.network import code
from abc_calib.certification.places import Atom, Case, Phase, Place, Token
from abc_calib.certification.windows import Enumeration, TooMany, Windows, late

Shape = tuple[Any, ...]
FEW = 64
"""Phases of positions are told apart where a case has at least so many windows of each."""


def shape_of(
    field: Field, case: Case, phases: Mapping[Atom, int] | None = None
) -> tuple[Shape, tuple[Atom, ...]]:
    """How the prediction of a row is computed, and from what: its atoms in the order of their use.

    Rows of one shape are computed alike where the first atom of one has the value of the first of
    the other, and so on. ``phases``: of the positions; they are no atoms here, but in the shape.
    """
    nodes: list[Any] = []
    numbers: dict[tuple[int, Place], int] = {}
    atoms: dict[Atom, int] = {}
    known = phases or {}

    def token(read: Token) -> tuple[str, int | None, int]:
        phase = field.phase(read, case, lambda atom: known.get(atom, 0))
        if read.atom is None:
            return "symbol", read.symbol, phase
        return "atom", atoms.setdefault(read.atom, len(atoms)), phase

    def row(layer: int, place: Place) -> int:
        """The number of a row's node, which names those that it reads by their numbers."""
        if (layer, place) not in numbers:
            if layer == 0:
                node: Any = token(field.input(place, case))
            else:
                itself = row(layer - 1, place)
                sites = [
                    [
                        [
                            (
                                row(layer - 1, key.row) if key.row is not None else None,
                                token(key.token) if key.token is not None else None,
                                key.bias,
                            )
                            for key in head
                        ]
                        for head in heads
                    ]
                    for heads in field.keys(layer - 1, place, case)
                ]
                node = itself, _frozen(sites)
            numbers[layer, place] = len(nodes)
            nodes.append(node)
        return numbers[layer, place]

    row(field.layers, case.place)
    return tuple(nodes), tuple(atoms)


def _frozen(nested: Any) -> Any:
    return tuple(map(_frozen, nested)) if isinstance(nested, list) else nested


@dataclass(frozen=True)
class Member:
    """Windows of one case among those that are computed alike.

    ``number``: of the case. ``atoms``: those that decide, in an order that all members share.
    ``held``: its windows, if they are; else they are those of ``made``.
    """

    number: int
    made: Enumeration
    atoms: tuple[Atom, ...]
    held: Windows | None

    def windows(self, limit: int) -> Windows:
        """All of them; ``TooMany`` if they are not held and more than ``limit``."""
        return self.made.windows(limit) if self.held is None else self.held

    def where(self, place: int, value: int) -> Member:
        """Those of them whose atom number ``place`` has this value."""
        atom, held = self.atoms[place], self.held
        if held is not None:
            held = held.take(held.values[:, held.atoms.index(atom)] == value)
        return replace(self, made=self.made.where({atom: value}), held=held)

    def radix(self, place: int) -> int:
        """How many values its atom number ``place`` has."""
        return self.made.radix[self.made.atoms.index(self.atoms[place])]

    def share(self, size: int) -> int:
        """How many of the ``size`` windows of its case they are, about."""
        if self.held is not None:
            return len(self.held)
        return size // math.prod(self.made.period for a in self.made.fixed if isinstance(a, Phase))

    def codes(self, windows: Windows) -> np.ndarray:
        """One number for each window, the same for windows of all members that are alike."""
        columns = [windows.atoms.index(atom) for atom in self.atoms]
        values = code(windows.values, columns, [windows.radix[c] for c in columns])
        return values * (self.made.eos + 1) + windows.expected


@dataclass(frozen=True)
class Group:
    """Windows of several cases that are computed alike."""

    field: Field
    members: list[Member]

    def size(self, sizes: list[int]) -> int:
        """How many windows have to be run, about, of cases of these ``sizes``."""
        return max(member.share(sizes[member.number]) for member in self.members)

    def parts(self, limit: int) -> Iterator[list[Windows]]:
        """The windows of each member, in parts of at most ``limit`` each, one after another.

        Windows that are alike are in the same part; no window is in two.
        """
        try:
            yield [member.windows(limit) for member in self.members]
        except TooMany:
            open_ = [
                place
                for place in self._order
                if all(member.made.open(member.atoms[place]) for member in self.members)
            ]
            if not open_:
                raise
            for value in range(max(member.radix(open_[0]) for member in self.members)):
                part = [member.where(open_[0], value) for member in self.members]
                yield from Group(self.field, part).parts(limit)

    @cached_property
    def _order(self) -> list[int]:
        """Atoms in the order in which they are fixed.

        First those that most of the states below the last layer depend on: so the tables of all
        these states get smaller with the parts, and none is made again for each part.
        """
        first, top = self.members[0], self.field.layers - 1
        case = first.made.case
        keys = chain.from_iterable(chain.from_iterable(self.field.keys(top, case.place, case)))
        rows = {case.place, *(key.row for key in keys if key.row is not None)}
        below = [self.field.atoms(top, row, case) for row in rows]

        def rank(place: int) -> tuple[int, tuple[int, int]]:
            atom = first.atoms[place]
            return -sum(atom in atoms for atoms in below), late(atom)

        return sorted(range(len(first.atoms)), key=rank)


def groups(field: Field, cases: list[Enumeration], held: list[Windows | None]) -> list[Group]:
    """The windows of all cases, by how they are computed; ``held``: those that need not be made."""
    found: dict[Shape, list[Member]] = {}
    for number, (case, windows) in enumerate(zip(cases, held, strict=True)):
        for phases, part in _by_phase(case, windows):
            if phases is None:
                one = Member(number, case, case.atoms, part)
                found[number,] = [one]
            else:
                shape, atoms = shape_of(field, case.case, phases)
                one = Member(number, case.where(phases), atoms, part)
                found.setdefault(shape, []).append(one)
    return [Group(field, members) for members in found.values()]


def _by_phase(
    case: Enumeration, held: Windows | None
) -> list[tuple[dict[Atom, int] | None, Windows | None]]:
    """The windows of each phase of the positions; None where they are few, and stay together."""
    columns = [i for i, atom in enumerate(case.atoms) if isinstance(atom, Phase)]
    radix = [case.radix[i] for i in columns]
    phases = list(np.ndindex(*radix))
    named = [dict(zip([case.atoms[i] for i in columns], each, strict=True)) for each in phases]
    if held is None:
        return [(each, None) for each in named]
    if len(phases) == 1:
        return [(named[0], held)]
    if len(held) < FEW * len(phases):
        return [(None, held)]
    numbers = code(held.values, columns, radix)
    order = np.argsort(numbers, kind="stable")
    ends = np.searchsorted(numbers[order], np.arange(len(phases) + 1))
    return [(each, held.take(order[ends[i] : ends[i + 1]])) for i, each in enumerate(named)]


class Known:
    """What is known of windows that are computed alike, by their codes: see ``Member.codes``."""

    def __init__(self) -> None:
        self.codes = np.zeros(0, np.int64)
        self.margins = torch.zeros(0, 2, dtype=torch.float64)

    def missing(self, codes: np.ndarray) -> np.ndarray:
        """Which windows are not known."""
        return ~np.isin(codes, self.codes, assume_unique=True)

    def add(self, codes: np.ndarray, margins: Tensor) -> None:
        """Windows with what was found, ``(m, 2)``: margin, and what is certain of it."""
        every = np.concatenate([self.codes, codes])
        order = np.argsort(every, kind="stable")
        self.codes, self.margins = every[order], torch.cat([self.margins, margins])[order]

    def find(self, codes: np.ndarray) -> Tensor:
        """What was found, ``(m, 2)``."""
        return self.margins[torch.from_numpy(np.searchsorted(self.codes, codes))]
