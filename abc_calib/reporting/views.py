"""From a run folder to its heatmaps: reads the files of the run, writes figures and arrays."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from abc_calib.config import FigureOptions, build
from abc_calib.errors import UsageError
from abc_calib.evaluation.predict import Answer, answered
from abc_calib.files import make_folder, write_atomically
from abc_calib.geometry import SITES, Site
from abc_calib.geometry.bias import stored
from abc_calib.nn.base import Attention, Model
from abc_calib.nn.build import model_type
from abc_calib.progress import bar
from abc_calib.reporting.attention import Problem, kept_lines, measured, problems
from abc_calib.reporting.heatmaps import Marks
from abc_calib.reporting.style import font, save_figures
from abc_calib.reporting.view import RunLines, SiteFigures
from abc_calib.runs import Run

MOST = 1000
"""Tokens of source and output whose attention is drawn."""
MOST_TOKENS = 24
"""Up to this number the tokens themselves name the keys, not their positions."""


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
    look = options or build(FigureOptions, **keywords)
    paths = list[Path]()
    with font(look.font), bar("drawing", progress, "figures") as update:
        views = views_of(with_heads(run), look)
        folder = Path(out)
        make_folder(folder)
        total = sum(len(view.layers) for view in views)
        for view in views:
            for name, figure in view.figures():
                update(len(paths) // max(len(look.format), 1), total, name)
                paths += save_figures(figure, folder / name, look.format)
            paths.append(folder / f"{view.stem}{view.site}.npz")
            write_atomically(paths[-1], partial(np.savez_compressed, **view.arrays))
    return paths


def heatmap_figures(run: Run | Path | str | None = None, **options: Any) -> dict[str, Figure]:
    """Draw the heatmaps of a run as matplotlib figures, by name; ``options``: ``FigureOptions``."""
    look = build(FigureOptions, **options)
    with font(look.font):
        views = views_of(with_heads(run), look)
        figures = dict(pair for view in views for pair in view.figures())
        for figure in figures.values():
            figure.draw_without_rendering()  # names on axes are made now, in this font
    return figures


def with_heads(run: Run | Path | str | None) -> Run:
    """The run, if its model has heads; ``UsageError`` otherwise."""
    run = Run.open(run)
    if reason := model_type(run.config.kind).no_lines:
        raise UsageError(f"{run} has no heads to show ({reason}): abc inspect --input")
    return run


def watched(run: Run, model: Model, source: str) -> tuple[Answer, Attention]:
    """The attention while ``model`` answers ``source``; ``UsageError`` where it is too long."""
    batch = run.data.lay_out(run.data.task.parse(source))
    if batch.source.shape[1] + batch.target.shape[1] > MOST:
        raise UsageError(f"--input of {len(source)} characters: give a shorter source to draw")
    answer = answered(model, run.data, source)
    with torch.inference_mode():
        return answer, answer.attention(model)


def views_of(run: Run, options: FigureOptions) -> list[SiteFigures]:
    """What is drawn of a run: a view for each site, checked."""
    if options.panel in ("fit", "bias") and (options.input is not None or not _is_calibrated(run)):
        what = "one source has" if options.input is not None else f"{run} has"
        raise UsageError(f"--panel {options.panel}: {what} attention alone; leave it out")
    source = options.input
    views = averaged(run, options) if source is None else _of_source(run, options, source)
    sites = [site for site in SITES if site in options.sites]
    if missing := [site for site in sites if site not in views]:
        raise UsageError(f"{run} has no {missing[0]}-attention: choose {', '.join(views)}")
    for site in sites:
        views[site].check()
    return [views[site] for site in sites]


def _is_calibrated(run: Run) -> bool:
    return (run.path / "bias.safetensors").is_file()


def averaged(run: Run, options: FigureOptions) -> dict[Site, SiteFigures]:
    """The attention averaged over samples by site, and the lines of a calibrated run."""
    calibrated = _is_calibrated(run)
    attention = stored(run.path / "bias.safetensors") if calibrated else measured(run)
    near, far = problems(run, attention, options.digits)
    lines = RunLines(run.bias(), kept_lines(run), near, far) if calibrated else None
    what = f"averaged attention, {near.digits} digits, teacher forcing"
    return {
        site: SiteFigures(run.config.task, site, weights, *near.labels(site), what, options, lines)
        for site, weights in attention.items()
    }


def _of_source(run: Run, options: FigureOptions, source: str) -> dict[Site, SiteFigures]:
    """The attention on one source while the model writes its answer."""
    answer, attention = watched(run, run.load_model(), source)
    layout = Problem(run.data.layout(answer.problems), len(answer.ids))
    tokens, output = answer.tokens(run.data), answer.symbols(run.data)
    right = [i for i in answer.batch.target[0].tolist() if i != run.data.vocabulary.pad]
    wrong = [at for at, token in enumerate(answer.ids) if right[at : at + 1] != [token]]
    longer, length = max(layout.source.widths) > run.data.length, run.data.length
    views: dict[Site, SiteFigures] = {}
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
            views[site] = SiteFigures(
                run.config.task, site, weights, rows, keys, what, options, marks=marks
            )
    return views


def beyond(labels: Sequence[str], length: int) -> list[float]:
    """The places between tokens of a column below ``length`` and neighbours of others."""
    numbers = (re.search(r"\d+", label) for label in labels)
    inside = [int(number[0]) < length if number else None for number in numbers]
    return [at + 0.5 for at, pair in enumerate(pairwise(inside)) if {*pair} == {True, False}]
