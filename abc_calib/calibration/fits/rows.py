"""The fit for outputs of several rows: lines on a grid, those that decide what is written.

The attention of every head is explained as a non-negative sum of lines, as in ``nnls``, but once
for each kind of query: those inside a row, those that write its first digit, those that close it.
(What only the end of a row needs would drown among all the others.) A line's weight is its mean
share over all heads and layers, for the kind of query that needs it most: heads one by one follow
too much that is of no use.

Of the lines above a threshold the fewest are kept whose tokens still decide what is written, in
training problems of few different digits (``abc_calib.calibration.windows``). What self-attention
reads, it reads in the first layer, where rows hold nothing but their tokens; above, heads see their
own row alone. So a query sees no more than the lines say, however many layers there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch

from abc_calib.calibration.capture import CHUNK
from abc_calib.calibration.fits.base import Evidence, Fit
from abc_calib.calibration.fits.nnls import fit
from abc_calib.calibration.windows import disputed, hashed, seen, smallest
from abc_calib.config import CalibrationOptions
from abc_calib.data import Batch
from abc_calib.errors import AbcError
from abc_calib.geometry import Heads, Line, LineBias, Site
from abc_calib.nn.base import AttentionWeights
from abc_calib.training.trainer import UNREACHED_STEP

KINDS = ("inside", "first", "end")
"""Queries that write a digit, the first one of a row, what closes it."""
REACH = 2
"""Columns to each side in which lines are looked for."""
PROBLEMS = 2**14
"""Training problems in which windows are compared: of few different digits, and others; these are
the ones that lines are judged by before a retraining."""


class Rows(Fit):
    """Non-negative least squares on a grid, by kind of query, and the lines that decide."""

    defaults: ClassVar[Mapping[str, str]] = {}
    thresholds = (0.01,)
    right_at_least = 0.1  # its lines are kept only if they decide what is written

    def __init__(self, evidence: Evidence, options: CalibrationOptions):
        super().__init__(evidence, options)
        data: Any = evidence.data
        lines = candidates(evidence.parts, options, data.coupling, data.above, evidence.stride)
        self.looked = self.lines = {site: lines[site] for site in options.sites if lines.get(site)}
        self.layers, self.heads = evidence.layers["self"], evidence.heads

    @cached_property
    def weights(self) -> dict[Site, np.ndarray]:
        """Of each line at a site the mean share of all heads, of the kind that follows it most."""
        most: dict[Site, np.ndarray] = {}
        for kind in KINDS:
            for site, weights in fit(self._of_kind(kind), self.lines).items():
                most[site] = np.maximum(most.get(site, 0.0), weights.mean((0, 1)))
        return most

    def _of_kind(self, kind: str) -> Iterator[AttentionWeights]:
        """The captured attention, of the queries of one kind alone."""
        data, model = self.evidence.data, self.evidence.model
        for batch, part in zip(parts(self.evidence.correct), self.evidence.captured(), strict=True):
            column = part.views["cross"].queries.column
            closers = torch.tensor([*model.tokens.rows, data.vocabulary.eos])
            ends = torch.isin(batch.target, closers).to(column.device)
            first = (column == 0) & ~ends
            chosen = {"inside": ~ends & ~first, "first": first, "end": ends}[kind]
            rows = {site: part.rows[site] & chosen for site in self.lines}
            yield replace(part, rows=rows)

    def bias(self, threshold: float) -> LineBias:
        kept = self.kept(threshold)
        sites: dict[Site, tuple[Heads, ...]] = {}
        for group in self._groups:
            first: list[tuple[Site, Line]] = [(s, line) for s in group for line in kept[s]]
            later = [(site, line) for site, line in first if site != "self"]
            for site in group:
                above = self._heads(site, later)
                sites[site] = (self._heads(site, first), *(above,) * (self.layers - 1))
        return self.bias_of(sites)

    @property
    def _groups(self) -> list[list[Site]]:
        """Sites with lines whose heads are the same."""
        return [[site for site in group if site in self.lines] for group in self.groups]

    def _heads(self, site: Site, lines: Sequence[tuple[Site, Line]]) -> Heads:
        """The lines at a site of a layer's heads, each of which has one of ``lines``, or none."""
        closed = self.sink(site)
        heads = [(line,) if at == site else closed for at, line in lines]
        return (*heads, *(closed,) * self.heads)[: self.heads]

    def kept(self, threshold: float) -> dict[Site, list[Line]]:
        """The lines at each site, the heaviest first.

        Of the lines of at least a share of the heaviest, the fewest that decide: more of them would
        say more of the training sizes, in which a few columns are all that there is.
        """
        data: Any = self.evidence.data
        heavy = self._heavy(threshold)
        lines = [(site, line) for _, site, line in heavy]
        usual = data.training(UNREACHED_STEP + 2, PROBLEMS)
        batches = [self._windows(b, lines) for b in (data.training_of_few_digits(PROBLEMS), usual)]
        windows, written = (np.concatenate(part) for part in zip(*batches, strict=True))
        if wrong := disputed(hashed(windows).sum(1), written)[0]:
            longest = "x".join(
                map(str, data.size if isinstance(data.size, tuple) else (data.size,))
            )
            raise AbcError(
                f"no lines were found that decide what is written: {wrong} of {len(written)} rows "
                "see what others see that write another token. Train longer, on more rows and "
                f"columns than {longest}, or give a smaller threshold; docs/rows.md says which "
                "outputs local windows can decide"
            )
        chosen = [heavy[k] for k in smallest(windows, written, [entry[0] for entry in heavy])]
        picked = {site: [x for _, s, x in reversed(chosen) if s == site] for site in self.lines}
        most = max(sum(len(picked[site]) for site in group) for group in self._groups)
        if most > self.heads:
            raise AbcError(
                f"{most} lines decide what is written, which heads of one attention follow, and a "
                f"layer has {self.heads} heads: train with more heads"
            )
        return picked

    def _heavy(self, least: float) -> list[tuple[float, Site, Line]]:
        """Lines with their weight, of at least a share of the heaviest at their site.

        The lightest first.
        """
        heavy: list[tuple[float, Site, Line]] = []
        for site, weights in self.weights.items():
            entries = [
                (float(weight), site, line)
                for weight, line in zip(weights, self.lines[site], strict=True)
                if line != OWN and weight > 0
            ]
            most = max((weight for weight, *_ in entries), default=0.0)
            heavy += [entry for entry in entries if entry[0] >= least * most]
        return sorted(heavy, key=lambda entry: entry[0])

    def _windows(
        self, batch: Batch, lines: list[tuple[Site, Line]]
    ) -> tuple[np.ndarray, np.ndarray]:
        """The tokens on lines, and last the row's own, ``(n, lines + 1)``; and what is written."""
        model: Any = self.evidence.model
        views = model.views(batch.source, batch.target)
        return seen(batch, model.shifted(batch.target), views, [*lines, ("self", OWN)], model.pad)

    def share(self, site: Site, layer: int, head: int, line: Line) -> tuple[float, str]:
        weight = dict(zip(self.lines[site], self.weights[site].tolist(), strict=True))
        return weight.get(line, 0.0), "sink" if (line,) == self.sink(site) else ""


