"""The default fit: attention explained as a non-negative sum of lines.

For each head, the weights w >= 0 of the candidate lines that minimise the squared distance
between its attention and the sum of their indicators, over all rows of all samples. A line
that merely crosses a strong one, or runs along a few cells of it, gets nothing: the strong one
explains those cells. Samples of different lengths need no alignment, since a segment line
names one key for every row of every sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from abc_calib.calibration.fits.base import FIRST, Evidence, Fit, sinks
from abc_calib.config import CalibrationOptions
from abc_calib.errors import UsageError
from abc_calib.geometry import ALONE, Heads, Line, LineBias, Site
from abc_calib.geometry.lines import Direction
from abc_calib.nn.base import AttentionWeights
from abc_calib.nn.lines import LineGather


class Nnls(Fit):
    """Non-negative least squares over the candidate lines of every head."""

    thresholds = (0.4, 0.3, 0.2, 0.1)  # from the fewest lines to the most

    def __init__(self, evidence: Evidence, options: CalibrationOptions):
        super().__init__(evidence, options)
        about = evidence.parts, evidence.length, evidence.stride
        searched: dict[Site, tuple[Line, ...]] = {
            site: candidates(site, options.dirs_at(site), *about) for site in options.sites
        }
        if not any(searched.values()):
            raise UsageError("there is no line in these directions at these sites: name others")
        #: at each site the lines, and the share of attention of each, ``(layers, h, lines)``
        self.looked = self.lines = dict[Site, list[Line]]()
        self.weights = dict[Site, np.ndarray]()
        for site, weights in fit(evidence.captured(), searched).items():
            kept = [k for k, x in enumerate(searched[site]) if (site, x) != ("self", FIRST)]
            self.lines[site] = [searched[site][k] for k in kept]
            self.weights[site] = weights[self.origins(len(weights))][:, :, kept]

    def bias(self, threshold: float) -> LineBias:
        sites: dict[Site, tuple[Heads, ...]] = {}
        for group in self.groups:
            if not (present := [site for site in group if site in self.lines]):
                continue
            named = [(site, line) for site in present for line in self.lines[site]]
            weights = np.concatenate([self.weights[site] for site in present], 2)
            layers = [select(layer, threshold) for layer in weights]
            for site in present:
                lines: dict[int | None, tuple[Line, ...]] = {
                    k: (line,) for k, (where, line) in enumerate(named) if where == site
                }
                sites[site] = tuple(
                    tuple(lines.get(k, self.sink(site)) for k in picked) for picked in layers
                )
        return self.bias_of(sites)

    def share(self, site: Site, layer: int, head: int, line: Line) -> tuple[float, str]:
        weights = dict(zip(self.lines[site], self.weights[site][layer, head].tolist(), strict=True))
        weight = weights.get(line, 0.0)
        if weight > 0 and weight == max(weights.values()):
            return weight, ""
        closing = ALONE if self.evidence.stream else sinks(self.evidence.parts)[site]
        return weight, "sink" if line == closing else "assigned"


def candidates(
    site: Site,
    dirs: Sequence[Direction],
    segments: int,
    length: int,
    stride: int = 1,
) -> tuple[Line, ...]:
    """The lines that are looked for: those at least half a segment long.

    ``segments`` of the source, operands of ``length`` digits; ``stride`` of slanted lines over the
    source.
    """
    reach = length // 2
    near = range(-reach, reach + 1)
    if site == "self":  # rows look back only, and no delimiter closes what is being written
        lines = [FIRST, *(Line("diag", 0, -back) for back in range(reach + 1))]
    elif site == "encoder":
        lines = [Line("vert", segment, 0) for segment in range(segments + 1)]
        lines += [Line("diag", 0, offset) for offset in near]
    else:
        lines = [FIRST]
        for segment in range(1, segments + 1):
            lines += [Line("vert", segment, offset) for offset in range(reach)]
            lines += [Line("anti", segment, offset, stride=stride) for offset in near]
            lines += [Line("diag", segment, offset, stride=stride) for offset in near]
    return tuple(line for line in lines if line.direction in dirs)


def fit(
    captured: Iterable[AttentionWeights], lines: dict[Site, tuple[Line, ...]]
) -> dict[Site, np.ndarray]:
    """Non-negative least squares: the weight of each line at a site, ``(layers, h, lines)``.

    The normal equations are summed over the parts, so memory does not grow with the samples.
    """
    overlap: dict[Site, np.ndarray] = {}
    along: dict[Site, np.ndarray] = {}
    for part in captured:
        for site, site_lines in lines.items():
            if not site_lines or not part.weights[site]:
                continue
            rows = part.rows[site]
            key, outside = LineGather({site: (site_lines,)}).positions(part.views[site])
            key = key.expand(len(rows), -1, len(rows[0]), -1)  # (b, 1, i, k)
            on_line = rows[:, None, :, None] & ~outside.expand(key.shape)
            counted = on_line[:, 0, :, :, None] & on_line[:, 0, :, None, :]
            same = (key[:, 0, :, :, None] == key[:, 0, :, None, :]) & counted
            overlap[site] = overlap.get(site, 0) + same.sum((0, 1)).cpu().numpy()
            sums = []
            for layer in part.weights[site]:
                picked = torch.take_along_dim(layer, key, dim=3) * on_line
                sums.append(picked.double().sum((0, 2)))  # (h, k)
            along[site] = along.get(site, 0) + torch.stack(sums).cpu().numpy()
    return {site: _solve(overlap[site], along[site]) for site in overlap}


def _solve(overlap: np.ndarray, along: np.ndarray) -> np.ndarray:
    """Weights ``(layers, h, k)`` from ``overlap (k, k)`` and ``along (layers, h, k)``.

    Of lines that name the same keys in every row, only the first takes part.
    """
    from scipy.optimize import nnls  # half a second, which no other command has to wait for

    k = len(overlap)
    twin = (overlap == np.diag(overlap)) & (overlap == np.diag(overlap)[:, None])
    first = [i for i in range(k) if not twin[i, :i].any()]
    gram = overlap[np.ix_(first, first)].astype(np.float64)
    scale = gram.max() or 1.0  # without a query of a kind nothing weighs
    factor = np.linalg.cholesky(gram / scale + 1e-9 * np.eye(len(first)))
    weights = np.zeros(along.shape)
    for index in np.ndindex(along.shape[:2]):
        moments = np.linalg.solve(factor, along[index][first] / scale)
        weights[index][first], _ = nnls(factor.T, moments)
    return weights


def select(weights: np.ndarray, threshold: float) -> list[int | None]:
    """One line for every head of a layer, or none: from ``weights (h, k)``.

    A layer's lines are those that some head follows with at least ``threshold`` of its
    attention. Each of them goes to one head, so that the heads follow their lines as closely as
    possible in all; the heads left over keep their own strongest line, if they follow one, and
    else close onto a sink. The strongest lines come first, if there are more than heads. A head
    that reads exactly one token is what the public code's published biases show too; a head left
    open spreads over ever more keys as length grows, and accuracy with it.
    """
    from scipy.optimize import linear_sum_assignment

    strongest = weights.max(0, initial=0.0)
    order = np.argsort(-strongest, kind="stable")
    chosen = [int(k) for k in order if strongest[k] >= threshold][: len(weights)]
    kept = [int(head.argmax()) if head.max(initial=0.0) >= threshold else None for head in weights]
    for head, column in zip(*linear_sum_assignment(-weights[:, chosen]), strict=True):
        kept[head] = chosen[column]
    return kept
