"""Rows that are computed alike, wherever they stand: what one of them gives, the others give too.

A row in the middle of a number and one with a column left read other tokens, but by the same lines
from rows and tokens that are arranged alike. So windows that agree are run once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from abc_calib.certification.field import Field
from abc_calib.certification.network import code
from abc_calib.certification.places import Atom, Case, Place, Token
from abc_calib.certification.windows import Windows

Shape = tuple[Any, ...]


def shape_of(field: Field, case: Case) -> tuple[Shape, tuple[Atom, ...]]:
    """How the prediction of a row is computed, and from what: its atoms in the order of their use.

    Rows of one shape are computed alike where the first atom of one has the value of the first of
    the other, and so on. Phases of positions are no part of it: use it where there are none.
    """
    nodes: list[Any] = []
    numbers: dict[tuple[int, Place], int] = {}
    atoms: dict[Atom, int] = {}

    def token(read: Token) -> tuple[str, int | None]:
        if read.atom is None:
            return "symbol", read.symbol
        return "atom", atoms.setdefault(read.atom, len(atoms))

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


class Known:
    """What is known of the windows of one shape, by their codes: see ``codes``."""

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


def codes(windows: Windows, atoms: tuple[Atom, ...], tokens: int) -> np.ndarray:
    """One number for each window, the same in all cases of a shape with these ``atoms``."""
    columns = [windows.atoms.index(atom) for atom in atoms]
    values = code(windows.values, columns, [windows.radix[c] for c in columns])
    return values * tokens + windows.expected
