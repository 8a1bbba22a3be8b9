"""From a window back to whole sources in which it occurs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from abc_calib.proof.windows import AllWindows, Occurrence
from tasks import Rows
from tasks.ragged import Ragged, without_zeros
from tasks.rules import ABOVE, Rule

SHORT = 40
"""Most digits, or columns and rows together, of what is called a short source."""
DRAWN = 2**11, 2**15
"""Problems with the digits of a window that are drawn, to find some with its rows; then more."""
AT_FIRST = 2**7
"""Before that, of numbers in rows: most windows are in so few."""
SPOTS = 24, 64
"""Sizes that are tried for a window; the latter where many problems of words are drawn."""
SHOWN = 64
"""Problems of one size that are kept of those that show a window."""
DIRECTED = 2, 32
"""In how many sizes sources with the known words of a window are drawn; the latter where many
problems of words are."""


class Sources:
    """Sources of a task by its rule: all short ones, and how long others are."""

    def __init__(self, task: Any, rule: Rule):
        self.task, self.rule = task, rule

    @property
    def lengths(self) -> tuple[Any, ...]:
        """Of random and hard sources that are decoded."""
        if not self.rule.in_rows:
            return 5, 20, 100
        if self.rule.first.words:
            return 5, 10, 20
        return ((5, 5), (20, 15), (15, 20)) if self.rule.listed else ((5, 5), (20, 15), (30, 40))

    @property
    def long(self) -> tuple[Any, ...]:
        """Of those that are run by dense attention."""
        rows: tuple[Any, ...] = (6, 6), (12, 9), (20, 15), (30, 30)
        if self.rule.first.words:
            rows = 6, 12, 20, 30
        return rows if self.rule.in_rows else (20, 50, 100, 200, 400)

    def short(self, most: int) -> Iterator[tuple[int | str, Rows]]:
        """Every problem of each size from the smallest on; ``most`` of a size, and about in all."""
        yielded = 0
        for total in range(1, SHORT + 1):
            has_size = False
            for name, widths in self._sizes(total):
                if math.prod(self._count(k, width) for k, (width, _) in enumerate(widths)) > most:
                    continue
                has_size = True
                numbers = [self._numbers(k, *width) for k, width in enumerate(widths)]
                index = np.indices([len(number) for number in numbers])
                index = index.reshape(len(numbers), -1)
                drawn = [number.take(k) for number, k in zip(numbers, index, strict=True)]
                if not self.rule.in_rows:  # the longest of them has this width
                    longest = np.max([drawn[k].lengths for k in self.rule.first.tapes], axis=0)
                    kept = np.flatnonzero(longest == total)
                    drawn = [number.take(kept) for number in drawn]
                if len(problems := self.task.posed(drawn)):
                    yield name, problems
                if (yielded := yielded + len(problems)) >= most:
                    return
            if not has_size:
                return

    def _sizes(self, total: int) -> Iterator[tuple[int | str, list[tuple[int, bool]]]]:
        """Sources of this number of digits in all, or of that width: of each operand, its width.

        And whether it is exact, or at most that.
        """
        if self.rule.first.words and self.rule.of_row is None:
            yield total, self._turns(total) * (len(set(self.rule.first.tapes)) // self.rule.stride)
            return
        if not self.rule.in_rows:
            widths = self.task.widths(total)
            yield total, [(w, k == self.rule.of_row) for k, w in enumerate(widths)]
            return
        for digits in range(1, total + 1 if self.rule.first.tapes else 2):
            rows = total // digits if self.rule.listed else total + 1 - digits
            if self.rule.listed and total % digits == 0:
                yield f"{digits}x{rows}", [(digits, True)] * rows
            elif not self.rule.first.tapes:
                yield str(rows), [(rows, True)]
            elif not self.rule.listed:
                operands = len({*self.rule.first.tapes}) // self.rule.stride
                front, other = [(rows, True)], self._turns(digits) * operands
                sizes = [*front, *other] if self.rule.of_row == 0 else [*other, *front]
                yield f"{digits}x{rows}", sizes

    def _turns(self, letters: int) -> list[tuple[int, bool]]:
        """The widths of the operands that read so many letters by turns."""
        k = self.rule.stride
        return [((letters + k - 1 - j) // k, True) for j in range(k)]

    def _count(self, operand: int, width: int) -> int:
        """How many rows of letters of at most a width there are."""
        return len(self._letters(operand)) ** width

    def _letters(self, operand: int) -> np.ndarray:
        """The letters that may stand in an operand."""
        if self.rule.first.words and operand == self.rule.of_row:
            return np.array(self.rule.first.symbols)
        return np.arange(self.rule.base - self.rule.ticks)  # what counts rows stands in none

    def _numbers(self, operand: int, width: int, exact: bool) -> Ragged:
        """All numbers of a width, or of at most that; of words, every row of them."""
        allowed, words = self._letters(operand), self.rule.first.words
        base = len(allowed)
        least = base ** (width - 1) if exact and width > 1 and not words else 0
        rest, columns = np.arange(least, base**width), []
        for _ in range(width):
            rest, letters = np.divmod(rest, base)
            columns.append(letters)
        values = np.reshape(columns, (width, len(rest))).T.astype(np.int64)
        if words:
            return Ragged(allowed[values], np.full(len(values), width))
        return without_zeros(values)


class Witnesses(Sources):
    """Draws random sources in which a given window occurs; each is read back before it is given."""

    def __init__(self, task: Any, listing: AllWindows):
        super().__init__(task, listing.setup.rule)
        self.listing = listing
        self._pools: dict[tuple[int, int], tuple[Any, Any]] = {}
        self._narrow: dict[
            tuple[int, int, bool], list[tuple[Occurrence, list[tuple[int, ...]]]]
        ] = {}

    def _pool(self, spot: Spot, rng: np.random.Generator) -> tuple[Any, Any]:
        """Problems of the spot's size in which any window may be, drawn once, and what they say."""
        size = spot.width, spot.rows
        if size not in self._pools:
            problems = self.task.posed(spot.walked(rng, {}, DRAWN[0]))
            self._pools[size] = problems, self._solve(problems) if len(problems) else None
        return self._pools[size]

    def _solve(self, problems: Any) -> tuple[list[Ragged], Any]:
        """The letters of problems, and the rows of their outputs."""
        tapes = self.task.letters(problems)
        return tapes, self.rule.rows(tapes)

    def sources(
        self,
        node: int,
        code: int,
        n: int,
        widest: int,
        rng: np.random.Generator,
        near: bool = False,
        patient: bool = False,
    ) -> list[tuple[int, Any]]:
        """Up to ``n`` sources of operands of at most ``widest`` digits, and the token in question.

        The token's number counts all tokens of the output before it. With ``near`` the window may
        also stand where it is another node, nearer to an end than where it fails. Where rows are of
        words, many are drawn only if one is ``patient``: they take seconds.
        """
        sources: list[tuple[int, Any]] = []
        counts: tuple[int, ...] = DRAWN if self.rule.in_rows and patient else DRAWN[:1]
        if self.rule.in_rows and not self.rule.first.words:
            counts = AT_FIRST, *DRAWN
        for count in counts:  # few problems of every size first
            for at, problems in self._matches(node, code, widest, rng, near, count):
                sources += [(at[i], problems.take(np.array([i]))) for i in range(len(at))]
                if len(sources) >= n:
                    return sources[:n]
        return sources

    def _matches(
        self, node: int, code: int, widest: int, rng: np.random.Generator, near: bool, count: int
    ) -> Iterator[tuple[list[int], Any]]:
        """Of each size the problems that show the window, and where, among ``count`` drawn."""
        few, tried = count == DRAWN[0] or not self.rule.first.words, 0
        for occurrence, gaps in self._spots(node, widest, rng, near, SPOTS[not few]):
            values, right = occurrence.split(np.array([code]))
            spot = Spot(self.rule, occurrence, gaps, values[0].tolist(), int(right[0]))
            if spot.clashes:
                continue
            drawn: Iterator[tuple[Any, Any]]
            drawn = ((problems, None) for problems in spot.proposals(self.task, rng, count))
            if spot.row and self.rule.first.words:  # its row is made by others: it is looked for
                directed = tried < DIRECTED[not few] and (few or spot.possible(rng))
                tried += directed
                pool = [self._pool(spot, rng)] if few else []
                drawn = itertools.chain(pool, drawn if directed else ())
            for problems, solved in drawn:
                if len(problems):  # of words, maybe none of them is a source
                    at, shown = spot.shown(*(solved or self._solve(problems)))
                    kept = np.flatnonzero(shown)[:SHOWN]
                    yield at[kept].tolist(), problems.take(kept)

    def _spots(
        self, node: int, widest: int, rng: np.random.Generator, near: bool, most: int
    ) -> Iterator[tuple[Occurrence, tuple[int, ...]]]:
        """Where a node may stand in problems that are not too wide: ``most`` sizes a place."""
        if (node, widest, near) not in self._narrow:
            occurrences = [
                (option, self._gaps(option, widest, near))
                for option in self.listing.occurrences[node]
            ]
            self._narrow[node, widest, near] = occurrences
        for occurrence, narrow in self._narrow[node, widest, near]:
            sizes = narrow[:most]
            order = range(len(sizes)) if not self.rule.in_rows else rng.permutation(len(sizes))
            yield from ((occurrence, sizes[k]) for k in order)

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
            row = query.row.at(gaps) if self.rule.in_rows else 0
            tall = query.rows.at(gaps) - self.rule.past if self.rule.in_rows else 1
            read = (form.at(gaps) for form in occurrence.tapes)
            at = query.wide.at(gaps), row, query.column.at(gaps), *read
            if at in different or not 1 <= at[0] <= widest or min(at) < 0 or tall > rows:
                continue
            if not Spot(self.rule, occurrence, gaps, [0] * len(occurrence.atoms), 0).clashes:
                different[at] = gaps
            if len(different) == SPOTS[-1]:
                break
        return [*different.values()]

    def _rows(self, widest: int) -> int:
        """How many rows problems have: as many as digits, or several a digit."""
        if not self.rule.first.words or not self.task.row_words:
            return widest
        return int(self.task.fronts(np.random.default_rng(0), 1, widest, widest).lengths[0])


