"""Decide whether a model is right at every length.

The induction: a row's prediction depends on its window only. If in every window that a correct
prefix can produce the prediction is the right token, then by induction over the rows each output
is right from its first token to EOS, for every source of every length.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from abc_calib.certification.field import Field
from abc_calib.certification.network import Exact, Network, in_chunks
from abc_calib.certification.places import Case, Unbounded
from abc_calib.certification.row_sources import RowRealiser
from abc_calib.certification.rows import EndingField, GridField, grid_field
from abc_calib.certification.shapes import Group, Known, groups
from abc_calib.certification.sources import Realiser
from abc_calib.certification.sum_sources import SumRealiser
from abc_calib.certification.whole import Whole, field_of
from abc_calib.certification.windows import Enumeration, TooMany, Windows
from abc_calib.data import Data
from abc_calib.data.pairs import PairData
from abc_calib.errors import AbcError
from abc_calib.geometry import SITES
from abc_calib.nn.positions import Scheme
from tasks.columns import ColumnRule, RowRule

KEPT = 100
"""Failing windows that are kept of each case, those of the smallest margin first."""
PART, HELD = 4_000_000, 20_000_000
"""Windows that are made at once, and that are held: some 60 bytes each."""
MOST_WINDOWS = 10**11
"""More would take days."""
TRIED = 2**16
"""Windows that are run to see how long all of them take."""
MOST_CASES = 2000
"""More places of a row would take minutes to list alone."""


class Undecided(AbcError):
    """Neither certified nor refuted; the message says why."""


@dataclass
class Checked:
    """What was found in one case. ``failing (n, atoms)`` are windows where the model is wrong.

    And ``expected (n,)`` their right tokens. ``margin``: least difference between the logit of the
    right token and the largest other one. ``certain``: the least that is left of a margin when
    what rounding may take is taken away; ``rounding``: the most that it may take. With a ``floor``
    the windows whose margin is not above it count as failing, but as wrong only those at 0 or less.
    """

    case: Case
    atoms: tuple[Any, ...] = ()
    floor: float = 0.0
    windows: int = 0
    wrong: int = 0
    margin: float = float("inf")
    certain: float = float("inf")
    rounding: float = 0.0
    failing: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.uint8))
    expected: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    margins: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def add(self, values: np.ndarray, right: np.ndarray, margin: Any, certain: Any) -> None:
        """Count windows ``values (m, atoms)`` in, and keep those that fail most."""
        if not len(values):
            return
        self.windows += len(values)
        self.margin = min(self.margin, float(margin.min()))
        self.certain = min(self.certain, float(certain.min()))
        self.rounding = max(self.rounding, float((margin - certain).nan_to_num(nan=np.inf).max()))
        self.wrong += int((margin <= 0).sum())
        wrong = (margin <= self.floor).numpy()
        if wrong.any():
            kept = self.failing if len(self.failing) else values[:0]
            margins = np.concatenate([self.margins, margin.numpy()[wrong]])
            order = np.argsort(margins, kind="stable")[:KEPT]
            self.margins = margins[order]
            self.failing = np.concatenate([kept, values[wrong]])[order]
            self.expected = np.concatenate([self.expected, right[wrong]])[order]


def rule_of(data: Data) -> ColumnRule | RowRule:
    """The task's automaton, or ``Undecided``."""
    if data.hints:
        raise Undecided("its format has index hints, which stand for no digit of the rule")
    rule = data.task.column_rule() or data.task.row_rule()
    if rule is None:
        raise Undecided(f"{data.task.name} is not a rule on columns of digits")
    return rule


