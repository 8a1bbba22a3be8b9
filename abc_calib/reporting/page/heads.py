"""What the heads of a run look at: a figure of each layer, and each line in words."""

from __future__ import annotations

import os
from typing import Any

from abc_calib.config import FigureOptions
from abc_calib.geometry import CORNER, Layout, Line, Site
from abc_calib.nn.build import model_type
from abc_calib.reporting.style import as_svg, font
from abc_calib.reporting.view import PARTS, SiteFigures
from abc_calib.reporting.views import averaged
from abc_calib.runs import Run
from abc_calib.text import counted

FAR, FAR_IN_ROWS = 20, 10
"""Digits of the bias that the page draws, and of both digits and rows of an output."""
ORDER = ("first", "second", "third", "fourth")


def heads_of(run: Run) -> dict[str, Any] | None:
    """The figures of a run's layers with the words for their heads; None for a model without any.

    None, too, for a run without its table of lines, as the zoo has them.

    ``rests``: by site, layer and head, whether it stays where nothing new stands.
    """
    bare = run.config.stage == "calibrated" and not os.path.lexists(run.path / "lines.csv")
    if bare or model_type(run.config.kind).no_lines:
        return None
    far = FAR_IN_ROWS if run.data.vocabulary.tokens.rows else FAR
    layers, rests = [], {}
    with font("sans"):
        views = averaged(run, FigureOptions(digits=far, title=False))
        for site, view in views.items():
            heads = [[_head(view, layer, head) for head in view.heads] for layer in view.layers]
            rests[site] = [[at_rest for _, at_rest in layer] for layer in heads]
            for layer, words in zip(view.layers, heads, strict=True):
                heading = f"{PARTS[site].capitalize()}-attention, layer {layer}"
                numbered = [(head, text) for head, (text, _) in enumerate(words)]
                figure = as_svg(view.figure(layer))
                layers.append({"heading": heading, "figure": figure, "heads": numbered})
    digits = view.lines.near.digits if view.lines else run.data.length
    return {"layers": layers, "rests": rests, "digits": digits, "calibrated": bool(view.lines)}


def _head(view: SiteFigures, layer: int, head: int) -> tuple[str, bool]:
    """What a head reads, in words; and does it look for nothing, as a sink or on a delimiter?"""
    if view.lines is None:
        return "", False
    lines = view.lines_of(layer)[head]
    if not lines:  # those of a decoder-only model may be at its other site alone
        elsewhere = view.lines.bias.elsewhere(view.site, layer)
        if elsewhere and elsewhere[head]:
            return f"looks at the {'source' if view.site == 'self' else 'output'} alone", True
        return "attends as it likes: no line", False
    notes = {entry.line: entry.note for entry in view.kept(layer)[head]}
    at_rest = all(
        notes.get(line.label(view.site)) == "sink"
        or (line.direction == "vert" and line.offset <= 0 and line.segment != CORNER)
        for line in lines
    )
    source = view.lines.near.source
    return "; and ".join(in_words(line, view.site, source) for line in lines), at_rest


def in_words(line: Line, site: Site, layout: Layout) -> str:
    """Say what a line reads, without a subject; its label where that would be long."""
    if site == "self" and line.segment == 0 and line.direction != "anti":
        if line.direction == "vert":
            return f"always reads {'the start' if line.offset <= 0 else f'y{line.offset - 1}'}"
        back = f"{counted(-line.offset, 'rows')} back"
        return f"reads {back if line.offset < 0 else 'its own row: what it wrote last'}"
    if site != "cross" or line.segment == CORNER or line.beta or line.part_step:
        return f"follows {line.label(site)}"
    if line.segment == 0 or line.segment >= len(layout.closes):
        return f"reads {layout.delimiters[0]}, the start of the source"
    part, unit = _part(line.segment, layout), "word" if layout.words else "digit"
    if line.direction == "vert" and line.offset <= 0:
        return f"rests on {layout.delimiters[line.segment]}, which closes {part}"
    if line.direction == "vert":
        return f"always reads {unit} {line.offset - (not layout.words)} from the end of {part}"
    first, side = ("last", "left") if line.direction == "anti" else ("first", "right")
    ahead = (
        f", {line.offset} ahead" if line.offset > 0 else f", {counted(-line.offset, 'rows')} late"
    )
    return (
        f"reads {part} from its {first} {unit} on{ahead if line.offset else ''}, "
        f"{counted(line.stride, f'{unit}s')} further {side} each row"
    )


def _part(number: int, layout: Layout) -> str:
    """``the last operand``, for part ``number`` of a source."""
    operands = layout.parts[number - 1].operands if 0 < number <= len(layout.parts) else ()
    if len(layout.widths) == 1 or not operands:
        return "the source"
    if len(operands) > 1:
        return "the columns of digits"
    if operands[0] == len(layout.widths) - 1:
        return "the last operand"
    return f"the {ORDER[operands[0]]} operand" if operands[0] < len(ORDER) else "an operand"
