"""From a run folder to its heatmaps: reads the files of the run, writes figures and arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from abc_calib.config import FigureOptions, build, documented
from abc_calib.errors import UsageError
from abc_calib.files import make_folder, write_atomically
from abc_calib.geometry import SITES
from abc_calib.progress import bar
from abc_calib.reporting.attention import Problem, kept_table, measured, problems, stored
from abc_calib.reporting.hooks import watched, with_heads
from abc_calib.reporting.style import check_formats, font, save_figures
from abc_calib.reporting.ticks import MOST_TOKENS
from abc_calib.reporting.views import Arrays, Lines, View
from abc_calib.runs import Run


@documented(FigureOptions, without=("format", "sites", "digits"))
def draw_heatmaps(
    run: Run | Path | str | None,
    out_dir: Path | str,
    formats: Sequence[str] = ("pdf",),
    sites: Sequence[str] = ("self", "cross"),
    extend_to: int = 20,
    *,
    progress: bool | None = None,
    options: FigureOptions | None = None,
    **keywords: Any,
) -> list[Path]:
    """Draw every layer of the given sites of a run; returns the files written.

    Of a calibrated run, ``bias-SITE-layerN``: the averaged attention, the lines kept from it,
    and the bias they make on problems of ``extend_to`` digits. Of a run without a bias,
    ``attention-SITE-layerN``, measured on training samples. A ``SITE.npz`` holds what was drawn:
    ``attention`` and ``fit`` ``(layers, h, i, j)``, ``bias`` ``(layers, h, I, J)`` and the labels
    of their rows and keys. Other keywords draw less, or one source (``input-SITE-layerN``).
    ``options``: all options as an object, instead of keywords. Raises ``UsageError`` for an unknown
    format or site or more than 500 digits, and ``AbcError`` for files that are missing or do not
    belong together.
    """
    asked = options or build(FigureOptions, sites=tuple(sites), digits=extend_to, **keywords)
    formats = options.format if options else formats
    check_formats(formats)
    drawing = Drawing(with_heads(run), asked)
    paths: list[Path] = []
    with font(asked.font), bar("drawing", progress, "figures") as update:
        views = drawing.views()
        folder = Path(out_dir)
        make_folder(folder)
        total = sum(len(view.layers) for view in views)
        for view in views:
            for name, figure in view.figures():
                update(len(paths) // max(len(formats), 1), total, name)
                paths += save_figures(figure, folder / name, formats)
            paths.append(_save_arrays(folder / f"{view.stem}{view.site}.npz", view.arrays))
    return paths


@documented(FigureOptions, without=("format",))
def heatmap_figures(run: Run | Path | str | None = None, **options: Any) -> dict[str, Figure]:
    """The heatmaps of a run as matplotlib figures, by name."""
    asked = build(FigureOptions, **options)
    with font(asked.font):
        views = Drawing(with_heads(run), asked).views()
        found = [pair for view in views for pair in view.figures()]
        for _, figure in found:
            figure.draw_without_rendering()  # names on axes are made now, in this font
    return dict(found)


@dataclass(frozen=True)
class Drawing:
    """What is drawn of a run."""

    run: Run
    asked: FigureOptions

    @cached_property
    def calibrated(self) -> bool:
        return (self.run.path / "bias.safetensors").is_file()

    def views(self) -> list[View]:
        """One for each site, checked."""
        asked = self.asked
        for site in asked.sites:
            if site not in SITES:
                raise UsageError(f"unknown site {site!r}: choose one of {', '.join(SITES)}")
        if asked.block in ("fit", "bias") and (asked.input is not None or not self.calibrated):
            what = "one source has" if asked.input is not None else f"{self.run} has"
            raise UsageError(f"--panel {asked.block}: {what} attention alone; leave it out")
        found = self._of_source(asked.input) if asked.input is not None else self._averaged()
        wanted = [site for site in SITES if site in asked.sites]
        if missing := [site for site in wanted if site not in found]:
            raise UsageError(f"{self.run} has no {missing[0]}-attention: choose {', '.join(found)}")
        return [found[site].checked() for site in wanted]

    def _averaged(self) -> dict[str, View]:
        run = self.run
        attention = stored(run.path / "bias.safetensors") if self.calibrated else measured(run)
        near, far = problems(run, attention, self.asked.digits)
        lines = None
        if self.calibrated:
            lines = Lines(run.bias(), kept_table(run.path / "lines.csv"), near, far)
        what = f"averaged attention, {near.digits} digits"
        return {
            site: View(run.config.task, site, weights, *near.labels(site), what, self.asked, lines)
            for site, weights in attention.items()
        }

    def _of_source(self, source: str) -> dict[str, View]:
        """The attention on one source while the model writes its answer."""
        run = self.run
        seen = watched(run, run.load_model(), source)
        layout = Problem(run.data.layout(seen.batch.problems), seen.written.shape[1])
        tokens, output = seen.source, seen.output
        views: dict[str, View] = {}
        for site, layers in seen.attention.weights.items():
            rows, keys = layout.labels(site)
            if len(tokens) <= MOST_TOKENS:
                rows = tokens if site == "encoder" else output
                keys = [tokens[0], *output[:-1]] if site == "self" else tokens
            if layers:
                weights = torch.stack(list(layers))[:, 0].double().numpy()
                what = f"attention on {source}"
                views[site] = View(run.config.task, site, weights, rows, keys, what, self.asked)
        return views


def _save_arrays(path: Path, arrays: Arrays) -> Path:
    write_atomically(path, lambda made: np.savez_compressed(made, **arrays))  # type: ignore[arg-type]
    return path
