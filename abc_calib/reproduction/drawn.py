"""Figures 3, 4, 7 and 8 of Duan & Shi, drawn of models that are made from nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from abc_calib import stages
from abc_calib.reporting.views import heatmap_figures
from abc_calib.runs import Run

DRAWN: dict[str, tuple[str, dict[str, Any]]] = {
    "figure3": ("addition", {"layer": 1, "panel": "bias"}),
    "figure4": ("multiplication", {"layer": 1, "panel": "bias"}),
    "figure7": ("successor", {"layer": 2, "input": "03611451449241919819"}),
    "figure8": ("addition", {"layer": 2, "input": "078114514+0241919810"}),
}
"""The task of each, and what is drawn of its cross-attention: one source of the first model."""


def drawn(name: str, folder: Path | None = None, **look: Any) -> Figure:
    """The figure of that name; its models are trained in ``folder`` unless they are there.

    ``look``: fields of ``FigureOptions``. Models as of ``stages.certified``, seed 0.
    """
    task, options = DRAWN[name]
    run, _ = stages.certified(task, 0, folder=folder)
    while "input" in options and run.config.parent:
        run = Run.open(run.config.parent)
    (figure,) = heatmap_figures(run, sites=("cross",), **options, **look).values()
    return figure
