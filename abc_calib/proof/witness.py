"""From a window back to whole sources in which it occurs.

A source is drawn by a run of the rule's transducer in which what the window shows is pinned: of the
query's own row where its operands give the row, else of the first row, with the known digits alone.
Then it is solved, and kept only if the window can be read back at the query.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from abc_calib.proof.occurrence import Occurrence
from abc_calib.proof.sources import Sources
from abc_calib.proof.windows import AllWindows
from tasks.ragged import Ragged
from tasks.rules import ABOVE, Rule, Transducer

ONE_ROW, WORDS, NUMBERS = (8,), (2**7, 2**9), (2**7, *[2**11] * 9)
"""Problems of every size that are drawn together until some show the window: few where each does,
then many, and often where rows are of numbers, whose carries are rare."""
SPOTS = 24
"""Sizes that are tried for a window at a place."""
SHOWN = 64
"""Problems of one size that are kept of those that show a window."""


class Witnesses(Sources):
    """Draws random sources in which a given window occurs; each is read back before it is given."""

    def __init__(self, task: Any, listing: AllWindows):
        super().__init__(task, listing.setup.rule)
        self.listing, self._sizes_of = listing, cache(self._all_sizes)

    def sources(
        self,
        node: int,
        code: int,
        n: int,
        widest: int,
        rng: np.random.Generator,
        near: bool = False,
    ) -> list[tuple[int, Any]]:
        """Up to ``n`` sources of operands of at most ``widest`` digits, and the token in question.

        The token's number counts all tokens of the output before it. With ``near`` the window may
        also stand where it is another node, nearer to an end than where it fails.
        """
        sources: list[tuple[int, Any]] = []
        spots: Iterable[Spot] = self._spots(node, code, widest, rng, near)
        rows = WORDS if self.rule.first.words else NUMBERS
        for count in rows if self.rule.in_rows and not self.rule.listed else ONE_ROW:
            possible = list[Spot]()
            for spot in spots:
                possible.append(spot)
                problems = spot.draw(self.task, rng, count)
                if not len(problems):  # of words, maybe none of them is a source
                    continue
                tapes = self.task.letters(problems)
                at, shown = spot.shown(tapes, self.rule.rows(tapes))
                kept = np.flatnonzero(shown)[:SHOWN]
                sources += [(int(at[i]), problems.take(np.array([i]))) for i in kept]
                if len(sources) >= n:
                    return sources[:n]
            spots = possible
        return sources

    def _spots(
        self, node: int, code: int, widest: int, rng: np.random.Generator, near: bool
    ) -> Iterator[Spot]:
        """Where a window may stand in problems that are not too wide."""
        sizes = self._sizes_of(node, widest, near)
        order = rng.permutation(len(sizes)) if self.rule.in_rows else range(len(sizes))
        spots = (Spot(*sizes[k], code) for k in order)
        yield from (spot for spot in spots if spot.possible)

    def _all_sizes(
        self, node: int, widest: int, near: bool
    ) -> list[tuple[Occurrence, tuple[int, ...]]]:
        """Of each place of a node the gaps of its problems."""
        places = self.listing.occurrences[node]
        return [(place, gaps) for place in places for gaps in self._gaps(place, widest, near)]

    def _gaps(self, occurrence: Occurrence, widest: int, near: bool) -> list[tuple[int, ...]]:
        """The gaps of the smallest problems that have the place, no two of which read the same."""
        query, period, ranges = occurrence.query, self.listing.setup.period, []
        rows = self._rows(widest)
        for gap, open_ in zip(query.gaps.values, query.gaps.open, strict=True):
            larger = range(gap, max(gap, rows) + 1 if open_ else gap + 1, period)
            less = range(gap % period, gap, period) if near else ()
            ranges.append([*less, *larger][: rows + 1])
        different: dict[tuple[int, ...], tuple[int, ...]] = {}
        for gaps in itertools.islice(smallest_first(ranges), 4096):
            forms = query.wide, query.row, query.column, *occurrence.tapes
            at = tuple(form.at(gaps) for form in forms)
            tall = query.rows.at(gaps) - self.rule.past
            if at in different or not 1 <= at[0] <= widest or min(at) < 0 or tall > rows:
                continue
            if Spot(occurrence, gaps).fits:
                different[at] = gaps
            if len(different) == SPOTS:
                break
        return [*different.values()]

    def _rows(self, widest: int) -> int:
        """How many rows problems have: as many as digits, or several a digit."""
        if not self.rule.first.words or not self.task.row_words:
            return widest
        return int(self.task.fronts(np.random.default_rng(0), 1, widest, widest).lengths[0])


def smallest_first(ranges: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """Every choice of a value of each range, in the order of how far on the values stand in all."""
    seen = {(0,) * len(ranges)} if all(ranges) else set()
    for index in (queue := [*seen]):
        yield tuple(values[i] for values, i in zip(ranges, index, strict=True))
        for k, i in enumerate(index):
            larger = (*index[:k], i + 1, *index[k + 1 :])
            if i + 1 < len(ranges[k]) and larger not in seen:
                seen.add(larger)
                queue.append(larger)


class Runs:
    """Runs of a transducer to the close of a row, in which some symbols are pinned.

    ``lengths``: of its tapes. ``pins``: by (axis of a tape, column), or (-1, column) for what is
    written there, which codes may stand there. ``starts``: the numbers of its first states from
    which there is such a run.
    """

    def __init__(
        self,
        by: Transducer,
        lengths: Sequence[int],
        pins: Mapping[tuple[int, int], Sequence[int]],
    ):
        self.by, columns = by, max([*lengths, *(column + 1 for _, column in pins)], default=0)
        self.after, written = (x.reshape(by.states, -1) for x in (by.next, by.written))
        (good,) = by.ending(0)  # all tapes have ended
        self.steps: list[np.ndarray] = []
        for column in reversed(range(columns)):
            ended = np.array([length <= column for length in lengths], bool)
            fits = (self.after >= 0) & good[self.after]
            fits &= ((by.columns == by.base) == ended[:, None]).all(0)
            for (axis, at), codes in pins.items():
                if at == column:
                    fits &= np.isin(written if axis < 0 else by.columns[axis], codes)
            good = fits.any(1)
            self.steps.insert(0, fits)
        self.starts = [k for k, state in enumerate(by.start) if good[state]]

    def draw(
        self, rng: np.random.Generator, count: int, starts: Sequence[int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Letters ``(count, columns, tapes)`` of random runs, and the number of each first state.

        Each run has letters that it likes: all of some, and of every fourth run the first or the
        last one alone, since rare carries need runs of them.
        """
        base = self.by.base
        liked = rng.random((count, base + 1)) < 0.7
        few = np.flatnonzero(rng.random(count) < 0.25)
        liked[few] = False
        liked[few, rng.integers(0, 2, len(few)) * (base - 1)] = True
        weight = liked[:, self.by.columns].sum(1)
        first = rng.choice(np.array(starts), count)
        letters = np.zeros((count, len(self.steps), len(self.by.tapes)), int)
        state = np.array(self.by.start)[first]
        for column, fits in enumerate(self.steps):
            chance = np.where(fits[state], weight + rng.random(weight.shape), -1)
            step = chance.argmax(1)
            letters[:, column] = self.by.columns[:, step].T
            state = self.after[state, step]
        return letters, first


