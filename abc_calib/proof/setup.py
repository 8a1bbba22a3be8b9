"""What a model and its sources look like, as far as a certificate needs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from abc_calib.data.vocabulary import EOS
from abc_calib.geometry import CORNER, Layout, LineBias
from abc_calib.proof.forms import Gaps, Undecided
from tasks.rules import Rule


@dataclass(frozen=True)
class Setup:
    """What a model and its sources look like, as far as a graph needs it.

    ``layers``: of the decoder (or stream), ``encoder`` of the encoder. ``layout``: of a source of
    some size. ``last_is_first``: the token that closes a source is the first one of the output.
    ``opened``: does a token open the source?
    """

    rule: Rule
    lines: LineBias
    layers: int
    encoder: int
    layout: Layout
    ids: Mapping[str, int]
    row: int | None = None
    period: int = 1
    last_is_first: bool = False
    opened: bool = True

    def __post_init__(self) -> None:
        if any(line.segment == CORNER for line in self.lines.every()):
            raise Undecided("its lines count from corners of a matrix of fixed size")

    @property
    def stream(self) -> bool:
        return self.lines.stream

    @property
    def sos(self) -> int:
        """What opens an output."""
        return self.ids[self.layout.delimiters[0]]

    @property
    def eos(self) -> int:
        return self.ids[EOS]

    def frames(self, mirrored: bool) -> Iterator[Frame]:
        """In how many ways the ends of a row and its query may lie: with each, which gaps.

        For a query within its row ``column = g0, wide = g0 + g1``; for one behind it ``wide = g0,
        column = g0 + g1 + 1``.

        Every order of the places on a row, of the first row and of later ones: the gaps between
        them, then one of rows above, and one of rows below where sources say how many there are
        (else its row may be the last one, or not). ``mirrored``: the column that is as far from the
        end as the query from the start counts too.
        """
        if mirrored:
            alone: Frame = {"row": (0, 0, 0), "rows": (1, 0, 0)}
            yield alone | {"column": (0, 1, 0), "wide": (1, 2, 1)}
            yield alone | {"column": (0, 1, 1), "wide": (0, 2, 1)}
            yield alone | {"column": (1, 1, 1), "wide": (0, 1, 0)}
            return
        rule = self.rule
        below = [1] * (rule.in_rows and rule.counted)
        for later in range(1 + rule.in_rows):
            places = ["column", "wide", "above"][: 3 if later and rule.extra is None else 2]
            for order in permutations(places):
                on, constant, none = [0] * len(order), 0, [0] * (later + len(below))
                frame: Frame = {}
                for gap, name in enumerate(order):
                    on[gap] = 1
                    # places that meet are in one of the orders
                    constant += gap > 0 and places.index(order[gap - 1]) > places.index(name)
                    frame[name] = (constant, *on, *none)
                row = [0] * len(order) + [1] * later
                frame["row"] = (later, *row, *(0 for _ in below))
                frame["rows"] = (1 + later, *row, *below)
                yield frame


Frame = dict[str, tuple[int, ...]]
"""Of each name of a size its constant and its slopes."""


class Size:
    """Problems of one size: where the query stands in them, and how wide its row is.

    ``short``: how many words the last column lacks, where a column reads several. ``exists``: are
    there such problems?
    """

    def __init__(self, setup: Setup, frame: Frame, gaps: Gaps, short: int = 0):
        self.setup, self.frame, self.gaps, self.short = setup, frame, gaps, short
        rule = setup.rule
        place: dict[str, Any] = {name: gaps.form(*linear) for name, linear in frame.items()}
        self.nothing = gaps.form(0, *(0 for _ in gaps.values))
        self.column, self.wide, self.row, self.rows = (
            place[name] for name in ("column", "wide", "row", "rows")
        )
        self.above: Any = place.get("above")
        if self.above is None and rule.in_rows and rule.extra is not None:
            self.above = self.wide + rule.extra
        self.exists = self.wide >= 1 and (self.above is None or self.above >= 0)
        if rule.past:
            self.exists &= self.rows >= 2
        if rule.later is not None and not rule.later.goes_on:
            self.exists &= self.row < 2

    @property
    def first(self) -> bool:
        """Is it the output's first row?"""
        return self.frame["row"][0] == 0

    @property
    def last(self) -> bool:
        """Is it the output's last row?"""
        return not self.row < self.rows - 1

    def letters(self, tape: int) -> Any:
        """How many letters a tape has that is an operand."""
        return self.wide - self.setup.rule.lacks(tape, self.short)

    def width(self, up: int) -> Any:
        """How many symbols the row ``up`` above has."""
        if self.setup.rule.extra is not None:
            return self.wide + self.setup.rule.extra
        shorter = 0 if up == 1 else self.setup.rule.shorter
        if shorter is None or self.above is None:
            raise Undecided("it reads rows further up than the one above, which may have any width")
        return self.above + (up - 1) * shorter
