"""From a run folder to its heatmaps: reads the files of the run, writes figures and arrays."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
from matplotlib.figure import Figure

from abc_calib.calibration.fits.base import LineRow
from abc_calib.config import FigureOptions, build, documented
from abc_calib.config.keywords import HeatmapFiguresKeywords, HeatmapKeywords
from abc_calib.errors import UsageError
from abc_calib.evaluation.predict import Answer, answered
from abc_calib.files import make_folder, write_atomically
from abc_calib.geometry import SITES, Heads, LineBias, Site
from abc_calib.geometry.bias import stored
from abc_calib.nn.base import Attention, Model
from abc_calib.nn.build import model_type
from abc_calib.progress import bar
from abc_calib.reporting.attention import (
    LAST,
    KeptLines,
    Problem,
    dense,
    kept_lines,
    line_sum,
    measured,
    note_of,
    problems,
)
from abc_calib.reporting.heatmaps import (
    ACROSS,
    MOST_ACROSS,
    MOST_TOKENS,
    Block,
    Marks,
    heatmaps,
    on_pages,
)
from abc_calib.reporting.style import check_formats, font, save_figures
from abc_calib.runs import Run

MOST = 1000
"""Tokens of source and output whose attention is drawn."""
PARTS = {"encoder": "encoder self", "self": "decoder self", "cross": "cross"}


@documented(FigureOptions)
def heatmap(
    run: Run | Path | str | None,
    out: Path | str,
    *,
    progress: bool | None = None,
    options: FigureOptions | None = None,
    **keywords: Unpack[HeatmapKeywords],
) -> list[Path]:
    """Draw every layer of some sites of a run into the folder ``out``; returns the files written.

    Of a calibrated run, ``bias-SITE-layerN``: the averaged attention, the lines kept from it,
    and the bias they make on problems of ``digits`` digits. Of a run without a bias,
    ``attention-SITE-layerN``, measured on training samples. A ``SITE.npz`` holds what was drawn:
    ``attention`` and ``fit`` ``(layers, h, i, j)``, ``bias`` ``(layers, h, I, J)`` and the labels
    of their rows and keys. Other keywords draw less, or one source (``input-SITE-layerN``).
    ``options``: all options as an object, instead of keywords. Raises ``UsageError`` for an unknown
    format or site or more than 500 digits, and ``AbcError`` for files that are missing or do not
    belong together.
    """
    asked = options or build(FigureOptions, **keywords)
    check_formats(asked.format)
    found, paths = with_heads(run), list[Path]()
    with font(asked.font), bar("drawing", progress, "figures") as update:
        views = views_of(found, asked)
        folder = Path(out)
        make_folder(folder)
        total = sum(len(view.layers) for view in views)
        for view in views:
            for name, figure in view.figures():
                update(len(paths) // max(len(asked.format), 1), total, name)
                paths += save_figures(figure, folder / name, asked.format)
            paths.append(folder / f"{view.stem}{view.site}.npz")
            write_atomically(paths[-1], partial(np.savez_compressed, **view.arrays))
    return paths


@documented(FigureOptions, without=("format",))
def heatmap_figures(
    run: Run | Path | str | None = None, **options: Unpack[HeatmapFiguresKeywords]
) -> dict[str, Figure]:
    """The heatmaps of a run as matplotlib figures, by name."""
    asked = build(FigureOptions, **options)
    with font(asked.font):
        views = views_of(with_heads(run), asked)
        found = [pair for view in views for pair in view.figures()]
        for _, figure in found:
            figure.draw_without_rendering()  # names on axes are made now, in this font
    return dict(found)


def with_heads(run: Run | Path | str | None) -> Run:
    """The run, if its model has heads; ``UsageError`` otherwise."""
    found = Run.open(run)
    if reason := model_type(found.config.kind).no_lines:
        raise UsageError(f"{found} has no heads to show ({reason}): abc inspect --input")
    return found


def watched(run: Run, model: Model, source: str) -> tuple[Answer, Attention]:
    """The attention while ``model`` answers ``source``; ``UsageError`` where it is too long."""
    batch = run.data.lay_out(run.data.task.parse(source))
    if batch.source.shape[1] + batch.target.shape[1] > MOST:
        raise UsageError(f"--input of {len(source)} characters: give a shorter source to draw")
    found = answered(model, run.data, source)
    with torch.inference_mode():
        return found, found.attention(model)


def views_of(run: Run, asked: FigureOptions) -> list[View]:
    """What is drawn of a run: a view for each site, checked."""
    for site in asked.sites:
        if site not in SITES:
            raise UsageError(f"unknown site {site!r}: choose one of {', '.join(SITES)}")
    if asked.panel in ("fit", "bias") and (asked.input is not None or not _is_calibrated(run)):
        what = "one source has" if asked.input is not None else f"{run} has"
        raise UsageError(f"--panel {asked.panel}: {what} attention alone; leave it out")
    source = asked.input
    found = averaged(run, asked) if source is None else _of_source(run, asked, source)
    wanted = [site for site in SITES if site in asked.sites]
    if missing := [site for site in wanted if site not in found]:
        raise UsageError(f"{run} has no {missing[0]}-attention: choose {', '.join(found)}")
    for site in wanted:
        found[site].check()
    return [found[site] for site in wanted]


def _is_calibrated(run: Run) -> bool:
    return (run.path / "bias.safetensors").is_file()


def averaged(run: Run, asked: FigureOptions) -> dict[Site, View]:
    """The attention averaged over samples by site, and the lines of a calibrated run."""
    calibrated = _is_calibrated(run)
    attention = stored(run.path / "bias.safetensors") if calibrated else measured(run)
    near, far = problems(run, attention, asked.digits)
    lines = Lines(run.bias(), kept_lines(run), near, far) if calibrated else None
    what = f"averaged attention, {near.digits} digits, teacher forcing"
    return {
        site: View(run.config.task, site, weights, *near.labels(site), what, asked, lines)
        for site, weights in attention.items()
    }


def _of_source(run: Run, asked: FigureOptions, source: str) -> dict[Site, View]:
    """The attention on one source while the model writes its answer."""
    seen, attention = watched(run, run.load_model(), source)
    layout = Problem(run.data.layout(seen.problems), len(seen.ids))
    tokens, output = seen.tokens(run.data), seen.symbols(run.data)
    right = [i for i in seen.batch.target[0].tolist() if i != run.data.vocabulary.pad]
    wrong = [at for at, token in enumerate(seen.ids) if right[at : at + 1] != [token]]
    longer, length = max(layout.source.widths) > run.data.length, run.data.length
    views: dict[Site, View] = {}
    for site, layers in attention.weights.items():
        rows, keys = layout.labels(site)
        ends = [beyond(labels, length) if longer else [] for labels in (rows, keys)]
        marks = Marks(length, ends[0], ends[1], () if site == "encoder" else wrong)
        if len(tokens) <= MOST_TOKENS:
            rows = tokens if site == "encoder" else output
            keys = [tokens[0], *output[:-1]] if site == "self" else tokens
        if layers:
            weights = torch.stack(list(layers))[:, 0].double().numpy()
            what = f"attention on {source}, reading its own output (no teacher forcing)"
            views[site] = View(run.config.task, site, weights, rows, keys, what, asked, marks=marks)
    return views


def beyond(labels: Sequence[str], length: int) -> list[float]:
    """The places between tokens of a column below ``length`` and neighbours of others."""
    found = (re.search(r"\d+", label) for label in labels)
    inside = [int(number[0]) < length if number else None for number in found]
    return [at + 0.5 for at, pair in enumerate(pairwise(inside)) if {*pair} == {True, False}]


@dataclass(frozen=True)
class Lines:
    """What a calibrated run draws besides its attention."""

    bias: LineBias
    table: KeptLines
    near: Problem
    far: Problem


@dataclass(frozen=True)
class View:
    """One site of a run: its ``attention (layers, h, i, j)`` and the names of rows and keys."""

    task: str
    site: Site
    attention: np.ndarray
    rows: Sequence[str]
    keys: Sequence[str]
    what: str
    asked: FigureOptions
    lines: Lines | None = None
    marks: Marks | None = None

    def check(self) -> None:
        """``UsageError`` for a layer or head that it does not have."""
        for name, given, count in (
            ("layer", self.asked.layer, len(self.attention)),
            ("head", self.asked.head, self.attention.shape[1]),
        ):
            if given is not None and given >= count:
                raise UsageError(
                    f"--{name} {given}: {self.site}-attention has {name}s 0 to {count - 1}"
                )

    @property
    def layers(self) -> Sequence[int]:
        return range(len(self.attention)) if self.asked.layer is None else [self.asked.layer]

    @property
    def heads(self) -> list[int]:
        return [*range(self.attention.shape[1])] if self.asked.head is None else [self.asked.head]

    @property
    def stem(self) -> str:
        """What the names of its files begin with, apart from the kind of figure."""
        return "" if self.asked.input is None else "input-"

    @property
    def across(self) -> int:
        """Heads side by side."""
        return ACROSS if self.lines is None else MOST_ACROSS

    def figures(self) -> Iterator[tuple[str, Figure]]:
        """Each layer's figures with the names of their files: several where heads fill a page."""
        kind = self.stem or ("bias-" if self.lines is not None else "attention-")
        head = "" if self.asked.head is None else f"-head{self.asked.head}"
        panel = "" if self.asked.panel is None else f"-{self.asked.panel}"
        for layer in self.layers:
            title, blocks = self.blocks(layer)
            parts = on_pages(blocks, self.across, self.asked.inches)
            for part in parts:
                some = f"-heads{part.start}-{part.stop - 1}" if len(parts) > 1 else ""
                figure = heatmaps(
                    [b.of(part) for b in blocks], title, self.across, self.asked.inches
                )
                yield f"{kind}{self.site}-layer{layer}{head}{some}{panel}", figure

    @property
    def arrays(self) -> dict[str, Any]:
        """What is drawn, of all layers and heads."""
        found: dict[str, Any] = {"attention": self.attention}
        if self.lines is not None:
            layers = range(len(self.attention))
            parts = [self._fit_and_bias(self.lines, layer) for layer in layers]
            found["fit"], found["bias"] = (np.stack(part) for part in zip(*parts, strict=True))
            rows, keys = self.lines.far.labels(self.site)
            found |= {"bias_row_labels": np.array(rows), "bias_key_labels": np.array(keys)}
        return {**found, "row_labels": np.array(self.rows), "key_labels": np.array(self.keys)}

    def figure(self, layer: int) -> Figure:
        """One figure of all heads of a layer."""
        title, blocks = self.blocks(layer)
        return heatmaps(blocks, title, self.across, self.asked.inches)

    def blocks(self, layer: int) -> tuple[str, list[Block]]:
        """A title, and what is drawn of a layer: attention, then lines and bias if it has some."""
        name = self.task.replace("_", " ").capitalize()
        title = f"{name}, {PARTS[self.site]}-attention, layer {layer}"
        chosen, lines, only = self.heads, self.lines, self.asked.panel
        shown = self._visible(self.attention[layer])[chosen]
        near = Block(shown, self.rows, self.keys, numbers=chosen, marks=self.marks)
        if lines is None:
            return f"{title}: {self.what}" if self.asked.title else "", [near]
        fit, bias = self._fit_and_bias(lines, layer)
        kept, open_ = self.kept(layer), {*lines.bias.transparent()}
        shared = ", found in the last layer" if (self.site, LAST, 0) in lines.table else ""
        both: dict[str, Any] = {"numbers": chosen}
        both["transparent"] = [(self.site, layer, head) in open_ for head in chosen]
        fitted = Block(
            self._visible(fit)[chosen],
            self.rows,
            self.keys,
            heading=f"sum of the kept lines{shared}",
            notes=[note_of(kept[head]) for head in chosen],
            additive=False,
            **both,
        )
        heading = f"bias, {lines.far.digits} digits"
        blocks = {
            "attention": replace(near, heading=self.what, additive=False),
            "fit": fitted,
            "bias": Block(bias[chosen], *lines.far.labels(self.site), heading=heading, **both),
        }
        drawn = [
            replace(block, heading=f"({letter}) {block.heading}")
            for letter, block in zip("abc", blocks.values(), strict=True)
        ]
        return title if self.asked.title else "", [blocks[only]] if only else drawn

    def kept(self, layer: int) -> list[list[LineRow]]:
        """The kept lines of each head, or those of the last layer where they serve all."""
        table = self.lines.table if self.lines else {}
        at = LAST if (self.site, LAST, 0) in table else layer
        return [table.get((self.site, at, head), []) for head in range(self.attention.shape[1])]

    def lines_of(self, layer: int) -> Heads:
        """The lines of each head, of those without none."""
        found = self.lines.bias.heads(self.site, layer) if self.lines else None
        return found or ((),) * self.attention.shape[1]

    def _fit_and_bias(self, lines: Lines, layer: int) -> tuple[np.ndarray, np.ndarray]:
        heads = self.lines_of(layer)
        fit = line_sum(heads, self.kept(layer), lines.near.view(self.site))
        off, elsewhere = lines.bias.off_line_bias, lines.bias.elsewhere(self.site, layer)
        return fit, dense(heads, lines.far.view(self.site), off, elsewhere)

    def _visible(self, matrices: np.ndarray) -> np.ndarray:
        """``matrices (h, i, j)`` with -inf on keys that their row cannot see."""
        if self.site != "self":
            return matrices
        return np.where(np.tri(*matrices.shape[1:]) > 0, matrices, -np.inf)
