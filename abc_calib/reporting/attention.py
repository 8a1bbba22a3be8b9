"""The averaged attention and the lines of a run, as arrays: what figures and the page show."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import torch

from abc_calib.calibration.capture import average_attention
from abc_calib.calibration.fits.base import LineRow, sinks
from abc_calib.calibration.fits.mean import END, LAST
from abc_calib.calibration.pipeline import full_length
from abc_calib.config import CalibrationOptions
from abc_calib.data import Batch, Data
from abc_calib.data.pairs import PairData
from abc_calib.errors import AbcError
from abc_calib.files import read_text
from abc_calib.geometry import Heads, Layout, Line, LineBias, Site
from abc_calib.geometry.bias import stored
from abc_calib.geometry.layout import read_labels, written_labels
from abc_calib.reporting.heatmaps import NO_LINE
from abc_calib.runs import Run
from abc_calib.text import counted
from abc_calib.training.trainer import UNREACHED_STEP
from tasks.rows import ROW

TABLE = "lines.csv"
SAMPLES = CalibrationOptions().samples
BARE = ("sink", "transparent")
"""Notes of heads without a line: closed onto a token that tells them nothing, or left open."""
KeptLines = dict[tuple[str, int, int], list[LineRow]]
"""The kept lines by site, layer and head."""


@dataclass(frozen=True)
class Problem:
    """The shape of one problem: its source, the tokens in each row of its output, and its end."""

    source: Layout
    rows: tuple[int, ...]
    end: str = "&"
    unit: str = "digits"

    @property
    def size(self) -> str:
        """How long it is, as ``6 digits``: the longest part of its source."""
        return counted(max(self.source.widths), self.unit)

    def labels(self, site: Site) -> tuple[list[str], list[str]]:
        """Return the names of the queries and of the keys at a site."""
        source = self.source.labels()
        if site == "encoder":
            return source, source
        steps = sum(self.rows)
        keys = read_labels(steps, source[0]) if site == "self" else source
        queries = written_labels(steps, self.end)
        for opened in accumulate(self.rows[:-1]):
            queries[opened - 1] = ROW
            if site == "self":
                keys[opened] = ROW
        return queries, keys


@dataclass(frozen=True)
class SiteLines:
    """The lines of a calibrated run at one site, with what was kept of them in its table.

    They are drawn on the problem ``near`` that the attention is of, and on a longer one, ``far``.
    """

    lines: LineBias
    table: KeptLines
    site: Site
    near: Problem
    far: Problem

    @property
    def heads(self) -> Sequence[Heads]:
        """The lines of each layer's heads."""
        return self.lines.sites[self.site]

    @property
    def shared(self) -> bool:
        """Were they found in the last layer?"""
        return (self.site, LAST, 0) in self.table

    def kept(self, layer: int, head: int) -> list[LineRow]:
        """Return what was kept of a head."""
        return self.table.get((self.site, LAST if self.shared else layer, head), [])

    def fit(self, layer: int) -> np.ndarray:
        """Return the sum of each head's lines, each as high as its weight: ``(h, i, j)``."""
        heads = self.heads[layer]
        total = np.zeros((len(heads), *map(len, self.near.labels(self.site))))
        for head, lines in enumerate(heads):
            kept = self.kept(layer, head)
            weights = {x.line: 0.0 if x.note in BARE else x.weight for x in kept}
            for line in lines:
                cells = cells_of(line, self.site, self.near)
                total[head] += weights.get(line.label(self.site), 0.0) * cells
        return total

    def bias(self, layer: int) -> np.ndarray:
        """Return the bias of each head on the longer problem: ``(h, I, J)``."""
        return self.lines.matrix(self.site, layer, self.far.source, self.far.rows)

    def note(self, layer: int, head: int) -> str:
        """Return what stands over a head: what its lines read, or how many they are."""
        lines = {line.label(self.site): line for line in self.heads[layer][head]}
        names = {x: reads(line, self.site, self.far) for x, line in lines.items()}
        kept = [entry.line for entry in self.kept(layer, head) if entry.note not in BARE]
        elsewhere = self.lines.elsewhere(self.site, layer)
        if not lines and elsewhere and elsewhere[head]:
            return f"{NO_LINE} here"  # of a stream: it reads at the other site
        if not kept:
            read = ", ".join(filter(None, names.values()))
            return f"{NO_LINE}, reads {read}" if read else NO_LINE
        if len(kept) > 2:
            return counted(len(kept), "lines")
        read = ", ".join(names.get(x) or "" for x in kept)
        if all(map(names.get, kept)):
            return f"reads {read}"
        return ", ".join(kept).replace(END.label("cross"), "& in y0").replace("-", "−")


