"""From a run folder to its heatmaps: reads the files of the run, writes figures and arrays."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from abc_calib.calibration.capture import average_attention
from abc_calib.calibration.pipeline import full_length
from abc_calib.config import CalibrationOptions
from abc_calib.errors import AbcError, UsageError
from abc_calib.files import check_regular, make_folder, read_text, write_atomically
from abc_calib.geometry import SITES, Heads, Layout, LineBias, Site
from abc_calib.geometry.layout import read_labels, written_labels
from abc_calib.nn.biases import MASKED, Frame, LayerBias
from abc_calib.nn.build import model_type
from abc_calib.reporting.heatmaps import bias_report, head_heatmaps
from abc_calib.reporting.style import check_formats, save_figures
from abc_calib.runs import Run

LAST = -1
"""The layer of a table whose lines come from the last layer and serve all of them."""

LONGEST = 500
"""Digits: more rows and keys than these make no image."""


@dataclass(frozen=True)
class Kept:
    """A kept line as the table of a run has it: ``weight`` is its share of the attention."""

    line: str
    weight: float
    note: str


KeptLines = dict[tuple[str, int, int], list[Kept]]
"""The kept lines by site, layer and head."""


@dataclass(frozen=True)
class Problem:
    """The shape of one problem: its source, and how many tokens are written."""

    source: Layout
    steps: int

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
        return written_labels(self.steps, end), keys

    def frame(self, site: Site) -> Frame:
        """Where the rows and keys of a site stand."""
        rows, keys = (len(labels) for labels in self.labels(site))
        places = None if site == "self" else torch.tensor([self.source.closes])
        return Frame(site, torch.arange(rows), keys, torch.tensor([keys]), places)


def draw_heatmaps(
    run: Run | Path | str | None,
    out_dir: Path | str,
    formats: Sequence[str] = ("pdf",),
    sites: Sequence[str] = ("self", "cross"),
    extend_to: int = 20,
) -> list[Path]:
    """Draw every layer of the given sites of a run; returns the files written.

    Of a calibrated run, ``bias-SITE-layerN``: the averaged attention, the lines kept from it,
    and the bias they make on problems of ``extend_to`` digits. Of a run without a bias,
    ``attention-SITE-layerN``, measured on training samples. Beside them a ``SITE.npz`` with
    what was drawn: ``attention`` and ``fit`` ``(layers, h, i, j)``, ``bias`` ``(layers, h, I, J)``
    and the labels of their rows and keys. Raises ``UsageError`` for an unknown format or
    site or more than 500 digits, and ``AbcError`` for files that are missing or do not belong
    together.
    """
    run = run if isinstance(run, Run) else Run.open(run)
    if reason := model_type(run.config.kind).no_lines:
        raise UsageError(f"{run} has no heads to draw ({reason}): abc inspect --input")
    check_formats(formats)
    for given in sites:
        if given not in SITES:
            raise UsageError(f"unknown site {given!r}: choose one of {', '.join(SITES)}")
    if not 1 <= extend_to <= LONGEST:
        raise UsageError(f"a heatmap of {extend_to} digits is not possible: choose 1 to {LONGEST}")
    wanted = [site for site in SITES if site in sites]
    path = run.path / "bias.safetensors"
    calibrated = path.is_file()
    attention = _stored(path) if calibrated else _measured(run)
    if missing := [site for site in wanted if site not in attention]:
        raise UsageError(f"{run} has no {missing[0]}-attention: choose {', '.join(attention)}")
    near, far = _problems(run, attention, extend_to)
    bias, table = (run.bias(), _table(run.path / "lines.csv")) if calibrated else (None, {})
    out_dir = Path(out_dir)
    make_folder(out_dir)
    paths: list[Path] = []
    for site in wanted:
        view = View(run.config.task, site, attention[site], near, far)
        paths += (
            view.write_bias(bias, table, out_dir, formats)
            if bias
            else view.write_attention(out_dir, formats)
        )
    return paths


@dataclass(frozen=True)
class View:
    """One site of a run: its ``attention (layers, h, i, j)`` on ``near`` problems."""

    task: str
    site: Site
    attention: np.ndarray
    near: Problem
    far: Problem

    def write_attention(self, out_dir: Path, formats: Sequence[str]) -> list[Path]:
        """Figures and arrays of a run without a bias."""
        rows, keys = self.near.labels(self.site)
        paths: list[Path] = []
        for layer, matrices in enumerate(self.attention):
            figure = head_heatmaps(
                self._visible(matrices),
                title=f"{self._title(layer)}: averaged attention, {self.near.digits} digits",
                row_labels=rows,
                key_labels=keys,
            )
            name = f"attention-{self.site}-layer{layer}"
            paths += save_figures(figure, out_dir / name, formats)
        return [*paths, self._arrays(out_dir, {"attention": self.attention})]

    def write_bias(
        self, bias: LineBias, table: KeptLines, out_dir: Path, formats: Sequence[str]
    ) -> list[Path]:
        """Figures and arrays of a calibrated run."""
        rows, keys = self.near.labels(self.site)
        far_rows, far_keys = self.far.labels(self.site)
        fits, biases, paths = [], [], []
        for layer, matrices in enumerate(self.attention):
            heads = bias.heads(self.site, layer) or ((),) * len(matrices)
            shared = (self.site, LAST, 0) in table
            kept = [
                table.get((self.site, LAST if shared else layer, h), []) for h in range(len(heads))
            ]
            fits.append(line_sum(heads, kept, self.site, self.near.frame(self.site)))
            biases.append(dense(heads, self.site, self.far.frame(self.site), bias.off_line_bias))
            figure = bias_report(
                self._visible(matrices),
                self._visible(fits[-1]),
                biases[-1],
                title=self._title(layer),
                row_labels=rows,
                key_labels=keys,
                bias_row_labels=far_rows,
                bias_key_labels=far_keys,
                headings=(
                    f"averaged attention, {self.near.digits} digits",
                    "sum of the kept lines" + (", found in the last layer" if shared else ""),
                    f"bias, {self.far.digits} digits",
                ),
                kept=[_note(lines) for lines in kept],
                transparent=[not lines for lines in heads],
            )
            paths += save_figures(figure, out_dir / f"bias-{self.site}-layer{layer}", formats)
        arrays = {
            "attention": self.attention,
            "fit": np.stack(fits),
            "bias": np.stack(biases),
            "bias_row_labels": np.array(far_rows),
            "bias_key_labels": np.array(far_keys),
        }
        return [*paths, self._arrays(out_dir, arrays)]

    def _title(self, layer: int) -> str:
        part = {"encoder": "encoder self", "self": "decoder self", "cross": "cross"}[self.site]
        return f"{self.task.capitalize()}, {part}-attention, layer {layer}"

    def _visible(self, matrices: np.ndarray) -> np.ndarray:
        """``matrices (h, i, j)`` with -inf on keys that their row cannot see."""
        return np.where(self.near.frame(self.site).mask()[0].numpy(), matrices, -np.inf)

    def _arrays(self, out_dir: Path, arrays: dict[str, np.ndarray]) -> Path:
        rows, keys = (np.array(labels) for labels in self.near.labels(self.site))
        path = out_dir / f"{self.site}.npz"
        named = {**arrays, "row_labels": rows, "key_labels": keys}
        write_atomically(path, lambda made: np.savez_compressed(made, **named))  # type: ignore[arg-type]
        return path


# Lines as matrices


def dense(heads: Heads, site: Site, frame: Frame, off: float | None = None) -> np.ndarray:
    """The bias of one layer as ``(h, i, j)``: -inf on closed keys and on those not yet written."""
    matrix = LayerBias(heads, site, off).dense(frame).masked_fill(~frame.mask(), MASKED)
    values = matrix[0].double().numpy()
    return np.where(values <= MASKED / 2, -np.inf, values)


def line_sum(heads: Heads, kept: Sequence[Sequence[Kept]], site: Site, frame: Frame) -> np.ndarray:
    """The sum of each head's lines, each as high as its weight: ``(h, i, j)``."""
    total = np.zeros((len(heads), len(frame.rows), frame.keys))
    row = np.arange(len(frame.rows))
    for head, lines in enumerate(heads):
        weights = {entry.line: entry.weight for entry in kept[head]}
        for line in lines:
            name = line.label(site)
            if name not in weights:
                raise AbcError(
                    f"lines.csv has no weight for {name} of {site} head {head}: calibrate again"
                )
            key, outside = LayerBias(((line,),), site).positions(frame)
            inside = ~outside[0, 0, :, 0].expand(len(row)).numpy()
            columns = key[0, 0, :, 0].expand(len(row)).numpy()
            total[head, row[inside], columns[inside]] += weights[name]
    return total


