"""What the heads of a run look at: a figure of each layer, and each line in words."""

from __future__ import annotations

from typing import Any

from abc_calib.config import FigureOptions
from abc_calib.geometry import CORNER, Line
from abc_calib.nn.build import model_type
from abc_calib.reporting.page.words import in_words
from abc_calib.reporting.style import as_svg, font
from abc_calib.reporting.views import PARTS, View, averaged
from abc_calib.runs import Run

FAR, FAR_IN_ROWS = 20, 10
"""Digits of the bias that the page draws, and of both digits and rows of an output."""


def heads_of(run: Run) -> dict[str, Any] | None:
    """The figures of a run's layers with the words for their heads; None for a model without any.

    ``rests``: by site, layer and head, whether it stays where nothing new stands.
    """
    if model_type(run.config.kind).no_lines:
        return None
    far = FAR if run.data.vocabulary.tokens.row is None else FAR_IN_ROWS
    layers, rests = [], {}
    with font("sans"):
        views = averaged(run, FigureOptions(digits=far, titled=False))
        for site, view in views.items():
            told = [[_head(view, layer, head) for head in view.heads] for layer in view.layers]
            rests[site] = [[rests for _, rests in heads] for heads in told]
            for layer, heads in zip(view.layers, told, strict=True):
                heading = f"{PARTS[site].capitalize()}-attention, layer {layer}"
                words = [(head, said) for head, (said, _) in enumerate(heads)]
                figure = as_svg(view.figure(layer))
                layers.append({"heading": heading, "figure": figure, "heads": words})
    digits = view.lines.near.digits if view.lines else run.data.length
    return {"layers": layers, "rests": rests, "digits": digits, "calibrated": bool(view.lines)}


def _head(view: View, layer: int, head: int) -> tuple[str, bool]:
    """What a head reads, in words; and does it look for nothing, as a sink or on a delimiter?"""
    if view.lines is None:
        return "", False
    lines = view.lines_of(layer)[head]
    if not lines:  # those of a decoder-only model may be at its other site alone
        elsewhere = view.lines.bias.elsewhere(view.site, layer)
        if elsewhere and elsewhere[head]:
            return f"looks at the {'source' if view.site == 'self' else 'output'} alone", True
        return "attends as it likes: no line", False
    notes = {one.line: one.note for one in view.kept(layer)[head]}

    def stays(line: Line) -> bool:
        delimiter = line.direction == "vert" and line.offset <= 0 and line.segment != CORNER
        return delimiter or notes.get(line.label(view.site)) == "sink"

    source = view.lines.near.source
    return "; and ".join(in_words(o, view.site, source) for o in lines), all(map(stays, lines))
