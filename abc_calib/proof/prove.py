"""Is a model right at every length? Everything that it can see, and how right it is there.

The induction: a prediction depends on its window only. If in every window that a right prefix can
produce the prediction is the right token, then each output is right from its first token to its
end: token by token, and where outputs have several rows, row by row.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from abc_calib.data import Data
from abc_calib.data.vocabulary import SOS
from abc_calib.errors import AbcError
from abc_calib.geometry import Layout, LineBias
from abc_calib.nn.transformer.windows import window_period
from abc_calib.proof.blackbox import BlackBox, setup_of_foreign
from abc_calib.proof.evaluate import Layers
from abc_calib.proof.forms import Undecided
from abc_calib.proof.occurrence import TooMany
from abc_calib.proof.setup import Setup
from abc_calib.proof.windows import AllWindows
from tasks.closure import NotClosed, check_closed
from tasks.rows import ROW
from tasks.rules import Rule
from tasks.word_rule import TICK

KEPT = 1000
"""Failing windows that are kept of each node, those of the smallest margin first."""
PART, HELD = 20_000_000, 40_000_000
"""Windows that are made at once, and that are held: 8 bytes each."""
MOST_WINDOWS = 10**11
"""More would take days."""
TRIED = 2**16
"""Windows that are run to see how long all of them take."""
COUNTED = 500_000
"""Windows of a set of lines that are counted exactly; of more, all that the tokens could be."""


def rule_of(data: Data) -> Rule:
    """The rule of the task, mapping rows into rows; ``Undecided`` where there is none."""
    if data.hints:
        raise Undecided("its format has index hints, which stand for no digit of the rule")
    rule = data.task.rule()
    if rule is None:
        raise Undecided(f"{data.task.name} has no rule, since its class says no step")
    empty = rule.first.next[[*rule.first.start]].reshape(len(rule.first.start), -1)[:, -1]
    if rule.first.tapes and (empty >= 0).any():
        raise Undecided(f"the rule of {data.task.name} takes sources without a letter")
    try:
        check_closed(rule)
    except NotClosed as error:
        raise Undecided(f"the rule of {data.task.name} proves nothing: {error}") from None
    return rule


def fitting(data: Data, rule: Rule) -> Layout:
    """A layout of the data's sources; ``Undecided`` where they are not as the rule reads them."""
    layout = data.layout_at((1, 2) if rule.listed else 9)
    if not rule.in_rows and layout.keys == data.layout_at(8).keys:
        raise Undecided(f"its format pads every operand to a fixed width, {layout.widths[0]}")
    return layout


def setup_of(model: Any, data: Data) -> Setup:
    """What the model and its sources look like; ``Undecided`` where a row sees without bound."""
    if model.in_whole_sources:
        return setup_of_foreign(model, data)
    period = model.no_lines or window_period(model)
    if isinstance(period, str):
        raise Undecided(period)
    rule, lines = rule_of(data), model.lines
    if rule.in_rows and period > 1:
        raise Undecided("its positions are not followed from row to row")
    layout, ids = fitting(data, rule), data.vocabulary.ids
    parts = 1 if rule.listed else len(layout.parts)
    for site, *_, read in lines.each():
        if site != "self" and (far := max((x.segment for x in read), default=0)) > parts:
            raise Undecided(f"its lines count from segment {far} of sources that may have {parts}")
    row = ids.get(ROW) if rule.in_rows else None
    opening: set[int | None] = {*rule.first.closers} or ({row} if rule.in_rows else set())
    if {*model.tokens.rows} != opening:
        raise Undecided("tokens begin rows in the model that close none in its rule")
    if not {*model.tokens.delimiters} >= {ids[sign] for sign in layout.delimiters}:
        raise Undecided("its delimiters are not those of its sources")
    signs = {ids[sign] for sign in (*data.task.delimiters, *data.task.separators, SOS)}
    if min(signs - {ids.get(TICK)}) != rule.base:
        raise Undecided("its sources have other letters than its rule")
    encoder = 0 if model.stream else model.attention_layers.get("encoder", 0)
    return Setup(rule, lines, model.options.decoder_layers, encoder, layout, ids, row, period)


@dataclass
class Checked:
    """What was found of one node. ``failing (m,)`` are windows where the model is wrong.

    ``listed``: how many windows there are, ``windows``: how many of them were run.
    ``margin``: the least difference between the logit of the right token and the largest other one.
    With a ``floor`` windows whose margin is not above it are kept as failing, too, but only those
    at 0 or less count as ``wrong``. ``margins (m,)``: of the failing ones, in order.
    """

    node: int
    floor: float = 0.0
    listed: int = 0
    windows: int = 0
    wrong: int = 0
    margin: float = float("inf")
    failing: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    margins: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def add(self, codes: np.ndarray, margins: Tensor) -> None:
        """Count windows in, and keep those that fail most."""
        values = margins.numpy()
        self.windows += len(codes)
        self.margin = min(self.margin, float(values.min(initial=np.inf)))
        self.wrong += int((values <= 0).sum())
        bad = values <= self.floor
        merged = np.concatenate([self.margins, values[bad]])
        order = np.argsort(merged, kind="stable")[:KEPT]
        self.margins = merged[order]
        self.failing = np.concatenate([self.failing, codes[bad]])[order]


