"""A bias of diagonals beside its table of relative positions (paper, section 7)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from abc_calib.calibration.relative import RelativeTable
from abc_calib.reporting.style import (
    CLOSED,
    COLUMN_WIDTH,
    LABEL_SIZE,
    PALETTE,
    TEXT_WIDTH,
    TITLE_SIZE,
    new_figure,
    styled,
    value_colours,
)

MOST, ROWS = 4, 12
"""Heads in a figure, and rows and keys of each."""


@styled
def relative_figure(tables: Sequence[RelativeTable]) -> Figure:
    """Heads that differ, at most four: each bias of twelve rows over its number an offset.

    Closed cells and offsets are dark.
    """
    shown = list({(t.clip, t.values): t for t in tables}.values())[:MOST]
    figure = new_figure(COLUMN_WIDTH if len(shown) < 3 else TEXT_WIDTH, 2.6)
    figure.suptitle("Diagonals as clipped relative positions", fontsize=TITLE_SIZE)
    axes = figure.subplots(2, len(shown), squeeze=False, height_ratios=[1.6, 1])
    for column, table in enumerate(shown):
        above, below = axes[0, column], axes[1, column]
        bias = table.dense(ROWS, ROWS)
        if table.site == "self":
            bias = np.where(np.tri(ROWS, dtype=bool), bias, -np.inf)
        above.imshow(np.ma.masked_invalid(bias), cmap=value_colours(), vmin=-5, vmax=0)
        above.set_title(f"layer {table.layer}, head {table.head}", fontsize=LABEL_SIZE)
        above.set_xticks([])
        above.set_yticks([])
        offsets = np.arange(-table.clip, table.clip + 1)
        values = np.array(table.values)
        open_ = np.isfinite(values)
        below.plot(offsets[open_], values[open_], "o", color=PALETTE[0], markersize=3)
        for offset in offsets[~open_]:
            below.axvspan(offset - 0.5, offset + 0.5, color=CLOSED, alpha=0.85, linewidth=0)
        below.set_xlim(-table.clip - 0.5, table.clip + 0.5)
        names = [f"{o}" for o in offsets]
        names[0], names[-1] = f"\u2264{offsets[0]}", f"\u2265{offsets[-1]}"
        below.set_xticks(offsets if len(offsets) < 8 else offsets[:: len(offsets) - 1])
        below.set_xticklabels(names if len(offsets) < 8 else [names[0], names[-1]])
        if len(set(values[open_])) == 1:
            below.set_yticks(values[open_][:1])
        below.set_xlabel("offset j \u2212 i")
    axes[0, 0].set_ylabel("row i")
    axes[1, 0].set_ylabel("bias")
    return figure
