"""Attention, its lines, and the lines at twenty digits: python reports/lines_figure.py RUN

RUN is a calibrated run of addition, such as that of ``abc prove addition``. Panels: the
cross-attention of the last layer of its first training, averaged over heads; the lines that this
layer was given; the same lines at 20 digits.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from abc_calib.config import FigureOptions
from abc_calib.reporting.style import (
    LABEL_SIZE,
    PALETTE,
    SMALL,
    TEXT_WIDTH,
    new_figure,
    save_figures,
    styled,
)
from abc_calib.reporting.views import averaged
from abc_calib.runs import Run

HERE = Path(__file__).parent
COLOURS = {"first": PALETTE[1], "second": PALETTE[0]}
"""Of the line through each number."""


@styled
def drawn(run: Run) -> Figure:
    """The three panels."""
    arrays = averaged(run, FigureOptions())["cross"].arrays
    parts = np.array([line.segment - 1 for (line,) in run.bias().sites["cross"][-1]])
    figure = new_figure(TEXT_WIDTH, 2.45)
    panels = figure.subplots(1, 3)
    rows, keys = arrays["row_labels"], arrays["key_labels"]
    panel(panels[0], "1. Attention, trained\non at most 6 digits", rows, keys)
    shade(panels[0], arrays["attention"][-1].mean(0), "black")
    panel(panels[1], "2. The lines\nfound in it", rows, keys)
    far = arrays["bias_row_labels"], arrays["bias_key_labels"]
    panel(panels[2], "3. The same lines\nat 20 digits", *far)
    for part, colour in enumerate(COLOURS.values()):
        shade(panels[1], arrays["fit"][-1][parts == part].max(0) > 0, colour)
        shade(panels[2], (arrays["bias"][-1][parts == part] == 0).any(0), colour)
    panels[0].set_ylabel("digit of the sum that is written", fontsize=SMALL)
    handles = [Patch(color=c, label=f"reads the {name} number") for name, c in COLOURS.items()]
    figure.legend(handles=handles, loc="outside lower right", ncols=2, handlelength=0.8)
    return figure


def shade(axes: Axes, values: np.ndarray, colour: str) -> None:
    """Cells ``(i, j)`` from clear to the colour, which the largest value has."""
    clear = ListedColormap([to_rgba(colour, alpha) for alpha in np.linspace(0, 1, 256)])
    shown = values / values.max()
    axes.imshow(shown, cmap=clear, vmin=0, vmax=1, aspect="auto", interpolation="nearest")


def panel(axes: Axes, title: str, rows: np.ndarray, keys: np.ndarray) -> None:
    """Names of the axes: delimiters and the two numbers, and where writing begins and ends."""
    marks = [i for i, key in enumerate(keys) if not key[-1].isdigit()]
    middles = [(a + b) / 2 for a, b in pairwise(marks)]
    names = [*(keys[i] for i in marks), "first number", "second number"]
    axes.set_title(title, fontsize=LABEL_SIZE)
    axes.set_xticks([*marks, *middles], names, fontsize=SMALL)
    axes.tick_params(length=0)
    axes.set_yticks([0, len(rows) - 1], ["units", "end"])
    for i in marks:
        axes.axvline(i, color="0.85", linewidth=0.5, zorder=-1)


def main() -> None:
    figure = drawn(Run.open(sys.argv[1]))
    print(*save_figures(figure, HERE / "figures" / "lines", ("png",)), sep="\n")


if __name__ == "__main__":
    main()