OWN = Line("diag", 0, 0)
"""In self-attention the query's own token, which it always has."""


def candidates(
    parts: int,
    options: CalibrationOptions,
    coupling: str = "",
    above: bool = False,
    stride: int = 1,
) -> dict[Site, tuple[Line, ...]]:
    """The lines that are looked for; of those that name the same keys the first one counts.

    In self-attention in a query's own row and the one above, which are all that a rule reads, the
    latter also from its last token.

    ``parts``: of the source, as far as distinguished: 1 where operands are alike. ``above``:
    what stands in them, but in the first one if that is coupled with rows, is above the first row:
    in later rows its lines rest on the end of the source. Where nothing is coupled with rows
    (``own``), no line moves with them: a rule does not read by the number of the row.
    """
    near = range(-REACH, REACH + 1)
    at_self = [OWN, *(Line("diag", 0, -back) for back in range(1, REACH + 1)), Line("vert", 0, 0)]
    at_self.append(Line("vert", 0, 1))
    at_self += [Line("diag", 1, offset) for offset in (*near, REACH + 1)]
    at_self.append(Line("vert", 1, 0))
    at_self += [Line("anti", 1, offset) for offset in near]
    crossed = []
    for part in range(1, parts + 1):
        step = (parts + 1 - part) * (above and part > (coupling == "first"))
        crossed += [Line("anti", part, x, part_step=step, stride=stride) for x in near]
        if coupling != "own":
            crossed += [Line("vert", part, 1 + offset, beta=1) for offset in near]
    if coupling != "own":
        crossed += [Line("anti", 1, offset, part_step=1) for offset in near]
        several = parts > 1 or coupling == "operands"  # the parts of a sum are alike
        crossed += [Line("vert", part, 0, part_step=1) for part in (1, 2)[: 1 + several]]
    still = [Line("vert", part, offset) for part in range(1, parts + 1) for offset in near[REACH:]]
    by_site: dict[Site, list[Line]] = {
        "self": at_self,
        "cross": [*crossed, *still, Line("vert", 0, 0)],
    }
    return {
        site: tuple(line for line in lines if line.direction in options.dirs_at(site))
        for site, lines in by_site.items()
    }


def parts(batch: Batch) -> Iterator[Batch]:
    """``batch`` in the parts in which its attention is captured."""
    for rows in torch.arange(len(batch)).split(CHUNK):
        yield batch.take(rows)
