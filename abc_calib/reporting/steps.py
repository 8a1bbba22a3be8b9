"""Figures of one source: attention learned beside gold, and an attender's variables by step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from abc_calib.inspection import Inspection
from abc_calib.reporting.heatmaps import head_heatmaps
from abc_calib.reporting.style import check_formats, make_folder, new_figure, save_figure, styled


def draw_steps(
    found: Inspection, out_dir: Path, title: str, formats: Sequence[str] = ("pdf",)
) -> list[Path]:
    """Write ``attention`` and, if the attender shows any, ``variables`` figures to a folder."""
    check_formats(formats)
    make_folder(out_dir)
    figures = {"attention": attention_figure(found, title)}
    if found.variables:
        figures["variables"] = variables_figure(found, title)
    paths = []
    for name, figure in figures.items():
        for kind in formats:
            paths.append(out_dir / f"{name}.{kind}")
            save_figure(figure, paths[-1])
    return paths


def attention_figure(found: Inspection, title: str) -> Figure:
    """The weights of every step, beside the gold ones where there are any."""
    matrices = [found.weights]
    if found.gold is not None:
        gold = np.zeros_like(found.weights)
        for step, word in enumerate(found.gold[: len(gold)]):
            gold[step, word + 1] = 1.0
        matrices.append(gold)
    names = ["learned", "gold"][: len(matrices)]
    return head_heatmaps(
        np.stack(matrices),
        title=title,
        row_labels=found.output,
        key_labels=found.tokens,
        kept=names,
    )


@styled
def variables_figure(found: Inspection, title: str) -> Figure:
    """One curve a variable; where the attention was and should have been beside the centre."""
    figure = new_figure(5.5, 1.1 * len(found.variables) + 0.8)
    axes = np.atleast_1d(figure.subplots(len(found.variables), 1, sharex=True))
    steps = np.arange(len(found.output))
    for axis, (name, values) in zip(axes, found.variables.items(), strict=True):
        axis.plot(steps, values, marker=".", label=name)
        if name == "centre":
            axis.plot(steps, found.looked, linestyle=":", label="mean attention")
            if found.gold is not None:
                gold = found.gold[: len(steps)]
                axis.plot(steps[: len(gold)], gold, linestyle="--", label="gold")
            axis.legend(fontsize="x-small")
        axis.set_ylabel(name)
    axes[-1].set_xticks(steps, found.output, fontsize="x-small")
    axes[-1].set_xlabel("written")
    axes[0].set_title(title)
    return figure