def receptive_field(model: Any, data: Data) -> Field:
    """The model's field on sources of this format; ``Unbounded`` where it has none."""
    if model.in_whole_sources:
        return field_of(model, cast(PairData, data))
    if model.no_lines:
        raise Unbounded(model.no_lines)
    options, lines = model.options, model.lines
    if lines is None:
        raise Unbounded("its attention is not restricted to lines: abc calibrate it")
    if model.mixed_source:
        raise Unbounded(model.mixed_source)
    if lines.off_line_bias is not None:
        raise Unbounded(
            f"keys off its lines are only penalised ({lines.off_line_bias:g}): it sees all"
        )
    schemes = {site: model.scheme_of(site) for site in SITES}
    if any(type(scheme).renumber is not Scheme.renumber for scheme in schemes.values()):
        raise Unbounded("its positions are drawn anew for every length")
    if any(schemes[site].has_value_term for site in ("self", "cross")):
        raise Unbounded(f"its values depend on distances without bound ({options.scheme})")
    absolute = any(type(schemes[s]).embed is not Scheme.embed for s in ("encoder", "self"))
    if absolute and model.period is None:
        raise Unbounded(f"its positions ({options.scheme}) are absolute and grow with length")
    single = all(lines is not None and lines.single for lines in model.line_sets)
    scores = [type(schemes[site]) for site in ("self", "cross")]
    if not single and any(s.rotate is not Scheme.rotate or s.has_score_bias for s in scores):
        raise Unbounded(
            f"its scores depend on positions ({options.scheme}) where a head has several lines"
        )
    rule, width, ids = rule_of(data), data.layout_at(9), data.vocabulary.ids
    if isinstance(rule, RowRule):
        if absolute:
            raise Unbounded(f"its positions ({options.scheme}) are not followed from row to row")
        return grid_field(lines, options.decoder_layers, data.layout_at, ids, rule)
    if width.keys == data.layout_at(8).keys:
        raise Unbounded(f"its format pads every operand to a fixed width, {width.widths[0]}")
    period = (model.period if absolute else None) or 1
    return Field(lines, options.decoder_layers, data.layout_at, ids, rule, period)


@dataclass
class Proof:
    """The model, its field and the windows of all its cases.

    ``windows``: of each case, None where they are too many to be held and are made part by part.
    ``sizes``: how many each has, about so many if they are not held.
    """

    model: Any
    data: Data
    rule: ColumnRule | RowRule
    field: Field
    cases: list[Enumeration]
    windows: list[Windows | None]
    sizes: list[int]

    @cached_property
    def whole(self) -> Whole | None:
        """What runs windows of a model whose layers this program does not compute."""
        if not self.model.in_whole_sources:
            return None
        return Whole(self.model, cast(PairData, self.data), self.field)

    @property
    def size(self) -> int:
        """How many windows there are in all cases."""
        return sum(self.sizes)

    @property
    def groups(self) -> list[Group]:
        """The windows by how they are computed."""
        return groups(self.field, self.cases, self.windows)

    def parts(self, number: int) -> Iterator[Windows]:
        """The windows of one case."""
        held = self.windows[number]
        return iter([held]) if held is not None else self.cases[number].parts(PART)

    @property
    def realiser(self) -> Realiser | RowRealiser | SumRealiser:
        """What draws sources in which a window occurs."""
        task: Any = self.data.task.ruled
        if isinstance(self.field, EndingField):
            return SumRealiser(task, self.field)
        if isinstance(self.field, GridField):
            return RowRealiser(task, self.field)
        return Realiser(task, self.field.rule, self.field.reach, self.field.period)

    def some(self, most: int, rng: np.random.Generator) -> Proof:
        """The same with windows drawn at random, about ``most`` in all."""
        drawn: list[Windows | None] = []
        for case, held in zip(self.cases, self.windows, strict=True):
            share = most // len(self.cases)
            found = case.drawn(share, rng) if held is None else held
            drawn.append(found.take(rng.permutation(len(found))[:share]))
        return replace(self, windows=drawn)


