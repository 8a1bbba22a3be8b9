"""The walk over the columns of a number that finds the windows of a case."""

from __future__ import annotations

from typing import NamedTuple

from abc_calib.certification.places import Atom, Case, Digit, Place, Written


class Slot(NamedTuple):
    """One step of the walk from the last column to the first.

    ``column`` None is a gap of any number of columns, and ``end`` the step after the first.
    """

    column: Place | None
    top: bool = False
    end: bool = False


def slots(case: Case, atoms: tuple[Atom, ...]) -> list[Slot]:
    """The walk over the columns of a case, as far as atoms and the row's own column need it."""
    columns = [a.column for a in atoms if isinstance(a, Digit | Written)] + [case.place]

    def span(kind: str) -> list[int]:
        return [c.at for c in columns if c.kind == kind]

    low, near, top = span("low"), span("near"), span("top")
    width = case.width
    if width is not None:
        walk = [Slot(Place("low", c), top=c == width - 1 and width > 1) for c in range(width)]
        return [*walk, Slot(None, end=True)]
    walk = [Slot(Place("low", c)) for c in range(max([-1, *low]) + 1)]
    if case.row is None:
        walk.append(Slot(None))
        last = max(near) if case.left is None else case.left - 1
        for c in range(min([*near, last]), last + 1):
            walk.append(Slot(Place("near", c), top=case.left is not None and c == last))
        if case.left is not None:
            return [*walk, Slot(None, end=True)]
    if top:
        walk.append(Slot(None))
        walk += [Slot(Place("top", c), top=c == 0) for c in range(max(top), -1, -1)]
        walk.append(Slot(None, end=True))
    return walk