@dataclass
class Proof:
    """A model, what its rows see, and all windows of that.

    ``codes``: the windows of each node that is a prediction; None where they are too many to be
    held, and are made part by part. ``sizes``: how many each node has, an estimate where None.
    """

    model: Any
    data: Data
    listing: AllWindows
    codes: dict[int, np.ndarray | None]
    sizes: dict[int, int]

    @property
    def rule(self) -> Rule:
        return self.listing.setup.rule

    @property
    def size(self) -> int:
        """How many windows there are."""
        return sum(self.sizes.values())

    @property
    def whole(self) -> bool:
        """Are all windows held?"""
        return all(codes is not None for codes in self.codes.values())

    @cached_property
    def evaluator(self) -> BlackBox | Layers:
        if self.model.in_whole_sources:
            return BlackBox(self.model, self.data, self.listing)
        return Layers(self.model, self.listing)

    def parts(self, node: int, rng: np.random.Generator | None = None) -> Iterator[np.ndarray]:
        """The windows of a node, each once; parts of too many to be held in an order by ``rng``."""
        codes = self.codes[node]
        yield from [codes] if codes is not None else parts(self.listing, node, PART, rng=rng)

    def all_parts(self) -> Iterator[tuple[int, np.ndarray]]:
        for node in self.codes:
            for codes in self.parts(node):
                yield node, codes

    def sample(self, most: int, rng: np.random.Generator) -> Proof:
        """The same with windows drawn at random, about ``most`` in all."""
        drawn, share = dict[int, Any](), max(1, most // len(self.codes))
        for node in self.codes:
            codes = next(part for part in self.parts(node, rng) if len(part))
            drawn[node] = np.sort(rng.permutation(codes)[:share])
        return replace(self, codes=drawn, sizes={node: len(drawn[node]) for node in drawn})


def parts(
    listing: AllWindows,
    node: int,
    limit: int,
    pins: Mapping[int, int] | None = None,
    rng: np.random.Generator | None = None,
) -> Iterator[np.ndarray]:
    """The windows of a node in parts of at most ``limit``: some atoms pinned, if need be.

    In order of the pinned values, or in an order drawn by ``rng``.
    """
    pins, base = pins or {}, listing.setup.rule.base
    try:
        yield listing.windows(node, pins, limit)
    except TooMany:
        free = [atom for atom in _order(listing, node) if atom not in pins]
        if not free:
            raise
        for value in range(base) if rng is None else rng.permutation(base).tolist():
            yield from parts(listing, node, limit, {**pins, free[0]: value}, rng)


def _order(listing: AllWindows, node: int) -> list[int]:
    """The atoms of a node, those first that most of the states below the last layer depend on."""
    graph_node = listing.graph.nodes[node]
    uses = Counter(name for _, names in graph_node.below for name in names)
    return sorted(range(graph_node.atoms), key=lambda atom: -uses[atom])


def prepare(model: Any, data: Data, part: int = PART, most: float = MOST_WINDOWS) -> Proof:
    """Everything that has to be checked, before it is; ``Undecided`` if that cannot be done.

    ``part``: the most windows of a node that are held. ``most``: windows in all, about.
    """
    listing = AllWindows(setup_of(model, data))
    proof, count = Proof(model, data, listing, {}, {}), 0
    for node in listing.occurrences:
        try:
            codes = listing.windows(node, {}, part)
            size = len(codes)
        except TooMany:
            codes, size = None, _estimate(listing, node, most)
        if not size:
            continue
        count += size if codes is not None else 0
        proof.codes[node] = codes if count < HELD else None
        proof.sizes[node] = size
        if proof.size > most:
            raise Undecided(
                f"too many windows: about {proof.size:,}, of which at most {most:,.0f} can be "
                "checked in this time: give it more minutes"
            )
    return proof


def _estimate(listing: AllWindows, node: int, most: float) -> int:
    """About how many windows a large node has: as in one part of it, times the parts."""
    base, pins = listing.setup.rule.base, dict[int, int]()
    for atom in _order(listing, node):
        pins[atom] = (base + 1) // 2 % base
        if base ** len(pins) > most:
            break
        try:
            return max(1, len(listing.windows(node, pins, PART // 8))) * base ** len(pins)
        except TooMany:
            continue
    return round(min(float(base) ** listing.graph.nodes[node].atoms, 1e18))


def check(
    proof: Proof, on_windows: Callable[[int], None] = lambda done: None, floor: float = 0.0
) -> list[Checked]:
    """Run the model on every window; ``floor``: the least margin of windows that do not fail."""
    results = {node: Checked(node, floor) for node in proof.codes}

    def counted() -> Iterator[tuple[int, np.ndarray]]:
        for node, codes in proof.all_parts():
            results[node].listed += len(codes)
            yield node, codes

    done = 0
    for node, codes, margins in proof.evaluator.run(counted()):
        results[node].add(codes, margins)
        done += len(codes)
        on_windows(done)
    for result in results.values():
        if result.windows != result.listed:
            raise AbcError(
                f"{result.windows} of {result.listed} windows were run: nothing is decided"
            )
    return list(results.values())


def minutes_needed(proof: Proof) -> float:
    """How long ``check`` takes here, about: tried on windows of the largest node."""
    node = max(proof.sizes, key=lambda node: proof.sizes[node])
    codes = next(codes for codes in proof.parts(node) if len(codes))
    # neighbours, as in a run over all, share what is below them
    few = codes[len(codes) // 2 :][:TRIED]
    started = time.perf_counter()
    deque(proof.evaluator.run(iter([(node, few)])), maxlen=0)
    return proof.size / len(few) * (time.perf_counter() - started) / 60


def windows_inside(model: Any, data: Data, lines: LineBias) -> float:
    """The most windows of any node with these lines; infinitely many where there is no bound.

    Puts the lines into the model, which need not be trained.
    """
    model.set_lines(lines)
    try:
        listing = AllWindows(setup_of(model, data))
    except Undecided:
        return float("inf")
    sizes = list[float]()
    for node in listing.occurrences:
        try:
            sizes.append(len(listing.windows(node, {}, COUNTED)))
        except TooMany:
            sizes.append(float(listing.radix(node)))
    return max(sizes)