def prepare(model: Any, data: Data, part: int = PART, most: float = MOST_WINDOWS) -> Proof:
    """Everything that has to be checked, before it is; ``Undecided`` if that cannot be done.

    ``part``: most windows that are held of a case. ``most``: windows in all, about.
    """
    try:
        seen = receptive_field(model, data)
        reach = seen.reach
        if (reach.rows + 1) * (reach.columns + 2) > MOST_CASES:
            raise Unbounded(
                f"its lines reach {reach.rows} rows and {reach.columns} columns: that is too far"
            )
        cases = seen.cases()
    except Unbounded as error:
        raise Undecided(str(error)) from None
    proof, held = Proof(model, data, seen.rule, seen, [], [], []), 0
    for case in cases:
        atoms = seen.atoms(seen.layers, case.place, case)
        try:
            found = seen.enumeration(case, atoms)
            windows, size = _held(found, part)
        except TooMany as error:
            raise Undecided(_too_many(len(atoms), case, error.estimate, most)) from None
        if not size:
            continue
        held += len(windows or ())
        proof.cases.append(found)
        proof.windows.append(windows if held < HELD else None)
        proof.sizes.append(size)
        if proof.size > most:
            raise Undecided(_too_many(len(atoms), case, proof.size, most))
    return proof


def _held(case: Enumeration, part: int) -> tuple[Windows | None, int]:
    """The windows of a case, None if they are more than a ``part``; and about how many they are."""
    try:
        windows = case.windows(part)
        return windows, len(windows)
    except TooMany:
        return None, round(case.estimate(part // 8))


def _too_many(atoms: int, case: Case, windows: float, most: float) -> str:
    return (
        f"its windows are too many: {atoms} places {case.label()}, about {windows:.1e} windows, "
        f"and at most {most:.1e} are tried: give it more --minutes"
    )


def check(
    proof: Proof, on_chunk: Callable[[int], None] = lambda _: None, floor: float = 0.0
) -> list[Checked]:
    """Run the model on every window, in float64 with a bound on its error.

    ``floor``: least margin of windows that do not fail. Windows of rows that are computed alike are
    run once.
    """
    run, done = runner(proof), 0
    results = [Checked(case.case, case.atoms, floor) for case in proof.cases]

    def tell(more: int) -> None:
        nonlocal done
        done += more
        on_chunk(done)

    for group in proof.groups:
        for parts in group.parts(PART):
            known = Known()
            for member, windows in zip(group.members, parts, strict=True):
                if not len(windows):
                    continue
                numbers = member.codes(windows)
                new = known.missing(numbers)
                if new.any():
                    known.add(numbers[new], run(windows.take(new), tell))
                tell(int((~new).sum()))
                found = known.find(numbers)
                results[member.number].add(windows.values, windows.expected, *found.unbind(1))
    return results


def runner(proof: Proof) -> Callable[[Windows, Callable[[int], None]], Tensor]:
    """What gives of each window the margin, and what is certain of it: ``(n, 2)``."""
    if proof.whole is not None:
        return proof.whole.run
    return partial(run_exactly, Exact(proof.model, proof.field))


def run_exactly(exact: Exact, windows: Windows, tell: Callable[[int], None]) -> Tensor:
    """The same by the layers of our own models, in float64 with a bound on its error."""
    network, found = Network(exact, windows), []
    rights = in_chunks(windows.expected)
    for values, right in zip(in_chunks(windows.values), rights, strict=True):
        found.append(torch.stack(network.margins(values, right), 1))
        tell(len(values))
    return torch.cat(found)


def minutes_needed(proof: Proof) -> float:
    """How long ``check`` takes here, about: tried on windows of the largest group of cases."""
    every = proof.groups
    sizes = [group.size(proof.sizes) for group in every]
    parts = every[int(np.argmax(sizes))].parts(PART)
    windows = next(windows for part in parts for windows in part if len(windows))
    few, run = windows.take(np.arange(len(windows)) < TRIED), runner(proof)
    started = time.perf_counter()
    run(few, lambda _: None)
    return sum(sizes) / len(few) * (time.perf_counter() - started) / 60
