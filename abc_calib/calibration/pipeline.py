"""From a trained run to a LineBias: which samples, which fit, which table to show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from abc_calib.calibration import nnls
from abc_calib.calibration.capture import average_attention, capture, correct_samples, same_shape
from abc_calib.calibration.check import Check, choose
from abc_calib.calibration.lines import Heads, Line, LineBias, Site
from abc_calib.calibration.mean import line_means, mean_lines
from abc_calib.config import CalibrationOptions
from abc_calib.data import Data
from abc_calib.errors import AbcError

CALIBRATION_STEP = 2**31
"""Training batches for calibration are drawn as those of a step that training never reaches."""
REFUSED_BELOW = 0.99

OnCheck = Callable[[Check], None]


@dataclass(frozen=True)
class LineRow:
    """One kept line, for the table: ``weight`` is its share of the head's attention.

    ``note``: ``sink`` for a head that follows no line and is closed onto a delimiter,
    ``assigned`` for one that takes over a line of its layer, ``transparent`` for one left open.
    """

    site: str
    layer: int
    head: int
    line: str
    weight: float
    value: float
    note: str = ""


@dataclass(frozen=True)
class Calibration:
    """A LineBias, the attention it was read from, the table of its lines, how it was chosen.

    ``attention[site]`` is ``(layers, h, i, j)``, averaged over ``samples`` training samples of
    one shape; ``tokens`` label the keys and rows of that shape.
    """

    bias: LineBias
    attention: dict[Site, np.ndarray]
    table: list[LineRow]
    checks: list[Check]
    samples: int
    accuracy: float


def calibrate(
    model: Any,
    source: Data,
    options: CalibrationOptions,
    force: bool = False,
    on_check: OnCheck = lambda _: None,
) -> Calibration:
    """Find the lines of a model that has interpolated, on training lengths only.

    Raises ``AbcError`` if the model decodes less than 99 % of training samples correctly,
    unless ``force``.
    """
    batch = source.training(CALIBRATION_STEP, options.samples)
    correct, accuracy = correct_samples(model, batch)
    if accuracy < REFUSED_BELOW and not force:
        raise AbcError(
            f"the model has not interpolated: {100 * accuracy:.1f} % of {len(batch)} training "
            "samples are right, and calibration reads the attention of a model that is right. "
            "Train longer (--steps), or use --force"
        )
    if not len(correct):
        raise AbcError("the model decodes no training sample correctly: train longer (--steps)")
    full = full_length(source, options.samples, model)
    attention = average_attention(model, full)
    if options.fit == "mean":
        bias, table = _by_means(attention, options)
        checks: list[Check] = []
    else:
        bias, table, checks = _by_nnls(model, source, correct, options, on_check)
    return Calibration(bias, attention, table, checks, len(correct), accuracy)


def full_length(source: Data, samples: int, model: Any) -> Any:
    """Correct training samples of one shape, operands of the full training length."""
    batch = source.training(CALIBRATION_STEP + 1, samples, exact=True)
    correct, _ = correct_samples(model, batch)
    return same_shape(correct if len(correct) else batch, source.vocabulary.pad)


def _by_means(
    attention: dict[Site, np.ndarray], options: CalibrationOptions
) -> tuple[LineBias, list[LineRow]]:
    """The paper's fit: the last layer's attention gives the lines of every layer."""
    threshold = 4.0 if options.threshold is None else options.threshold
    sites: dict[Site, tuple[Heads, ...]] = {}
    table = []
    for site, layers in attention.items():
        # anti-diagonals of self-attention have no meaning while the output's length is open
        dirs = [d for d in options.dirs if not (site == "self" and d == "anti")]
        heads = mean_lines(layers[-1], dirs, threshold) if dirs else ((),) * len(layers[-1])
        sites[site] = (heads,) * len(layers)
        for head, lines in enumerate(heads):
            means = {d: line_means(layers[-1][head], d) for d in dirs}
            for line in lines:
                weight = means[line.direction][line.offset]
                table.append(_row(site, -1, head, line, weight))
            if not lines:
                table.append(LineRow(site, -1, head, "-", 0.0, 0.0, "transparent"))
    return LineBias(sites), table


THRESHOLDS = (0.4, 0.3, 0.2, 0.1)
"""Tried from the fewest lines to the most, unless a threshold is given."""


def _by_nnls(
    model: Any, source: Data, correct: Any, options: CalibrationOptions, on_check: OnCheck
) -> tuple[LineBias, list[LineRow], list[Check]]:
    """The default fit: segment lines by non-negative least squares, each layer its own."""
    segments = source.segments
    wanted: dict[Site, tuple[Line, ...]] = {
        site: nnls.candidates(site, options.dirs, segments, source.length)
        for site in ("encoder", "self", "cross")
    }
    fitted = nnls.fit(capture(model, correct), wanted)
    sinks: dict[Site, Line] = {
        "encoder": Line("vert", segments, 0),
        "self": Line("vert", 0, 0),
        "cross": Line("vert", segments, 0),
    }

    def bias(threshold: float) -> LineBias:
        return LineBias(
            {site: nnls.select(found, threshold, sinks[site]) for site, found in fitted.items()}
        )

    if options.threshold is not None:
        checks: list[Check] = []
        chosen = bias(options.threshold)
    else:
        chosen, checks = choose(((t, bias(t)) for t in THRESHOLDS), model, source, on_check)
    table = []
    for site, layers in chosen.sites.items():
        found = fitted[site]
        for layer, heads in enumerate(layers):
            for head, (line,) in enumerate(heads):
                at = found.lines.index(line) if line in found.lines else None
                weight = 0.0 if at is None else float(found.weights[layer, head, at])
                strongest = float(found.weights[layer, head].max())
                follows = weight > 0 and weight == strongest
                note = "" if follows else "sink" if line == sinks[site] else "assigned"
                table.append(_row(site, layer, head, line, weight, note))
    return chosen, table, checks


def _row(site: Site, layer: int, head: int, line: Line, weight: float, note: str = "") -> LineRow:
    return LineRow(site, layer, head, line.label(site), round(weight, 4), line.value, note)
