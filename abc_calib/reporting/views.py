"""From a run folder to its heatmaps: reads the files of the run, writes figures and arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from abc_calib.config import FigureOptions, build
from abc_calib.errors import AbcError, UsageError
from abc_calib.evaluation.predict import answered
from abc_calib.files import make_folder, write_atomically
from abc_calib.geometry import SITES, Site
from abc_calib.nn.build import model_type
from abc_calib.progress import bar
from abc_calib.reporting.attention import (
    SiteLines,
    averaged_attention,
    averaged_problem,
    far_problem,
    is_calibrated,
    kept_lines,
)
from abc_calib.reporting.heatmaps import Block, heatmaps
from abc_calib.reporting.style import font, save_figures
from abc_calib.runs import Run
from abc_calib.runs.run import STAGES

SITE_NAMES = {"encoder": "encoder self", "self": "decoder self", "cross": "cross"}
MOST = 1000
"""Tokens of source and output whose attention is drawn."""


@dataclass(frozen=True)
class AttentionView:
    """One site of a run: its ``attention (layers, h, i, j)`` and the names of rows and keys.

    ``about``: what the attention is of. ``lines``: of a calibrated run.
    """

    task: str
    site: Site
    attention: np.ndarray
    rows: Sequence[str]
    keys: Sequence[str]
    about: str
    lines: SiteLines | None = None

    def layers(self, options: FigureOptions) -> Sequence[int]:
        """Return the layers to draw; ``UsageError`` for a layer or head that it does not have."""
        counts = dict(zip(("layer", "head"), self.attention.shape, strict=False))
        for name, count in counts.items():
            number = getattr(options, name)
            if number is not None and number >= count:
                raise UsageError(
                    f"--{name} {number}: {self.site}-attention has {name}s 0 to {count - 1}"
                )
        return range(len(self.attention)) if options.layer is None else [options.layer]

    def figures(self, options: FigureOptions) -> Iterator[tuple[str, Figure]]:
        """Yield the name of each layer's file, and its figure."""
        kind = "bias-" if self.lines else "attention-" if options.input is None else "input-"
        head = "" if options.head is None else f"-head{options.head}"
        panel = "" if options.panel is None else f"-{options.panel}"
        for layer in self.layers(options):
            yield f"{kind}{self.site}-layer{layer}{head}{panel}", self.figure(layer, options)

    @property
    def arrays(self) -> dict[str, Any]:
        """What is drawn, of all layers and heads."""
        arrays: dict[str, Any] = {"attention": self.attention}
        if lines := self.lines:
            layers = range(len(lines.heads))
            arrays["fit"] = np.stack([lines.fit(layer) for layer in layers])
            arrays["bias"] = np.stack([lines.bias(layer) for layer in layers])
            names = map(np.array, lines.far.labels(self.site))
            arrays |= zip(("bias_row_labels", "bias_key_labels"), names, strict=True)
        return {**arrays, "row_labels": np.array(self.rows), "key_labels": np.array(self.keys)}

    def figure(self, layer: int, options: FigureOptions) -> Figure:
        """Draw the heads of a layer: attention, and of a calibrated run its lines and its bias."""
        title = f"{self.task.replace('_', ' ').capitalize()}, {SITE_NAMES[self.site]}-attention"
        title = f"{title}, layer {layer}" + ("" if self.lines else f": {self.about}")
        blocks, across = self._blocks(layer, options), 8 if self.lines else 4
        return heatmaps(blocks, title if options.title else "", across, options.inches)

    def _blocks(self, layer: int, options: FigureOptions) -> list[Block]:
        count = self.attention.shape[1]
        heads = [*range(count)] if options.head is None else [options.head]
        attention = Block(
            self._visible(self.attention[layer])[heads], self.rows, self.keys,
            names=[f"head {head}" for head in heads],
        )  # fmt: skip
        if (lines := self.lines) is None:
            return [attention]
        attention = replace(attention, heading=self.about)
        where = ", found in the last layer" * lines.shared
        fit = replace(
            attention,
            matrices=self._visible(lines.fit(layer))[heads],
            notes=[lines.note(layer, head) for head in heads],
            heading=f"lines that were kept{where}; what they read at column t",
        )
        rows, keys = lines.far.labels(self.site)
        bias = replace(
            fit, matrices=lines.bias(layer)[heads], row_labels=rows, key_labels=keys,
            heading=f"bias, {lines.far.size}", additive=True,
        )  # fmt: skip
        panels = {"attention": attention, "fit": fit, "bias": bias}
        if options.panel is not None:
            chosen = panels[options.panel]
            return [chosen if options.title else replace(chosen, heading="")]
        what = [note.replace("reads ", "") for note in fit.notes]
        notes = [f"{head}: {read}" for head, read in zip(heads, what, strict=True)]
        panels["fit"] = replace(fit, names=[""] * len(heads), notes=notes)
        panels["bias"] = replace(bias, notes=())
        return [
            replace(block, heading=f"({letter}) {block.heading}")
            for letter, block in zip("abc", panels.values(), strict=True)
        ]

    def _visible(self, matrices: np.ndarray) -> np.ndarray:
        """``matrices (h, i, j)`` with -inf on keys that their row cannot see."""
        if self.site != "self":
            return matrices
        return np.where(np.tri(*matrices.shape[1:]) > 0, matrices, -np.inf)


