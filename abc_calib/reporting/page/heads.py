"""What the heads of a run look at: a figure of each layer, and the lines of its heads."""

from __future__ import annotations

import os
from typing import Any

from abc_calib.config import FigureOptions
from abc_calib.geometry import CORNER, Site
from abc_calib.nn.build import model_type
from abc_calib.reporting.attention import BARE, SiteLines, reads
from abc_calib.reporting.style import as_svg, font
from abc_calib.reporting.views import SITE_NAMES, averaged
from abc_calib.runs import Run

FAR, FAR_IN_ROWS = 20, 10
"""Digits of the bias that the page draws, and of both digits and rows of an output."""


def heads_of(run: Run) -> dict[str, Any] | None:
    """Return the figures of a run's layers with the lines of their heads.

    None for a model without any, and for a run without its table of lines, as the zoo has them.
    ``rests``: by site, layer and head, whether it stays where nothing new stands.
    """
    bare = run.config.stage == "calibrated" and not os.path.lexists(run.path / "lines.csv")
    if bare or model_type(run.config.kind).no_lines:
        return None
    options, layers = FigureOptions(title=False), list[dict[str, Any]]()
    rests: dict[Site, list[list[bool]]] = {}
    with font("sans"):
        views = averaged(run, FAR_IN_ROWS if run.data.vocabulary.tokens.rows else FAR)
        for site, view in views.items():
            rests[site] = []
            for layer in range(len(view.attention)):
                heading = f"{SITE_NAMES[site].capitalize()}-attention, layer {layer}"
                heads: list[tuple[str, bool]] = []
                if lines := view.lines:
                    heads = [_head(lines, site, layer, k) for k in range(len(lines.heads[layer]))]
                rests[site].append([at_rest for _, at_rest in heads])
                figure = as_svg(view.figure(layer, options))
                names = [text for text, _ in heads]
                layers.append({"heading": heading, "figure": figure, "heads": names})
    digits = view.lines.near.source.widths[0] if view.lines else run.data.length
    return {"layers": layers, "rests": rests, "digits": digits, "calibrated": bool(view.lines)}


def _head(view: SiteLines, site: Site, layer: int, head: int) -> tuple[str, bool]:
    """The lines of a head; and does it look for nothing, as a sink or on a delimiter?"""
    lines = view.heads[layer][head]
    if view.closed[layer][head]:
        return f"the {'source' if site == 'self' else 'output'} alone", True
    if not lines:
        return "no line, may read everything", False
    notes = {entry.line: entry.note for entry in view.kept[layer][head]}
    at_rest = all(
        notes.get(line.label(site)) == "sink"
        or (line.direction == "vert" and line.offset <= 0 and line.segment != CORNER)
        for line in lines
    )
    names = {line.label(site): reads(line, site, view.far) for line in lines}
    if all(notes.get(name) in BARE for name in names):
        read = ", ".join(filter(None, names.values())) or "a token that tells it nothing"
        return f"no line of its own, always reads {read}", at_rest
    return ", ".join(f"{x} (reads {read})" if read else x for x, read in names.items()), at_rest