def reads(line: Line, site: Site, problem: Problem) -> str:
    """Say which token a line names for the query of column t: ``a[t-1]``, or ``+`` at any t.

    Measured in the middle of a problem. Empty where an output has several rows, and in an encoder
    unless all queries read one token: they are not counted by t.
    """
    steps = sum(problem.rows)
    keys, middle = problem.labels(site)[1], min(steps // 2, steps - 2)
    cells = cells_of(line, site, problem)
    if site == "encoder":
        return " ".join(keys[key] for key in np.flatnonzero(cells.all(0)))
    named = [np.flatnonzero(cells[row]) for row in (middle, middle + 1)]
    if len(problem.rows) > 1 or not all(map(len, named)):
        return ""
    first, second = (keys[key[0]] for key in named)
    parts = [re.fullmatch(r"([a-z]?)(\d+)", name) for name in (first, second)]
    if first == second or parts[0] is None or parts[1] is None:
        return first if first == second else ""
    name, column = parts[0][1], int(parts[0][2])
    origin, offset = "t", column - middle
    if int(parts[1][2]) < column:  # counted from the first digit
        origin, offset = "end-t", column + middle - max(problem.source.widths)
    position = origin + (f"{offset:+d}" if offset else "")
    return f"{name}[{position}]" if name else f"word {position}"


def is_calibrated(run: Run) -> bool:
    """Has a run a bias?"""
    return (run.path / "bias.safetensors").is_file()


def averaged_attention(run: Run) -> dict[Site, np.ndarray]:
    """Return the attention ``(layers, h, i, j)`` that a calibration stored, or measure it."""
    if is_calibrated(run):
        return stored(run.path / "bias.safetensors")
    model = run.load_model()
    return average_attention(model, full_length(run.data, SAMPLES, model))


def averaged_problem(run: Run, steps: int, keys: int) -> Problem:
    """Return the problem whose attention over ``keys`` in ``steps`` queries was averaged.

    The most common one among the training problems of that shape; ``AbcError`` if there is none.
    """
    data, pad = run.data, run.data.vocabulary.pad
    batch = data.training(UNREACHED_STEP + 1, SAMPLES, exact=True)
    sizes = torch.stack([x.ne(pad).sum(1) for x in (batch.source, batch.target)], 1)
    alike = sizes.eq(torch.tensor([keys, steps])).all(1).nonzero()
    problems = Counter(problem_of(data, batch.take(row)) for row in alike)
    if not problems:
        raise AbcError(
            f"{run}: attention over {keys} source tokens, but {run.task.name} of "
            f"{data.length} {run.task.unit} has {data.layout_at(data.length).keys}: calibrate again"
        )
    ((problem, _),) = problems.most_common(1)
    return problem


def far_problem(run: Run, near: Problem, digits: int) -> Problem:
    """Return the problem of ``digits`` digits that the bias is drawn for."""
    data = run.data
    if data.vocabulary.tokens.rows:
        return problem_of(data, data.test(digits, 1))
    layout, (steps,) = data.layout_at(digits), near.rows
    if isinstance(data, PairData):  # which has bounds of output steps alone
        extra_steps = max(layout.widths) - max(near.source.widths)
    else:
        far = data.output_steps(layout.widths[0])
        extra_steps = far - data.output_steps(near.source.widths[0])
    return replace(near, source=layout, rows=(max(2, steps + extra_steps),))


def problem_of(data: Data, batch: Batch) -> Problem:
    """Return the shape of the first problem of a batch."""
    vocabulary, target = data.vocabulary, batch.target[0].numpy()
    closes = np.flatnonzero(np.isin(target, [*vocabulary.tokens.rows, vocabulary.eos]))
    rows = np.diff(closes, prepend=-1).tolist()
    unit = data.task.unit if data.task.unit in ("words", "tokens") else "digits"
    end = vocabulary.symbols[vocabulary.eos]
    return Problem(data.layout(batch.problems), tuple(rows), end, unit)


def cells_of(line: Line, site: Site, problem: Problem) -> np.ndarray:
    """Return which keys a line names for each query: ``(i, j)`` bool."""
    alone = LineBias({site: (((line,),),)})
    return np.isfinite(alone.matrix(site, 0, problem.source, problem.rows)[0])


def kept_lines(run: Run) -> KeptLines:
    """Read the kept lines of a calibrated run; of one without their table, each has weight 1.

    The models that come with the program have none: their lines are in their bias alone.
    """
    path, table = run.path / TABLE, KeptLines()
    if not path.is_file():
        bare = sinks(len(run.data.layout_at(1).parts))
        for site, layer, head, lines in run.bias().each():
            table[site, layer, head] = [
                LineRow(site, layer, head, x.label(site), 1.0, x.value, "sink" * (x == bare[site]))
                for x in lines
            ]
        return table
    for row in csv.DictReader(io.StringIO(read_text(path))):
        at = row["site"], int(row["layer"]), int(row["head"])
        numbers = float(row["weight"]), float(row["value"])
        table.setdefault(at, []).append(LineRow(*at, row["line"], *numbers, row["note"]))
    return table
