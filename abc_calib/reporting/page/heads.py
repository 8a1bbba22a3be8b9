"""What the heads of a run look at: a figure of each layer, and each line in words."""

from __future__ import annotations

import os
from typing import Any

from abc_calib.config import FigureOptions
from abc_calib.geometry import CORNER, Layout, Line, Site
from abc_calib.nn.build import model_type
from abc_calib.reporting.attention import BARE, SiteLines
from abc_calib.reporting.style import as_svg, font
from abc_calib.reporting.views import SITE_NAMES, averaged
from abc_calib.runs import Run
from abc_calib.text import counted

FAR, FAR_IN_ROWS = 20, 10
"""Digits of the bias that the page draws, and of both digits and rows of an output."""


def heads_of(run: Run) -> dict[str, Any] | None:
    """Return the figures of a run's layers with the words for their heads.

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
                words = list(enumerate(text for text, _ in heads))
                rests[site].append([at_rest for _, at_rest in heads])
                figure = as_svg(view.figure(layer, options))
                layers.append({"heading": heading, "figure": figure, "heads": words})
    digits = view.lines.near.source.widths[0] if view.lines else run.data.length
    return {"layers": layers, "rests": rests, "digits": digits, "calibrated": bool(view.lines)}


def _head(view: SiteLines, site: Site, layer: int, head: int) -> tuple[str, bool]:
    """What a head reads, in words; and does it look for nothing, as a sink or on a delimiter?"""
    lines = view.heads[layer][head]
    if view.closed[layer][head]:
        return f"looks at the {'source' if site == 'self' else 'output'} alone", True
    if not lines:
        return "has no line, and may read everything", False
    notes = {entry.line: entry.note for entry in view.kept[layer][head]}
    at_rest = all(
        notes.get(line.label(site)) == "sink"
        or (line.direction == "vert" and line.offset <= 0 and line.segment != CORNER)
        for line in lines
    )
    if all(notes.get(line.label(site)) in BARE for line in lines):
        return "has no line; it always reads a token that tells it nothing", at_rest
    return "; and ".join(in_words(line, site, view.near.source) for line in lines), at_rest


def in_words(line: Line, site: Site, layout: Layout) -> str:
    """Say what a line reads, without a subject; its label where that would be long."""
    offset, turned = line.offset, line.direction == "anti"
    if site == "self" and line.segment == 0 and not turned:
        if line.direction == "vert":
            return f"always reads {'the start' if offset <= 0 else f'y{offset - 1}'}"
        back = f"{counted(-offset, 'rows')} back"
        return f"reads {back if offset < 0 else 'its own row: what it wrote last'}"
    closes = line.direction == "vert" and offset <= 0
    if line.segment == CORNER or line.beta or line.part_step or not (site == "cross" or closes):
        return f"follows {line.label(site)}"
    if line.segment == 0 or line.segment >= len(layout.closes):
        return f"reads {layout.delimiters[0]}, the start of the source"
    part, unit = _part(line.segment, layout), "word" if layout.words else "digit"
    if closes:
        return f"always reads {layout.delimiters[line.segment]}, the token that closes {part}"
    if line.direction == "vert":
        return f"always reads {unit} {offset - (not layout.words)} from the end of {part}"
    ahead = f", {offset} ahead" if offset > 0 else f", {counted(-offset, 'rows')} late"
    return (
        f"reads {part} from its {'last' if turned else 'first'} {unit} on"
        f"{ahead if offset else ''}, "
        f"{counted(line.stride, f'{unit}s')} further {'left' if turned else 'right'} each row"
    )


def _part(number: int, layout: Layout) -> str:
    """``number 2``, for that part of a source."""
    operands = layout.parts[number - 1].operands if 0 < number <= len(layout.parts) else ()
    if len(operands) > 1:
        return "the columns of digits"
    return "the source" if layout.words or not operands else f"number {operands[0] + 1}"
