"""Decide whether a model is right at every length.

The induction: a row's prediction depends on its window only. If in every window that a correct
prefix can produce the prediction is the right token, then by induction over the rows each output
is right from its first token to EOS, for every source of every length.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from abc_calib.certification.field import Field
from abc_calib.certification.network import Network, in_chunks
from abc_calib.certification.places import Case, Unbounded
from abc_calib.certification.windows import Enumeration, TooMany, Windows
from abc_calib.data import Data
from abc_calib.errors import AbcError
from abc_calib.evaluation.failures import logit_margins
from abc_calib.geometry import SITES
from abc_calib.nn.positions import Scheme
from tasks.columns import ColumnRule

KEPT = 100
"""Failing windows that are kept of each case, those of the smallest margin first."""
NO_NUMBER = -1e9
"""The margin of logits that are not numbers."""
SAFETY = 10
"""How many times the float32 rounding the smallest margin has to be."""


class Undecided(AbcError):
    """Neither certified nor refuted; the message says why."""


@dataclass
class Checked:
    """What was found in one case. ``failing (n, atoms)`` are windows where the model is wrong.

    ``margin``: least difference between the logit of the right token and the largest other
    one. ``rounding``: largest difference between a logit in float32 and in float64.
    """

    case: Case
    windows: int
    wrong: int = 0
    margin: float = float("inf")
    margin64: float = float("inf")
    rounding: float = 0.0
    atoms: tuple[Any, ...] = ()
    failing: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.uint8))


def column_rule(data: Data) -> ColumnRule:
    """The task's automaton, or ``Undecided``."""
    rule = data.task.column_rule()
    if rule is None:
        raise Undecided(f"{data.task.name} is not a rule on columns of digits")
    return rule


def receptive_field(model: Any, data: Data) -> Field:
    """The model's field on sources of this format; ``Unbounded`` where it has none."""
    if model.no_lines:
        raise Unbounded(model.no_lines)
    options, lines = model.options, model.lines
    if lines is None:
        raise Unbounded("its attention is not restricted to lines: abc calibrate it")
    if options.encoder_layers:
        layers = options.encoder_layers
        raise Unbounded(f"its encoder has {layers} layers that see the whole source")
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
    if absolute and options.cyclic is None:
        raise Unbounded(f"its positions ({options.scheme}) are absolute and grow with length")
    every = [layer for site in ("self", "cross") for layer in lines.sites.get(site, ())]
    single = all(len(head) == 1 for layer in every for head in layer)
    scores = [type(schemes[site]) for site in ("self", "cross")]
    if not single and any(s.rotate is not Scheme.rotate or s.has_score_bias for s in scores):
        raise Unbounded(
            f"its scores depend on positions ({options.scheme}) where a head has several lines"
        )
    rule, width = column_rule(data), data.layout_at(9)
    if width.keys == data.layout_at(8).keys:
        raise Unbounded(f"its format pads every operand to a fixed width, {width.widths[0]}")
    period = (options.cyclic if absolute else None) or 1
    ids = data.vocabulary.ids
    return Field(lines, options.decoder_layers, data.layout_at, ids, rule.constant, period)


@dataclass
class Proof:
    """The model, its field and the windows of all its cases."""

    model: Any
    data: Data
    rule: ColumnRule
    field: Field
    windows: list[Windows]

    @property
    def size(self) -> int:
        return sum(len(w) for w in self.windows)


def prepare(model: Any, data: Data, limit: int) -> Proof:
    """Everything that has to be checked, before it is; ``Undecided`` if that cannot be done.

    ``limit``: most windows in all.
    """
    try:
        seen = receptive_field(model, data)
        rule = column_rule(data)
        cases = seen.cases()
    except Unbounded as error:
        raise Undecided(str(error)) from None
    proof = Proof(model, data, rule, seen, [])
    for case in cases:
        atoms = seen.atoms(seen.layers, case.place, case)
        try:
            found = Enumeration(rule, data.vocabulary.eos, case, atoms, seen.period).windows(limit)
            if proof.size + len(found) > limit:
                raise TooMany(proof.size + len(found))
        except TooMany as error:
            raise Undecided(
                f"its windows are too many: {len(atoms)} atoms {case.label()}, up to "
                f"{error.estimate:.1e} windows, and at most {limit:.1e} are listed"
            ) from None
        if len(found):
            proof.windows.append(found)
    return proof


def check(proof: Proof, on_chunk: Callable[[int], None] = lambda _: None) -> list[Checked]:
    """Run the model on every window, in float32 and in float64."""
    exact = copy.deepcopy(proof.model).double()
    done, results = 0, []
    for windows in proof.windows:
        networks = [Network(model, proof.field, windows) for model in (proof.model, exact)]
        result = Checked(windows.case, len(windows), atoms=windows.atoms)
        failing, margins = [], []
        expected = in_chunks(windows.expected)
        for values, right in zip(in_chunks(windows.values), expected, strict=True):
            logits, logits64 = (network.logits(values) for network in networks)
            margin = _margins(logits, right)
            result.margin = min(result.margin, float(margin.min()))
            margin64 = _margins(logits64, right)
            result.margin64 = min(result.margin64, float(margin64.min()))
            result.rounding = max(result.rounding, float((logits64 - logits).abs().max()))
            wrong = ((margin <= 0) | (margin64 <= 0)).numpy()
            result.wrong += int(wrong.sum())
            failing.append(values[wrong])
            margins.append(margin.numpy()[wrong])
            done += len(values)
            on_chunk(done)
        order = np.argsort(np.concatenate(margins))[:KEPT]
        result.failing = np.concatenate(failing)[order]
        results.append(result)
    return results


def _margins(logits: torch.Tensor, right: np.ndarray) -> torch.Tensor:
    """``(m,)``: the right token's logit above the largest other one; what is no number is wrong."""
    margin = logit_margins(logits, torch.from_numpy(right.astype(np.int64)))
    return margin.nan_to_num(nan=NO_NUMBER)


def windows_a_second(proof: Proof) -> float:
    """How fast windows are checked here, tried on a part of the largest case."""
    windows = max(proof.windows, key=len)
    few = replace(windows, values=windows.values[:4096], expected=windows.expected[:4096])
    started = time.perf_counter()
    check(replace(proof, windows=[few]))
    return len(few) / (time.perf_counter() - started)