def heatmap(
    run: Run | Path | str | None,
    out: Path | str,
    *,
    progress: bool | None = None,
    options: FigureOptions | None = None,
    **keywords: Any,
) -> list[Path]:
    """Draw every layer of some sites of a run into the folder ``out``; returns the files written.

    Of a calibrated run, ``bias-SITE-layerN``: the averaged attention, the lines kept from it,
    and the bias they make on problems of ``digits`` digits. Of a run without a bias,
    ``attention-SITE-layerN``, measured on training samples. A ``SITE.npz`` holds what was drawn:
    ``attention`` and ``fit`` ``(layers, h, i, j)``, ``bias`` ``(layers, h, I, J)`` and the labels
    of their rows and keys. Other keywords draw less, or one source (``input-SITE-layerN``).
    ``options`` or ``keywords``: ``FigureOptions``. Raises ``UsageError`` for an unknown
    format or site or more than 500 digits, and ``AbcError`` for files that are missing or do not
    belong together.
    """
    options = options or build(FigureOptions, **keywords)
    folder, paths = Path(out), list[Path]()
    with font(options.font), bar("drawing", progress, "figures") as update:
        views = views_of(run, options)
        make_folder(folder)
        total, drawn = sum(len(view.layers(options)) for view in views), 0
        for view in views:
            for name, figure in view.figures(options):
                update(drawn, total, name)
                paths += save_figures(figure, folder / name, options.format)
                drawn += 1
            stem = "" if options.input is None else "input-"
            paths.append(folder / f"{stem}{view.site}.npz")
            write_atomically(paths[-1], partial(np.savez_compressed, **view.arrays))
    return paths


def heatmap_figures(run: Run | Path | str | None = None, **options: Any) -> dict[str, Figure]:
    """Draw the heatmaps of a run as matplotlib figures, by name; ``options``: ``FigureOptions``."""
    look = build(FigureOptions, **options)
    with font(look.font):
        figures = dict(pair for view in views_of(run, look) for pair in view.figures(look))
        for figure in figures.values():
            figure.draw_without_rendering()  # names on axes are made now, in this font
    return figures


def views_of(run: Run | Path | str | None, options: FigureOptions) -> list[AttentionView]:
    """Return what is drawn of a run, a view per site.

    Raises ``UsageError`` for a model without heads, and for what it does not have.
    """
    run = Run.open(run)
    if reason := model_type(run.config.kind).no_lines:
        raise UsageError(f"{run} has no heads to show ({reason}): abc inspect --input")
    if options.panel in ("fit", "bias") and (options.input is not None or not is_calibrated(run)):
        what = "one source has" if options.input is not None else f"{run} has"
        raise UsageError(f"--panel {options.panel}: {what} attention alone; leave it out")
    source = options.input
    if source is not None and "digits" in options.chosen:
        raise UsageError(
            "--digits is of the extended bias, which one source has none of: leave it out"
        )
    views = averaged(run, options.digits) if source is None else _of_source(run, source)
    sites = [site for site in SITES if site in options.sites]
    if missing := [site for site in sites if site not in views]:
        raise UsageError(f"{run} has no {missing[0]}-attention: choose {', '.join(views)}")
    for site in sites:
        views[site].layers(options)
    return [views[site] for site in sites]


def averaged(run: Run, digits: int) -> dict[Site, AttentionView]:
    """Return the attention averaged over samples by site, and the lines of a calibrated run.

    ``digits``: of the problem whose bias is drawn.
    """
    attention = averaged_attention(run)
    near = averaged_problem(run, *attention["cross"].shape[-2:])
    lines: dict[Site, SiteLines] = {}
    if is_calibrated(run):
        bias, table, far = run.bias(), kept_lines(run), far_problem(run, near, digits)
        lines = {site: SiteLines(bias, table, site, near, far) for site in bias.sites}
    whose = "averaged attention" + " of the first training" * bool(lines)
    about = f"{whose}, {near.size}, teacher forcing"
    return {
        site: AttentionView(
            run.config.task, site, weights, *near.labels(site), about, lines.get(site)
        )
        for site, weights in attention.items()
    }


@torch.inference_mode()
def _of_source(run: Run, source: str) -> dict[Site, AttentionView]:
    """The attention on one source while the model writes its answer."""
    data, model = run.data, run.load_model()
    batch = data.lay_out(data.task.parse(source))
    if batch.source.shape[1] + batch.target.shape[1] > MOST:
        raise UsageError(f"--input of {len(source)} characters: give a shorter source to draw")
    answer = answered(model, data, source)
    if not answer.ids:
        raise AbcError(f"{run} writes no token of its tokenizer for {source}: nothing to draw")
    tokens, output = answer.tokens(data), answer.symbols(data)
    names = {"encoder": (tokens, tokens), "self": (output, [tokens[0], *output[:-1]])}
    about = f"attention on {source} {STAGES[run.config.stage]}, greedy decoding"
    return {
        site: AttentionView(
            run.config.task,
            site,
            torch.stack(list(layers))[:, 0].double().numpy(),
            *names.get(site, (output, tokens)),
            about,
        )
        for site, layers in answer.attention(model).weights.items()
        if layers
    }
