"""How far models get: for each of them the longest length at which it is right, on one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from abc_calib.reporting.style import (
    COLUMN_WIDTH,
    PALETTE,
    TEXT_WIDTH,
    new_figure,
    styled,
)

Reach = tuple[int | None, int | None]
"""The longest length alone, and calibrated; 0: right at none, None: not measured."""


@styled
def reach_figure(
    panels: Mapping[str, Mapping[str, Reach]],
    lengths: Sequence[int],
    title: str,
    unit: str,
    width: float | None = None,
) -> Figure:
    """A panel a kind of model, a line a row: an open dot alone, a filled one calibrated.

    Where both get as far, the open one is around the other. ``lengths``: those that were tested,
    the first of which is the longest in training. ``width``: in inches.
    """
    names = list(dict.fromkeys(name for rows in panels.values() for name in rows))
    width = width or (TEXT_WIDTH if len(panels) > 1 else COLUMN_WIDTH)
    figure = new_figure(width, 0.95 + 0.17 * len(names))
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    places = {0: 0, **{length: k for k, length in enumerate(lengths, 1)}}
    for panel, (heading, rows) in zip(axes, panels.items(), strict=True):
        for y, name in enumerate(names):
            alone, calibrated = rows.get(name, (None, None))
            ends = [places[x] for x in (alone, calibrated) if x is not None]
            if len(ends) == 2:
                panel.plot(ends, [y, y], color=PALETTE[1], lw=1, zorder=1)
            if calibrated is not None:
                panel.plot(places[calibrated], y, "o", ms=5, color=PALETTE[1], clip_on=False)
            if alone is not None:
                around = {"ms": 8, "mfc": "none"} if alone == calibrated else {"ms": 5, "mfc": "w"}
                panel.plot(places[alone], y, "o", mec=PALETTE[0], mew=1.2, clip_on=False, **around)
        panel.axvline(1, color="0.75", lw=0.8, zorder=0)
        panel.set_title(heading)
        panel.set_xticks(list(places.values()), ["none", *map(str, lengths)])
        panel.set_xlim(-0.3, len(lengths) + 0.3)
        panel.set_yticks(range(len(names)), names)
        panel.set_ylim(len(names) - 0.5, -0.5)
        panel.set_xlabel(unit)
        panel.spines[["top", "right"]].set_visible(False)
    axes[0].plot([], [], "o", ms=5, mfc="white", mec=PALETTE[0], mew=1.2, label="alone")
    axes[0].plot([], [], "o", ms=5, color=PALETTE[1], label="calibrated (ABC)")
    figure.legend(loc="outside lower center", ncols=2)
    figure.suptitle(title)
    return figure
