"""Which lines are kept, as the options of a calibration say, and the table that shows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from abc_calib.calibration.capture import capture
from abc_calib.calibration.fits import nnls
from abc_calib.calibration.fits.mean import line_means, mean_lines
from abc_calib.calibration.fits.segment_mean import segment_mean_lines
from abc_calib.calibration.trial import Check, choose
from abc_calib.config import CalibrationOptions
from abc_calib.data.digits import Data
from abc_calib.errors import UsageError
from abc_calib.geometry.lines import Direction, Heads, Line, LineBias, Site
from abc_calib.nn.biases import Frame

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


THRESHOLDS = (0.4, 0.3, 0.2, 0.1)
"""Tried from the fewest lines to the most, unless a threshold is given (nnls)."""

LAST = -1
"""In the table, the layer of lines that were found in the last one and serve all."""


def sinks(segments: int) -> dict[Site, Line]:
    """The delimiter that a head without lines is closed onto."""
    return {
        "encoder": Line("vert", segments, 0),
        "self": Line("vert", 0, 0),
        "cross": Line("vert", segments, 0),
    }


def found_in(layer: str | None, layers: int) -> list[int]:
    """For each layer, the one whose attention gives its lines."""
    return {"first": [0] * layers, "last": [layers - 1] * layers}.get(
        layer or "own", list(range(layers))
    )


# The paper's fit


def by_means(
    attention: dict[Site, np.ndarray],
    options: CalibrationOptions,
    frames: dict[Site, Frame],
    source: Data,
) -> tuple[LineBias, list[LineRow]]:
    """Lines whose mean stands out in the averaged attention; ``options`` are settled."""
    threshold = 4.0 if options.threshold is None else options.threshold
    closing = sinks(source.segments)
    sites: dict[Site, tuple[Heads, ...]] = {}
    table: list[LineRow] = []
    for site, layers in _only(attention, options).items():
        # anti-diagonals of self-attention have no meaning while the output's length is open
        dirs = [d for d in options.dirs if not (site == "self" and d == "anti")]
        made: list[Heads] = []
        origins = found_in(options.layer, len(layers))
        for layer, origin in enumerate(origins):
            heads, weights = _stand_out(
                layers[origin], site, dirs, options, frames, source, threshold
            )
            if options.values == "hard":
                heads = tuple(tuple(replace(x, value=0.0) for x in head) for head in heads)
            open_ = heads
            if options.empty == "closed":
                heads = tuple(head or (closing[site],) for head in heads)
            made.append(heads)
            if options.layer == "last":
                if layer:
                    continue
                layer = LAST
            table += _rows(site, layer, heads, open_, weights)
        sites[site] = tuple(made)
    return LineBias(sites, options.closed), table


def _stand_out(
    matrices: np.ndarray,
    site: Site,
    dirs: Sequence[Direction],
    options: CalibrationOptions,
    frames: dict[Site, Frame],
    source: Data,
    threshold: float,
) -> tuple[Heads, list[dict[tuple[str, int, int], float]]]:
    """The lines of one layer's heads, and the mean along each line by its name."""
    if not dirs:
        return ((),) * len(matrices), [{} for _ in matrices]
    if options.anchors == "segment":
        frame = frames[site]
        one = replace(
            frame,
            lengths=frame.lengths[:1].cpu(),
            rows=frame.rows.cpu(),
            delimiters=None if frame.delimiters is None else frame.delimiters[:1].cpu(),
        )
        lines = nnls.candidates(site, dirs, source.segments, source.length)
        heads, means = segment_mean_lines(matrices, lines, one, threshold)
        return heads, [{_name(line): mean for line, mean in each.items()} for each in means]
    heads = mean_lines(matrices, dirs, threshold)
    return heads, [
        {(d, -1, index): mean for d in dirs for index, mean in line_means(matrix, d).items()}
        for matrix in matrices
    ]


def _name(line: Line) -> tuple[str, int, int]:
    return line.direction, line.segment, line.offset


def _rows(
    site: Site,
    layer: int,
    heads: Heads,
    open_: Heads,
    weights: list[dict[tuple[str, int, int], float]],
) -> list[LineRow]:
    rows = []
    for head, lines in enumerate(heads):
        for line in lines:
            weight = weights[head].get(_name(line), 0.0) if open_[head] else 0.0
            rows.append(line_row(site, layer, head, line, weight, "" if open_[head] else "sink"))
        if not lines:
            rows.append(LineRow(site, layer, head, "-", 0.0, 0.0, "transparent"))
    return rows


# Non-negative least squares


def by_nnls(
    model: Any, source: Data, correct: Any, options: CalibrationOptions, on_check: OnCheck
) -> tuple[LineBias, list[LineRow], list[Check]]:
    """Lines by non-negative least squares; ``options`` are settled."""
    segments = source.segments
    wanted: dict[Site, tuple[Line, ...]] = {
        site: nnls.candidates(site, options.dirs, segments, source.length, options.anchors or "")
        for site in options.sites
    }
    if not any(wanted.values()):
        raise UsageError("there is no line in these directions at these sites: name others")
    fitted = {}
    for site, found in nnls.fit(capture(model, correct), wanted).items():
        origins = found_in(options.layer, len(found.weights))
        fitted[site] = replace(found, weights=found.weights[origins])
    keep = nnls.soften if options.values == "soft" else nnls.select

    def sink(site: Site) -> Line | None:
        return sinks(segments)[site] if options.empty == "closed" else None

    def bias(threshold: float) -> LineBias:
        return LineBias(
            {site: keep(found, threshold, sink(site)) for site, found in fitted.items()},
            options.closed,
        )

    if options.threshold is not None:
        checks: list[Check] = []
        chosen = bias(options.threshold)
    else:
        chosen, checks = choose(((t, bias(t)) for t in THRESHOLDS), model, source, on_check)
    return chosen, _weighed(chosen, fitted, sinks(segments)), checks


def _weighed(
    chosen: LineBias, fitted: dict[Site, nnls.Fitted], closing: dict[Site, Line]
) -> list[LineRow]:
    """The table of the kept lines, each with the share of attention that the fit gives it."""
    table = []
    for site, layers in chosen.sites.items():
        found = fitted[site]
        index = {_name(line): k for k, line in enumerate(found.lines)}
        for layer, heads in enumerate(layers):
            for head, lines in enumerate(heads):
                weights = found.weights[layer, head]
                strongest = float(weights.max())
                for line in lines:
                    at = index.get(_name(line))
                    weight = 0.0 if at is None else float(weights[at])
                    follows = weight > 0 and (weight == strongest or len(lines) > 1)
                    note = "" if follows else "sink" if line == closing[site] else "assigned"
                    table.append(line_row(site, layer, head, line, weight, note))
                if not lines:
                    table.append(LineRow(site, layer, head, "-", 0.0, 0.0, "transparent"))
    return table


def _only(attention: dict[Site, np.ndarray], options: CalibrationOptions) -> dict[Site, np.ndarray]:
    """The attention of the sites that get lines."""
    return {site: layers for site, layers in attention.items() if site in options.sites}


def line_row(
    site: Site, layer: int, head: int, line: Line, weight: float, note: str = ""
) -> LineRow:
    """A line of the table, its weight rounded."""
    return LineRow(site, layer, head, line.label(site), round(weight, 4), line.value, note)