def smallest_first(ranges: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """Every choice of a value of each range, in the order of how far on the values stand in all."""

    def stand(limits: Sequence[int], total: int) -> Iterator[tuple[int, ...]]:
        if not limits:
            yield from [()] * (total == 0)
            return
        for first in range(min(limits[0], total) + 1):
            yield from ((first, *rest) for rest in stand(limits[1:], total - first))

    limits = [len(values) - 1 for values in ranges]
    for total in range(sum(limits) + 1):
        for index in stand(limits, total):
            yield tuple(values[i] for values, i in zip(ranges, index, strict=True))


class Spot:
    """A window at one place in problems of one size: which symbols are known, and where."""

    def __init__(
        self,
        rule: Rule,
        occurrence: Occurrence,
        gaps: tuple[int, ...],
        values: Sequence[int],
        right: int,
    ):
        self.rule, self.occurrence = rule, occurrence
        query = occurrence.query
        self.column, self.width = query.column.at(gaps), query.wide.at(gaps)
        self.row = query.row.at(gaps) if rule.in_rows else 0
        self.rows = query.rows.at(gaps) if rule.in_rows else 1
        self.gaps = gaps
        self.lag = rule.of(self.row).lag
        #: what the transducer may write where the row closes with that token, and does one follow?
        self.closing = [code for code, token in occurrence.closes.items() if token == right]
        self.goes_on = right == query.setup.row
        self.right = min(right, rule.base)
        #: by (operand, column), and by (rows above, column) of the output
        self.digits: dict[tuple[int, int], int] = {}
        self.written: dict[tuple[int, int], int] = {}
        #: by rows above, what opens a row
        self.opened: dict[int, int] = {}
        self.clashes = right >= rule.base and not self.closing
        self._know(self.written, (0, self.column), self.right)
        for atom, value in zip(occurrence.atoms, values, strict=True):
            column = 0 if atom.column is None else atom.column.at(gaps)
            if atom.kind == "written":
                self._know(self.written, (atom.of, column), value)
            elif atom.kind == "closer":
                self.opened[atom.of] = value
            else:
                at = self.row if atom.kind == "symbol" else column
                operand = self.row if rule.listed else atom.of
                self._know(self.digits, (operand, at), value)
        self._check()

    def _know(self, table: dict[tuple[int, int], int], at: tuple[int, int], value: int) -> None:
        self.clashes |= table.setdefault(at, value) != value

    def _check(self) -> None:
        """Is every symbol that is known where there is one?"""
        for operand, column in self.digits:
            wide = self._front if operand == self.rule.of_row else self.width
            self.clashes |= not 0 <= column < wide
        self.clashes |= any(self.row < up or column < 0 for up, column in self.written)

    @property
    def _front(self) -> int:
        """How many letters the operand has that belong to rows."""
        return self.rows - self.rule.past

    # Sources that may have the window

    def proposals(self, task: Any, rng: np.random.Generator, count: int) -> Iterator[Any]:
        """Problems with the known digits, of which some, or all, have the window."""
        if self.row and self.rule.first.words:
            yield task.posed(self.walked(rng, self.digits, count))
            return
        if self.row and not self.rule.listed:
            ends = [(0, self.width - 1), (1, self._front - 1)]
            if all(self.digits.get(at, 1) or not at[1] for at in ends):  # none begins with a 0
                yield task.posed(self._random(rng, count))
            return
        tapes = self.occurrence.steps.by.tapes
        for _ in range(4):
            if (drawn := self._run(rng)) is None:
                return
            letters, symbol = drawn
            read = dict(zip(tapes, letters, strict=True))
            yield task.posed(self._operands(read, symbol, rng))

    def possible(self, rng: np.random.Generator) -> bool:
        """Does the row's transducer write the window, whatever rows are above?"""
        return self._run(rng) is not None

    def _run(self, rng: np.random.Generator) -> tuple[list[np.ndarray], int] | None:
        """A run of the row's transducer through the window: letters of each tape, and symbol."""
        by = self.occurrence.steps.by
        state, letters, out, after = by.steps
        lengths = [form.at(self.gaps) for form in self.occurrence.tapes]
        if min(lengths, default=0) < 0:
            return None
        lag = self.lag
        end = max([*lengths, self.column + 1, *(c + 1 for _, c in self.written)]) + 3 + lag
        allowed = []
        for column in range(end):
            fits = (letters == by.base) == (np.array(lengths) <= column)[:, None]
            possible = fits.all(0)
            for axis, tape in enumerate(by.tapes):
                letter: Any = None
                if tape == ABOVE:
                    letter = self.written.get((1, column + self.rule.shift))
                else:
                    letter = self.digits.get((self.row if self.rule.listed else tape, column))
                if letter is not None:
                    possible &= letters[axis] == letter
            if (written := self.written.get((0, column - lag))) is not None:
                possible &= np.isin(out, self.closing) if written == by.base else out == written
            allowed.append(possible)
        good = np.zeros(by.states, bool)
        good[state[(out == by.base + 1) & (state == after)]] = True
        for column in reversed(range(end)):
            allowed[column] = allowed[column] & good[after]
            good = np.zeros(by.states, bool)
            good[state[allowed[column]]] = True
        starts = [k for k, s in enumerate(by.start) if good[s]]
        if self.rule.of_row is not None and (self.rule.of_row, self.row) in self.digits:
            letter = self.digits[self.rule.of_row, self.row]
            starts = [k for k in starts if by.symbols[k] == letter]
        if by.openers and 0 in self.opened:
            starts = [k for k in starts if by.openers[k] == self.opened[0]]
        if not starts:
            return None
        start = int(rng.choice(starts))
        now, columns = by.start[start], []
        for column in range(end):
            step = int(rng.choice(np.flatnonzero(allowed[column] & (state == now))))
            columns.append(letters[:, step])
            now = after[step]
        drawn = np.array(columns)
        symbol = by.symbols[start] if by.symbols else 0
        return [drawn[:length, axis] for axis, length in enumerate(lengths)], symbol

    def _operands(
        self, tapes: dict[int, np.ndarray], symbol: int, rng: np.random.Generator
    ) -> list[Ragged]:
        """The operands of one problem, from the letters of the row's tapes."""
        base = self.rule.base
        if self.rule.listed:
            zeros, rows_below = [np.zeros(1, int)] * (self.row - 1), self.rows - 1 - self.row
            others = [rng.integers(1, base, self.width) for _ in range(rows_below)]
            above = [tapes[ABOVE], *zeros] if self.row else []
            return [_tape(x) for x in (*above, tapes[0], *others)]
        operands = dict(tapes)
        if self.rule.of_row is not None:
            words = self.rule.first.words
            choices = np.array(self.rule.first.symbols if words else range(base))
            digits = rng.choice(choices, self._front)
            if self.rows > 1 and not words:
                digits[-1] = max(digits[-1], 1)
            digits[0] = symbol
            for (operand, column), value in self.digits.items():
                if operand == self.rule.of_row:
                    digits[column] = value
            operands[self.rule.of_row] = digits
        return [_tape(operands[k]) for k in sorted(operands)]

    def walked(
        self, rng: np.random.Generator, pinned: dict[tuple[int, int], int], count: int
    ) -> list[Ragged]:
        """Sources of a rule on words, at random but for the words that are ``pinned``."""
        first, lengths = self.rule.first, np.full(count, self.width)
        fronts = np.array(first.symbols if self.rule.of_row is not None else [0])
        symbols = rng.choice(fronts, (count, max(self._front, 1)))
        liked = rng.random((count, first.base)) < 0.7
        if len(first.tapes) == 1:
            letters = [first.walks(rng, lengths, liked, symbols[:, 0])]
        else:
            letters = [rng.integers(0, first.base, (count, self.width)) for _ in first.tapes]
        short = self.occurrence.query.short
        tapes = {
            tape: Ragged(values, lengths - self.rule.lacks(tape, short))
            for tape, values in zip(first.tapes, letters, strict=True)
        }
        if self.rule.of_row is not None:
            tapes[self.rule.of_row] = Ragged(symbols, np.full(count, self._front))
        for (of, column), value in pinned.items():
            tapes[of].values[:, column] = value
        return [tapes[operand] for operand in sorted(tapes)]

    def _random(self, rng: np.random.Generator, count: int) -> list[Ragged]:
        """Of many problems, random but for the digits that are known, those with the window."""
        base, tapes = self.rule.base, []
        for operand in sorted({*self.rule.first.tapes, self.rule.of_row or 0}):
            wide = self._front if operand == self.rule.of_row else self.width
            drawn = rng.integers(0, base, (count, wide))
            extreme = rng.integers(0, 2, (count, 1)) * (base - 1)  # rare carries need runs of them
            few = (rng.random((count, 1)) < 0.25) & (rng.random(drawn.shape) < 0.8)
            drawn = np.where(few, extreme, drawn)
            if wide > 1:
                drawn[:, -1] = np.maximum(drawn[:, -1], 1)
            for (of, column), value in self.digits.items():
                if of == operand:
                    drawn[:, column] = value
            tapes.append(Ragged(drawn, np.full(count, wide)))
        _, fitting = self.shown(tapes, self.rule.rows(tapes))
        return [tape.take(np.flatnonzero(fitting)) for tape in tapes]

    # Read back

    def shown(self, tapes: list[Ragged], rows: Any) -> tuple[np.ndarray, np.ndarray]:
        """Where in each output the query stands, and which problems have the window there.

        ``tapes``: their letters, ``rows``: of their outputs.
        """
        kept = np.ones(len(tapes[0]), bool)
        for tape in self.rule.first.tapes[: 1 if self.rule.stride == 1 else None]:
            wide = self.width - self.rule.lacks(tape, self.occurrence.query.short)
            kept &= tapes[self.row if self.rule.listed else tape].lengths == wide
        for (operand, column), value in self.digits.items():
            letters = tapes[operand]
            if column >= letters.width:
                return kept, kept & False
            kept &= (letters.values[:, column] == value) & (column < letters.lengths)
        if len(rows) <= self.row:
            return kept, kept & False
        at = np.full(len(kept), self.column)
        for above in rows[: self.row]:
            at += above.lengths + 1
            kept &= above.lengths >= 0
        for (up, column), value in self.written.items():
            row = rows[self.row - up]
            if value == self.rule.base:
                last = self.row + 1 >= len(rows)
                below = kept & False if last else rows[self.row + 1].lengths >= 0
                kept &= (row.lengths == column) & (below == self.goes_on)
            elif column < row.width:
                closes = value in self.rule.closers
                inside = row.lengths == column if closes else column < row.lengths
                kept &= (row.values[:, column] == value) & inside
            else:
                kept[:] = False
        for up, value in self.opened.items():
            above = rows[self.row - up - 1]
            at_end = np.clip(above.lengths, 0, above.width - 1)
            kept &= above.values[np.arange(len(above)), at_end] == value
        return at, kept


def _tape(letters: np.ndarray) -> Ragged:
    """One operand from its letters."""
    return Ragged(letters[None], np.array([len(letters)]))
