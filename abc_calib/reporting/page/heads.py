"""What the heads of a run look at, as plain data: averaged attention, and lines with words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from abc_calib.data import Data
from abc_calib.errors import AbcError
from abc_calib.geometry import CORNER, SITES, Layout, Line, LineBias, Site
from abc_calib.nn.build import model_type
from abc_calib.reporting.attention import (
    LAST,
    Kept,
    KeptLines,
    Problem,
    in_rows,
    kept_table,
    measured,
    problems,
    stored,
)
from abc_calib.reporting.page.weights import as_text
from abc_calib.reporting.page.words import in_words
from abc_calib.runs import Run

LONGEST, MOST_ROWS = 60, 10
"""Digits of the longest bias that the page draws, and both digits and rows of an output."""


def heads_of(run: Run) -> dict[str, Any] | None:
    """For each site and layer its heads; None for a model without any."""
    if model_type(run.config.kind).no_lines:
        return None
    path = run.path / "bias.safetensors"
    calibrated = path.is_file()
    attention = stored(path) if calibrated else measured(run)
    near, _ = problems(run, attention, 1)
    bias = run.bias() if calibrated else None
    table = kept_table(run.path / "lines.csv") if calibrated else {}
    sites = {}
    for site in SITES:
        if site in attention:
            rows, keys = near.labels(site)
            layers = [
                [_head(matrix, site, k, h, bias, table, near) for h, matrix in enumerate(matrices)]
                for k, matrices in enumerate(attention[site])
            ]
            sites[site] = {"rows": rows, "keys": keys, "layers": layers}
    return {
        "sites": sites,
        "digits": near.digits,
        "length": run.data.length,
        "shapes": shapes(run.data, near),
        "off": bias.off_line_bias if bias else None,
        "calibrated": calibrated,
    }


def shapes(data: Data, near: Problem) -> list[dict[str, Any]]:
    """How problems of each length are laid out, from 1 to ``LONGEST``: for the slider."""
    if data.vocabulary.tokens.row is not None:
        return [_shape_in_rows(data, size) for size in range(1, MOST_ROWS + 1)]
    at_near = data.output_steps(near.digits)
    found = []
    for length in range(1, LONGEST + 1):
        layout = data.layout_at(length)
        steps = max(1, near.steps + data.output_steps(layout.widths[0]) - at_near)
        found.append({**_laid_out(layout), "steps": steps})
    return found


def _shape_in_rows(data: Data, size: int) -> dict[str, Any]:
    """The same of an output with several rows, with the names of what is written."""
    made = in_rows(data, size)
    written = made.labels("cross")[0][:-1]
    return {**_laid_out(made.source), "steps": made.steps, "written": written}


def _laid_out(layout: Layout) -> dict[str, Any]:
    """The names of a source's tokens, and where its delimiters stand."""
    return {"source": layout.labels(), "closes": layout.closes}


def _head(
    matrix: np.ndarray,
    site: Site,
    layer: int,
    head: int,
    bias: LineBias | None,
    table: KeptLines,
    near: Problem,
) -> dict[str, Any]:
    """One head: its attention in 256 steps, and its lines."""
    seen = np.clip(np.rint(matrix * 255), 0, 255).astype(np.uint8)
    found: dict[str, Any] = {"attention": as_text(seen), "lines": [], "sink": False}
    layers = bias.sites.get(site) if bias is not None else None
    if not layers:
        return found
    kept = table.get((site, layer, head)) or table.get((site, LAST, 0), [])
    found["lines"] = [_line(line, site, near, kept) for line in layers[layer][head]]
    elsewhere = bias.elsewhere(site, layer) if bias is not None else None
    found["elsewhere"] = not found["lines"] and bool(elsewhere and elsewhere[head])
    resting = bool(found["lines"]) and all(map(rests, found["lines"]))
    found["sink"] = resting or found["elsewhere"]
    return found


def rests(line: Mapping[str, Any]) -> bool:
    """Does a head on this line look for nothing: is it a sink, or does it stay on a delimiter?"""
    stays = line["direction"] == "vert" and line["offset"] <= 0 and line["segment"] != CORNER
    return stays or line["note"] == "sink"


def _line(line: Line, site: Site, near: Problem, kept: Sequence[Kept]) -> dict[str, Any]:
    name = line.label(site)
    entry = next((one for one in kept if one.line == name), None)
    return {
        **asdict(line),
        "label": name.replace("-", "−"),
        "words": in_words(line, site, near.source),
        "weight": entry.weight if entry else None,
        "note": entry.note if entry else "",
    }


def line_count(run: Run) -> str:
    """How many heads follow a line, in words; empty for a run without lines."""
    try:
        return run.bias().summary
    except AbcError:
        return ""
