"""Figures of one source: learned attention next to gold, and an attender's variables by step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from abc_calib.evaluation.inspect import Inspection
from abc_calib.reporting.heatmaps import Block, heatmaps
from abc_calib.reporting.style import (
    COLUMN_WIDTH,
    PALETTE,
    TEXT_WIDTH,
    new_figure,
    plain_axes,
    save_figures,
    styled,
)


def draw_steps(
    inspection: Inspection,
    out_dir: Path,
    title: str,
    formats: Sequence[str] = ("pdf",),
    width: float = TEXT_WIDTH,
) -> list[Path]:
    """Write ``attention`` and, if the attender shows any, ``variables`` figures to a folder.

    ``width``: of the former, in inches; the latter is at most as wide as a column.
    """
    matrices = [inspection.weights]
    if inspection.gold is not None:
        gold = np.zeros_like(inspection.weights)
        for step, word in enumerate(inspection.gold[: len(gold)]):
            gold[step, word + 1] = 1.0
        matrices.append(gold)
    names = ["learned", "gold"][: len(matrices)]
    block = Block(np.stack(matrices), inspection.output, inspection.tokens, names=names)
    figures = {"attention": heatmaps([block], title, width=width)}
    if inspection.variables:
        figures["variables"] = variables_figure(inspection, title, min(width, COLUMN_WIDTH))
    return [
        path
        for name, figure in figures.items()
        for path in save_figures(figure, out_dir / name, formats)
    ]


@styled
def variables_figure(inspection: Inspection, title: str, width: float) -> Figure:
    """Draw a curve per variable; with the centre, where the attention was and should have been.

    As figure 9 of Dubois et al. (2020). The reference is left out: it is the mean attention, of
    the location part alone in the variants that say so.
    """
    curves = {name: values for name, values in inspection.variables.items() if name != "reference"}
    figure = new_figure(width, 0.75 * len(curves) + 0.75)
    grid = figure.subplots(len(curves), 1, sharex=True, squeeze=False)[:, 0]
    steps = np.arange(len(inspection.output))
    blue, red, green, *_ = PALETTE
    for axes, (name, values) in zip(grid, curves.items(), strict=True):
        axes.plot(steps, values, marker="o", markersize=3, linewidth=1.1, color=blue, label=name)
        if name == "centre":
            gold = (inspection.gold or [])[: len(steps)]
            if gold:
                axes.plot(steps[: len(gold)], gold, "--", linewidth=1.1, color=green, label="gold")
            axes.plot(
                steps, inspection.looked, ":", linewidth=1.6, color=red, label="mean attention"
            )
            axes.legend(borderpad=0.1, labelspacing=0.25)
        axes.set_ylabel(name)
        plain_axes(axes)
    grid[-1].set_xticks(steps, inspection.output)
    grid[-1].set_xlabel("written")
    grid[0].set_title(title)
    return figure
