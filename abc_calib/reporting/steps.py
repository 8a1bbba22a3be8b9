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
    found: Inspection,
    out_dir: Path,
    title: str,
    formats: Sequence[str] = ("pdf",),
    width: float = TEXT_WIDTH,
) -> list[Path]:
    """Write ``attention`` and, if the attender shows any, ``variables`` figures to a folder.

    ``width``: of the former, in inches; the latter is at most as wide as a column.
    """
    figures = {"attention": attention_figure(found, title, width)}
    if found.variables:
        figures["variables"] = variables_figure(found, title, min(width, COLUMN_WIDTH))
    written = (save_figures(figure, out_dir / name, formats) for name, figure in figures.items())
    return [path for paths in written for path in paths]


def attention_figure(found: Inspection, title: str, width: float) -> Figure:
    """The weights of every step, next to the gold ones where there are any."""
    matrices = [found.weights]
    if found.gold is not None:
        gold = np.zeros_like(found.weights)
        for step, word in enumerate(found.gold[: len(gold)]):
            gold[step, word + 1] = 1.0
        matrices.append(gold)
    names = ["learned", "gold"][: len(matrices)]
    block = Block(np.stack(matrices), found.output, found.tokens, notes=names, numbers=None)
    return heatmaps([block], title, width=width)


@styled
def variables_figure(found: Inspection, title: str, width: float) -> Figure:
    """One curve per variable; with the centre, where the attention was and should have been.

    As figure 9 of Dubois et al. (2020). The reference is left out: it is the mean attention, of
    the location part alone in the variants that say so.
    """
    shown = {name: values for name, values in found.variables.items() if name != "reference"}
    figure = new_figure(width, 0.75 * len(shown) + 0.75)
    axes = np.atleast_1d(figure.subplots(len(shown), 1, sharex=True))
    steps = np.arange(len(found.output))
    blue, red, green, *_ = PALETTE
    for axis, (name, values) in zip(axes, shown.items(), strict=True):
        axis.plot(steps, values, marker="o", markersize=3, linewidth=1.1, color=blue, label=name)
        if name == "centre":
            if found.gold is not None:
                gold = found.gold[: len(steps)]
                axis.plot(steps[: len(gold)], gold, "--", linewidth=1.1, color=green, label="gold")
            axis.plot(steps, found.looked, ":", linewidth=1.6, color=red, label="mean attention")
            axis.legend(borderpad=0.1, labelspacing=0.25)
        axis.set_ylabel(name)
        plain_axes(axis)
    axes[-1].set_xticks(steps, found.output)
    axes[-1].set_xlabel("written")
    axes[0].set_title(title)
    return figure