class Spot:
    """A place in problems of one size, and a window there: which symbols are known, and where.

    ``fits``: is there a symbol wherever the window shows one? ``possible``: and may the window be
    written there? Without a ``code`` only the place is looked at.
    """

    def __init__(self, occurrence: Occurrence, gaps: tuple[int, ...], code: int | None = None):
        self.occurrence, self.gaps, query = occurrence, gaps, occurrence.query
        self.rule: Rule = query.setup.rule
        self.column, self.width, self.row, self.rows = (
            form.at(gaps) for form in (query.column, query.wide, query.row, query.rows)
        )
        self.front = self.rows - self.rule.past  # how many letters belong to rows
        #: by (operand, column), and by (rows above, column) of the output; what opens a row
        self.digits: dict[tuple[int, int], int] = {}
        self.written: dict[tuple[int, int], int] = {}
        self.opened: dict[int, int] = {}
        #: in the row's transducer, as ``Runs`` takes them
        self.pins: dict[tuple[int, int], list[int]] = {}
        self.agrees = True
        values, right = occurrence.split(np.array([code or 0]))
        for atom, value in zip(occurrence.atoms, values[0].tolist(), strict=True):
            self._know(atom, value)
        self.fits = all(
            0 <= column < (self.front if operand == self.rule.of_row else self.width)
            for operand, column in self.digits
        ) and all(up <= self.row and column >= 0 for up, column in self.written)
        self.right = int(right[0])
        closing = [out for out, token in occurrence.closes.items() if token == self.right]
        ends = closing if self.right >= self.rule.base else [self.right]
        self.pins[-1, occurrence.query_column.at(gaps)] = ends
        self._note(self.written, (0, self.column), min(self.right, self.rule.base))
        highest = self.digits.get((self.rule.of_row, self.front - 1))  # type: ignore[arg-type]
        zero = highest == 0 and self.front > 1 and not self.rule.first.words  # no number has it
        self.possible = code is not None and self.fits and self.agrees and bool(ends) and not zero
        if self.possible:
            self._run()

    def _know(self, atom: Any, value: int) -> None:
        """Note what an atom of the window says."""
        column = 0 if atom.column is None else atom.column.at(self.gaps)
        if (axis := self.occurrence.axis(atom)) is not None:
            self.pins[axis, self.occurrence.on_tape(atom).at(self.gaps)] = [value]
        if atom.kind == "written":
            self._note(self.written, (atom.of, column), value)
        elif atom.kind == "closer":
            self.opened[atom.of] = value
        else:
            at = self.row if atom.kind == "symbol" else column
            self._note(self.digits, (self.row if self.rule.listed else atom.of, at), value)

    def _note(self, table: dict[tuple[int, int], int], at: tuple[int, int], value: int) -> None:
        self.agrees &= table.setdefault(at, value) == value

    def _run(self) -> None:
        """The runs of the row with the window, and those that sources are drawn by."""
        by, rule = self.occurrence.steps.by, self.rule
        lengths = [form.at(self.gaps) for form in self.occurrence.tapes]
        self.runs = Runs(by, lengths, self.pins)
        self.starts = self._starting(self.row)
        if self.starts and self.row and not rule.listed:
            tapes = rule.first.tapes
            pinned = [(k, column, [v]) for (k, column), v in self.digits.items() if k in tapes]
            pins = {(tapes.index(k), column): codes for k, column, codes in pinned}
            self.runs = Runs(rule.first, [self._letters(tape) for tape in tapes], pins)
            self.starts = self._starting(0)
        self.possible = bool(self.starts)

    def _letters(self, tape: int) -> int:
        """How many letters an operand has that is a tape."""
        letters: int = self.occurrence.query.letters(tape).at(self.gaps)
        return letters

    def _starting(self, row: int) -> list[int]:
        """First states of a row with the symbol and the opener that are known."""
        by, starts = self.runs.by, self.runs.starts
        if self.rule.past:  # the last row is without a symbol
            last = bool(row) and self.occurrence.query.last
            starts = [k for k in starts if (by.symbols[k] == by.base) == last]
        symbol = self.digits.get((self.rule.of_row, row)) if self.rule.of_row is not None else None
        if symbol is not None:
            starts = [k for k in starts if by.symbols[k] == symbol]
        if by.openers and 0 in self.opened:
            starts = [k for k in starts if by.openers[k] == self.opened[0]]
        return starts

    def draw(self, task: Any, rng: np.random.Generator, count: int) -> Any:
        """Problems with the known digits; none, or those with the window where they give it."""
        letters, first = self.runs.draw(rng, count, self.starts)
        by, tapes = self.runs.by, dict[int, Ragged]()
        if self.rule.listed:
            return task.posed(self._listed(letters, rng))
        for axis, tape in enumerate(by.tapes):
            wide = self._letters(tape)
            tapes[tape] = Ragged(letters[:, :wide, axis], np.full(count, wide))
        if self.rule.of_row is not None:
            tapes[self.rule.of_row] = self._front(np.array(by.symbols)[first], rng)
        return task.posed([tapes[operand] for operand in sorted(tapes)])

    def _listed(self, letters: np.ndarray, rng: np.random.Generator) -> list[Ragged]:
        """Numbers of which one is the row's own: before it the sum above, and zeros."""
        count, numbers = len(letters), list[np.ndarray]()
        by, shape = self.occurrence.steps.by, (len(letters), self.width)
        lengths = [form.at(self.gaps) for form in self.occurrence.tapes]
        for tape in (ABOVE, 0)[0 if self.row else 1 :]:
            axis = by.tapes.index(tape)
            numbers.append(letters[:, : lengths[axis], axis])
        numbers[1:1] = [np.zeros((count, 1), int)] * (self.row - 1)
        below = self.rows - 1 - self.row
        numbers += [rng.integers(1, self.rule.base, shape) for _ in range(below)]
        return [Ragged(number, np.full(count, number.shape[1])) for number in numbers]

    def _front(self, symbol: np.ndarray, rng: np.random.Generator) -> Ragged:
        """The operand of which each row has a letter, of the first row ``symbol (n,)``."""
        first, of_row, count = self.rule.first, self.rule.of_row, len(symbol)
        choices = np.array(first.symbols if first.words else range(first.base))
        drawn = rng.choice(choices, (count, max(self.front, 1)))
        if self.front > 1 and not first.words:
            drawn[:, -1] = np.maximum(drawn[:, -1], 1)
        drawn[:, 0] = symbol
        for (operand, column), value in self.digits.items():
            if operand == of_row:
                drawn[:, column] = value
        return Ragged(drawn, np.full(count, self.front))

    def shown(self, tapes: list[Ragged], rows: Any) -> tuple[np.ndarray, np.ndarray]:
        """Where in each output the query stands, and which problems have the window there.

        ``tapes``: their letters, ``rows``: of their outputs.
        """
        kept = np.ones(len(tapes[0]), bool)
        for tape in self.rule.first.tapes[: 1 if self.rule.stride == 1 else None]:
            operand = self.row if self.rule.listed else tape
            kept &= tapes[operand].lengths == self._letters(tape)
        for (operand, column), value in self.digits.items():
            letters, symbols = tapes[operand], tapes[operand].widened(column + 1)[:, column]
            kept &= (symbols == value) & (column < letters.lengths)
        if len(rows) <= self.row:
            return kept, kept & False
        at = np.full(len(kept), self.column)
        for above in rows[: self.row]:
            at += above.lengths + 1
            kept &= above.lengths >= 0
        for (up, column), value in self.written.items():
            kept &= self._written(rows, self.row - up, column, value)
        for up, value in self.opened.items():
            above = rows[self.row - up - 1]
            at_end = np.clip(above.lengths, 0, above.width - 1)
            kept &= above.values[np.arange(len(above)), at_end] == value
        return at, kept

    def _written(self, rows: Any, number: int, column: int, value: int) -> np.ndarray:
        """Which problems have a symbol in a column of a row, or close there with the right one."""
        row, base = rows[number], self.rule.base
        if value == base:
            below = number + 1 < len(rows) and rows[number + 1].lengths >= 0
            goes_on = self.right == self.occurrence.query.setup.row
            return (row.lengths == column) & (below == goes_on)
        inside = row.lengths == column if value in self.rule.closers else column < row.lengths
        return (row.widened(column + 1)[:, column] == value) & inside
