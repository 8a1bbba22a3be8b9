"""Every distinct window that a right prefix can produce, by running the rule over the columns.

The argument has three steps: which sizes are enough (``forms``), which windows they have (here),
and token by token to the end of an output (``prove``). ``check.py`` repeats all of it, on its own.

By hand: ``19+3`` is read as the columns (9, 3), (1, 0) and the end. The rule begins without a
carry, reads (9, 3), writes 2 and carries; reads (1, 0), writes 2; reads the end and closes. A model
whose lines name this column and the one before sees in column 1 the *window* ``y[t-1] = 2``,
``a[t-1] = 9``, ``b[t-1] = 3``, ``a[t] = 1``, ``b[t] = 0``, and 2 is right. A *node* is such an
arrangement, whatever the digits. To list its windows, run the rule over: any number of columns, of
which only the state behind them counts (no carry, or a carry); the column before, of which digits
and output are kept; the query's column, of which digits are kept, and whose output is the right
token; then anything from which the number can still end. That is 2 x 100 x 100, since ``y[t-1]``
shows the carry. Column 0 has 100 (nothing before it); the column behind the numbers 199 (a carry
into (0, 0) is missing, since one of the two numbers begins there); and the column behind a last
carry 1: ``y[t-1] = 1``. In all 20,300 windows, for sums of every length.

**Lemma.** Every problem of a size that ``forms`` does not list is like a listed one with larger
open gaps: with more columns between two that are read. A window holds nothing of a *stretch* of
``n`` columns between them, so what it does is the relation between the states before and behind:
the n-th power of what one column does; where a gap in it is open, the union of all powers from n
on, which is reached after finitely many. So the windows here are those that occur in some problem
of some size, and no others, but for three things that are taken too widely: digits of other rows'
numbers, and of rows further up than the one above, may be any; lengths of stretches are taken for
independent of each other; and a stretch that may only grow by several columns at once may have any
length. More windows than occur, never fewer.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from abc_calib.proof.forms import MOST_SIZES, Gaps, Undecided, sizes
from abc_calib.proof.graph import Graph, Query
from abc_calib.proof.occurrence import Occurrence, Steps, distinct
from abc_calib.proof.setup import Frame, Setup

FEW_SIZES = 400
"""Sizes that are looked at before lines of one row are taken to run against the columns."""


class AllWindows:
    """All that queries see: every node that is a prediction, with the places where it is one."""

    def __init__(self, setup: Setup):
        self.setup, self.graph = setup, Graph()
        by = [Steps(row) for row in (setup.rule.first, setup.rule.later) if row]
        try:
            self._list(by, mirrored=False)
        except Undecided:
            if setup.rule.in_rows:
                raise
            self._list(by, mirrored=True)

    def _list(self, by: Sequence[Steps], mirrored: bool) -> None:
        self.occurrences: dict[int, list[Occurrence]] = {}
        self.sizes, setup, rule = 0, self.setup, self.setup.rule
        most = MOST_SIZES if mirrored or rule.in_rows else FEW_SIZES
        for frame, short in itertools.product(setup.frames(mirrored), range(rule.stride)):

            def look(gaps: Gaps, frame: Frame = frame, short: int = short) -> Any:
                query = Query(setup, self.graph, frame, gaps, short)
                state = query.state() if query.exists else None
                return state and (state.node, Occurrence(query, state.atoms, by[not query.first]))

            looked = sizes(len(frame["wide"]) - 1, look, setup.period, most)
            self.sizes += len(looked)
            for node, occurrence in filter(None, looked):
                self.occurrences.setdefault(node, []).append(occurrence)

    def radix(self, node: int) -> int:
        """The number from which on the right token counts in a node's windows."""
        return self.setup.rule.base ** self.graph.nodes[node].atoms

    def windows(self, node: int, pins: Mapping[int, int], limit: int) -> np.ndarray:
        """The windows of a node, of all its places, as numbers: see ``Occurrence``."""
        different = {occurrence.key: occurrence for occurrence in self.occurrences[node]}.values()
        windows = [place.windows(pins, limit) for place in different]
        return distinct(np.concatenate(windows)) if len(windows) > 1 else windows[0]
