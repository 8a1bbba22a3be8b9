"""What the heads of a run look at: a figure of each layer, and which of them look for nothing."""

from __future__ import annotations

import os
from typing import Any

from abc_calib.config import FigureOptions
from abc_calib.geometry import CORNER, Site
from abc_calib.nn.build import model_type
from abc_calib.reporting.attention import SiteLines
from abc_calib.reporting.style import as_svg, font
from abc_calib.reporting.views import SITE_NAMES, averaged
from abc_calib.runs import Run

FAR, FAR_IN_ROWS = 20, 10
"""Digits of the bias that the page draws, and of both digits and rows of an output."""


def heads_of(run: Run) -> dict[str, Any] | None:
    """Return the figures of a run's layers.

    None for a model without any, and for a run without its table of lines, as the zoo has them.
    ``rests``: by site, layer and head, whether it stays where nothing new stands.
    """
    bare = run.config.stage == "calibrated" and not os.path.lexists(run.path / "lines.csv")
    if bare or model_type(run.config.kind).no_lines:
        return None
    options, layers = FigureOptions(title=False), list[dict[str, Any]]()
    resting: dict[Site, list[list[bool]]] = {}
    with font("sans"):
        views = averaged(run, FAR_IN_ROWS if run.data.vocabulary.tokens.rows else FAR)
        for site, view in views.items():
            for layer in range(len(view.attention)):
                heading = f"{SITE_NAMES[site].capitalize()}-attention, layer {layer}"
                layers.append({"heading": heading, "figure": as_svg(view.figure(layer, options))})
            if lines := view.lines:
                every = enumerate(lines.heads)
                resting[site] = [[rests(lines, n, k) for k in range(len(x))] for n, x in every]
    digits = view.lines.near.source.widths[0] if view.lines else run.data.length
    return {"layers": layers, "rests": resting, "digits": digits, "calibrated": bool(view.lines)}


def rests(view: SiteLines, layer: int, head: int) -> bool:
    """Does a head look for nothing: as a sink, on a delimiter, or at another site alone?"""
    notes = {entry.line: entry.note for entry in view.kept(layer, head)}
    return (view.site, layer, head) not in view.lines.transparent() and all(
        notes.get(line.label(view.site)) == "sink"
        or (line.direction == "vert" and line.offset <= 0 and line.segment != CORNER)
        for line in view.heads[layer][head]
    )