def _note(kept: Iterable[Kept]) -> str:
    """What stands over a panel: its line, or how many there are."""
    lines = [entry for entry in kept if entry.note != "transparent"]
    if len(lines) > 1:
        return f"{len(lines)} lines"
    if not lines:
        return "no line"
    return f"{lines[0].line}\n{lines[0].note}".replace("-", "−")


# Files


def _stored(path: Path) -> dict[Site, np.ndarray]:
    """The averaged attention that calibration left beside its lines."""
    try:
        check_regular(path)
        with safe_open(path, "numpy") as file:
            names = set(file.keys())
            held: dict[Site, str] = {site: f"attention.{site}" for site in SITES}
            found = {site: file.get_tensor(a) for site, a in held.items() if a in names}
    except (OSError, SafetensorError, ValueError) as error:
        raise AbcError(f"{path} is not a bias file ({error}): calibrate again") from None
    if not found:
        raise AbcError(f"{path} holds no averaged attention: calibrate again")
    return found


def _measured(run: Run) -> dict[Site, np.ndarray]:
    """The averaged attention of a trained model on training samples."""
    model = run.load_model()
    return average_attention(model, full_length(run.data, CalibrationOptions().samples, model))


def _problems(
    run: Run, attention: dict[Site, np.ndarray], extend_to: int
) -> tuple[Problem, Problem]:
    """The problem that was averaged over, and the one that the bias is drawn for."""
    steps, keys = attention["cross"].shape[-2:]
    shape = run.data.layout_at
    near = shape(run.data.length)
    if near.words:
        near = shape(keys - 2)
    if near.keys != keys:
        raise AbcError(
            f"{run}: attention over {keys} source tokens, but {run.task.name} of "
            f"{run.data.length} {run.task.unit} has {near.keys}: calibrate again"
        )
    far = shape(extend_to)
    more = run.data.output_steps(far.widths[0]) - run.data.output_steps(near.widths[0])
    return Problem(near, steps), Problem(far, max(1, steps + more))


def _table(path: Path) -> KeptLines:
    """The table of kept lines; ``AbcError`` says what is wrong with it."""
    found: KeptLines = {}
    try:
        for row in csv.DictReader(io.StringIO(read_text(path))):
            at = row["site"], int(row["layer"]), int(row["head"])
            kept = Kept(row["line"], float(row["weight"]), row["note"])
            found.setdefault(at, []).append(kept)
    except FileNotFoundError:
        raise AbcError(f"there is no table of lines at {path}: run abc calibrate first") from None
    except (OSError, KeyError, TypeError, ValueError, csv.Error) as error:
        raise AbcError(f"{path} cannot be read ({error!r}): calibrate again") from None
    return found
