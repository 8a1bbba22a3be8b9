"""The averaged attention and the lines of a run, as arrays: what figures and the page show."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from abc_calib.calibration.capture import average_attention
from abc_calib.calibration.fits.base import LineRow
from abc_calib.calibration.pipeline import full_length
from abc_calib.config import CalibrationOptions
from abc_calib.data import Data
from abc_calib.errors import AbcError
from abc_calib.files import read_text
from abc_calib.geometry import Heads, Layout, Site
from abc_calib.geometry.coords import Coords, View, coords
from abc_calib.geometry.layout import read_labels, written_labels
from abc_calib.nn.attend import MASKED
from abc_calib.nn.lines import Lines
from abc_calib.runs import Run
from abc_calib.text import counted
from tasks.rows import ROW

TABLE = "lines.csv"
LAST = -1
"""The layer of a table whose lines come from the last layer and serve all of them."""


KeptLines = dict[tuple[str, int, int], list[LineRow]]
"""The kept lines by site, layer and head."""


@dataclass(frozen=True)
class Problem:
    """The shape of one problem: its source, and how many tokens are written.

    ``closes``: where the output has several rows, the positions of what closes them.
    """

    source: Layout
    steps: int
    closes: tuple[int, ...] = ()

    @property
    def digits(self) -> int:
        """How long the problem is: the width of its first operand."""
        return self.source.widths[0]

    def labels(self, site: Site) -> tuple[list[str], list[str]]:
        """Names of the rows and of the keys at a site."""
        source = self.source.labels()
        if site == "encoder":
            return source, source
        start, end = self.source.delimiters[0], self.source.delimiters[-1]
        keys = read_labels(self.steps, start) if site == "self" else source
        rows = written_labels(self.steps, end)
        for close in self.closes:
            rows[close] = ROW
            if site == "self":
                keys[close + 1] = ROW
        return rows, keys

    def view(self, site: Site) -> View:
        """Where the queries and keys of a site stand."""
        source = self._at(self.source.keys, self.source.closes, output=False)
        opens = tuple(close + 1 for close in self.closes)  # what closes a row opens the next one
        output = self._at(self.steps, opens, output=True)
        if site == "cross":
            return View(site, output, source)
        at = output if site == "self" else source
        return View(site, at, at, causal=site == "self")

    @staticmethod
    def _at(tokens: int, delimiters: tuple[int, ...], output: bool) -> Coords:
        ids = torch.zeros(1, tokens, dtype=torch.long)
        ids[0, torch.tensor(delimiters, dtype=torch.long)] = 1
        return coords(ids, (1,), output=output)


# Lines as matrices


def dense(
    heads: Heads,
    view: View,
    off: float | None = None,
    elsewhere: Heads | None = None,
) -> np.ndarray:
    """The bias of one layer as ``(h, i, j)``: -inf on closed keys and on those not yet written."""
    heads_by_site: dict[Site, Heads] = {view.site: heads}
    if elsewhere is not None:
        heads_by_site["self" if view.site == "cross" else "cross"] = elsewhere
    matrix = Lines(heads_by_site, off).dense([view]).masked_fill(~view.mask, MASKED)
    values = matrix[0].double().numpy()
    return np.where(values <= MASKED / 2, -np.inf, values)


def line_sum(heads: Heads, kept: Sequence[Sequence[LineRow]], view: View) -> np.ndarray:
    """The sum of each head's lines, each as high as its weight: ``(h, i, j)``."""
    site, row = view.site, np.arange(view.queries.size)
    total = np.zeros((len(heads), len(row), view.keys.size))
    for head, lines in enumerate(heads):
        weights = {entry.line: entry.weight for entry in kept[head]}
        for line in lines:
            name = line.label(site)
            if name not in weights:
                raise AbcError(
                    f"lines.csv has no weight for {name} of {site} head {head}: calibrate again"
                )
            key, outside = Lines({site: ((line,),)}).positions(view)
            inside = ~outside[0, 0, :, 0].expand(len(row)).numpy()
            columns = key[0, 0, :, 0].expand(len(row)).numpy()
            total[head, row[inside], columns[inside]] += weights[name]
    return total


def note_of(kept: Iterable[LineRow]) -> str:
    """What stands over a panel: its line, or how many there are."""
    lines = [entry for entry in kept if entry.note != "transparent"]
    if len(lines) > 1:
        return counted(len(lines), "lines")
    if not lines:
        return "no line"
    text = f"{lines[0].line} {lines[0].note}".strip()
    return text.replace("-", "−").replace("segment", "seg.")


# Files


def measured(run: Run) -> dict[Site, np.ndarray]:
    """The averaged attention of a trained model on training samples."""
    model = run.load_model()
    return average_attention(model, full_length(run.data, CalibrationOptions().samples, model))


def problems(
    run: Run, attention: dict[Site, np.ndarray], extend_to: int
) -> tuple[Problem, Problem]:
    """The problem that was averaged over, and the one that the bias is drawn for."""
    steps, keys = attention["cross"].shape[-2:]
    shape = run.data.layout_at
    if run.data.vocabulary.tokens.rows:
        size = run.data.size
        return in_rows(run.data, size, steps, run), in_rows(run.data, extend_to)
    near = shape(run.data.length)
    if near.words:
        near = shape(keys - 2)
    if near.keys != keys:
        raise AbcError(
            f"{run}: attention over {keys} source tokens, but {run.task.name} of "
            f"{run.data.length} {run.task.unit} has {near.keys}: calibrate again"
        )
    far = shape(extend_to)
    extra = run.data.output_steps(far.widths[0]) - run.data.output_steps(near.widths[0])
    return Problem(near, steps), Problem(far, max(1, steps + extra))


def in_rows(data: Data, size: Any, steps: int | None = None, run: Run | None = None) -> Problem:
    """A problem of a size whose output has several rows, of ``steps`` rows if given."""
    batch = data.test(size, 1 if steps is None else 200)
    lengths = batch.target.ne(data.vocabulary.pad).sum(1)
    matching = [row for row, length in enumerate(lengths.tolist()) if steps in (None, length)]
    if not matching:
        raise AbcError(f"{run}: attention over {steps} steps is of no problem of its size")
    sample = batch.take(torch.tensor(matching[:1]))
    target = sample.target[0, : int(lengths[matching[0]])]
    closes = [i for i, token in enumerate(target.tolist()) if token in data.vocabulary.tokens.rows]
    return Problem(data.layout(sample.problems), len(target), tuple(closes))


def kept_lines(run: Run) -> KeptLines:
    """The kept lines of a calibrated run; of one without their table, each with weight 1.

    The models that come with the program have none: their lines are in their bias alone.
    ``AbcError`` says what is wrong with a table.
    """
    record = run.path / "calibration.json"
    if record.is_file() and TABLE not in json.loads(read_text(record)).get("files", {TABLE: 0}):
        return {
            (site, k, h): [LineRow(site, k, h, x.label(site), 1.0, x.value) for x in lines]
            for site, k, h, lines in run.bias().each()
        }
    path, table = run.path / TABLE, KeptLines()
    try:
        for row in csv.DictReader(io.StringIO(read_text(path))):
            at = row["site"], int(row["layer"]), int(row["head"])
            numbers = float(row["weight"]), float(row["value"])
            table.setdefault(at, []).append(LineRow(*at, row["line"], *numbers, row["note"]))
    except FileNotFoundError:
        raise AbcError(f"there is no table of lines at {path}: run abc calibrate first") from None
    except (OSError, KeyError, TypeError, ValueError, csv.Error) as error:
        raise AbcError(f"{path} cannot be read ({error!r}): calibrate again") from None
    return table
