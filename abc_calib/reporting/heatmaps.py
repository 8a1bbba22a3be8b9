"""Heatmaps of attention and of the biases that calibration reads from it.

As in the paper's figures 3, 4, 7 and 8: one image a head, queries downwards, keys to the right,
each head on its own colour scale. Cells that are closed (-inf) are dark grey.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

from abc_calib.errors import UsageError
from abc_calib.reporting.grid import Page, Panels
from abc_calib.reporting.style import SMALL, TEXT_WIDTH, styled
from abc_calib.reporting.ticks import MOST_TOKENS

ACROSS = 4
"""Heads in one line of ``head_heatmaps``."""
MOST_ACROSS = 8
"""Heads in one line of ``bias_report``."""


@styled
def head_heatmaps(
    matrices: np.ndarray,
    *,
    title: str,
    row_labels: Sequence[str],
    key_labels: Sequence[str],
    transparent: Sequence[bool] | None = None,
    kept: Sequence[str] | None = None,
    named: bool = True,
    numbers: Sequence[int] = (),
    width: float = TEXT_WIDTH,
) -> Figure:
    """One image for each head of ``matrices (h, i, j)``, four side by side at text width.

    ``row_labels (i,)`` and ``key_labels (j,)`` name rows and keys; where there is no room for
    all of them, the axes show delimiters and every so many digits. ``transparent (h,)`` marks
    heads that the bias leaves alone; ``kept (h,)`` is a note over each head, such as the lines
    kept for it, or stands for its number where they are not ``named``. ``numbers (h,)``: of the
    heads, where they are not all there are. ``width``: of the figure, in inches.
    """
    panels = _panels(matrices, row_labels, key_labels, transparent, kept)
    panels = replace(panels, named=named, numbers=numbers)
    across = ACROSS
    if len(key_labels) <= MOST_TOKENS:  # so few that there is to be room for all their names
        across = max(1, min(ACROSS, int(72 * (width - 0.4) / ((SMALL + 1.5) * len(key_labels)))))
    return Page(title, min(across, len(panels.matrices)), [panels], width).draw()


@styled
def bias_report(
    attention: np.ndarray,
    fit: np.ndarray,
    bias: np.ndarray,
    *,
    title: str,
    row_labels: Sequence[str],
    key_labels: Sequence[str],
    bias_row_labels: Sequence[str],
    bias_key_labels: Sequence[str],
    headings: Sequence[str] = ("averaged attention", "sum of the kept lines", "extended bias"),
    kept: Sequence[str] | None = None,
    transparent: Sequence[bool] | None = None,
    panel: str | None = None,
    numbers: Sequence[int] = (),
    width: float = TEXT_WIDTH,
) -> Figure:
    """How the bias of one site and layer came about: three rows of panels, a head a column.

    ``attention (h, i, j)``: averaged over samples. ``fit (h, i, j)``: the sum of the kept
    lines, each as high as its weight; ``kept (h,)`` names them. ``bias (h, I, J)``: the lines
    on a larger problem, -inf where closed. ``transparent (h,)`` marks heads without a line.
    ``panel``: ``attention``, ``fit`` or ``bias`` alone. ``numbers`` and ``width`` as above.
    """
    if attention.shape != fit.shape or len(attention) != len(bias):
        raise UsageError(
            f"attention {attention.shape}, fit {fit.shape} and bias {bias.shape} do not belong "
            "together: give (heads, rows, keys), the first two alike"
        )
    letters = ("", "", "") if panel else ("(a) ", "(b) ", "(c) ")
    names = [letter + text for letter, text in zip(letters, headings, strict=True)]
    near = _panels(attention, row_labels, key_labels)
    lines = _panels(fit, row_labels, key_labels, transparent, kept)
    far = _panels(bias, bias_row_labels, bias_key_labels, transparent)
    alone = panel is not None
    blocks = {
        "attention": replace(near, heading=names[0], additive=False, numbers=numbers),
        "fit": replace(lines, heading=names[1], additive=False, named=alone, numbers=numbers),
        "bias": replace(far, heading=names[2], named=alone, numbers=numbers),
    }
    shown = [blocks[panel]] if panel else [*blocks.values()]
    return Page(title, min(MOST_ACROSS, len(attention)), shown, width).draw()


def _panels(
    matrices: np.ndarray,
    row_labels: Sequence[str],
    key_labels: Sequence[str],
    transparent: Sequence[bool] | None = None,
    kept: Sequence[str] | None = None,
) -> Panels:
    """``Panels`` of arguments that fit each other; ``UsageError`` if they do not."""
    matrices = np.asarray(matrices, dtype=np.float64)
    if matrices.ndim != 3 or 0 in matrices.shape:
        raise UsageError(f"a heatmap of shape {matrices.shape}: give (heads, rows, keys)")
    heads, rows, keys = matrices.shape
    for what, given, wanted in (
        ("row labels", row_labels, rows),
        ("key labels", key_labels, keys),
        ("transparent marks", transparent, heads),
        ("notes", kept, heads),
    ):
        if given is not None and len(given) != wanted:
            raise UsageError(f"{len(given)} {what} for {matrices.shape}: give {wanted}")
    return Panels(matrices, row_labels, key_labels, kept or (), transparent or ())
