"""What the heads of a run look at: a figure of each layer, and each line in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from abc_calib.config import FigureOptions
from abc_calib.errors import AbcError
from abc_calib.geometry import CORNER, Line, LineBias, Site
from abc_calib.nn.build import model_type
from abc_calib.reporting.attention import LAST, Kept
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
    with font("sans"):
        views = averaged(run, FigureOptions(digits=far, titled=False))
        layers = [
            {
                "heading": f"{PARTS[site].capitalize()}-attention, layer {layer}",
                "figure": as_svg(view.figure(layer)),
                "heads": [_words(view, layer, head) for head in view.heads],
            }
            for site, view in views.items()
            for layer in view.layers
        ]
    rests = {
        site: [[_rests(view, layer, head) for head in view.heads] for layer in view.layers]
        for site, view in views.items()
    }
    view = next(iter(views.values()))
    digits = view.lines.near.digits if view.lines else run.data.length
    return {"layers": layers, "rests": rests, "digits": digits, "calibrated": bool(view.lines)}


def _lines(view: View, layer: int, head: int) -> tuple[LineBias | None, Sequence[Line]]:
    """The lines of a head; without a bias there are none."""
    if view.lines is None:
        return None, ()
    heads = view.lines.bias.heads(view.site, layer)
    return view.lines.bias, heads[head] if heads else ()


def _kept(view: View, layer: int, head: int) -> list[Kept]:
    assert view.lines is not None
    table = view.lines.table
    return table.get((view.site, layer, head)) or table.get((view.site, LAST, 0), [])


def _words(view: View, layer: int, head: int) -> tuple[int, str]:
    """The number of a head, and what it reads; nothing where there are no lines."""
    bias, lines = _lines(view, layer, head)
    if bias is None or view.lines is None:
        return head, ""
    if not lines:
        other = "source" if view.site == "self" else "output"
        away = _is_elsewhere(bias, view.site, layer, head)
        return head, f"looks at the {other} alone" if away else "attends as it likes: no line"
    source = view.lines.near.source
    return head, "; and ".join(in_words(line, view.site, source) for line in lines)


def _is_elsewhere(bias: LineBias, site: Site, layer: int, head: int) -> bool:
    """Are the lines of a decoder-only model's head at its other site alone?"""
    elsewhere = bias.elsewhere(site, layer)
    return bool(elsewhere and elsewhere[head])


def _rests(view: View, layer: int, head: int) -> bool:
    """Does a head look for nothing: is it a sink, or does it stay on a delimiter?"""
    bias, lines = _lines(view, layer, head)
    if bias is None:
        return False
    if not lines:
        return _is_elsewhere(bias, view.site, layer, head)
    notes = {one.line: one.note for one in _kept(view, layer, head)}

    def stays(line: Line) -> bool:
        delimiter = line.direction == "vert" and line.offset <= 0 and line.segment != CORNER
        return delimiter or notes.get(line.label(view.site)) == "sink"

    return all(map(stays, lines))


def line_count(run: Run) -> str:
    """How many heads follow a line, in words; empty for a run without lines."""
    try:
        return run.bias().summary
    except AbcError:
        return ""
