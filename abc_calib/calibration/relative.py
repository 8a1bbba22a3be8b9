"""Diagonal lines as clipped relative positions (paper, section 7: ABC as RPE).

A diagonal adds to a score what depends on the offset ``j - i`` alone, so a head with no other
lines is a relative bias: one number an offset, the same for all offsets beyond the farthest
line. That is the form of T5's bias, with one bucket an offset, and of Shaw's clipped distances.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from abc_calib.errors import UsageError
from abc_calib.files import write_text
from abc_calib.geometry import CORNER, Line, LineBias, Site


@dataclass(frozen=True)
class RelativeTable:
    """The bias of one head by offset: ``values[clip + o]`` where ``o`` is ``j - i`` clipped.

    ``values`` are ``2 clip + 1`` numbers, -inf where closed. ``edge``: with ``stay``, what an
    offset names before the first key falls on that key (lines that count from a segment stay
    inside it); with ``leave`` on none.
    """

    site: Site
    layer: int
    head: int
    clip: int
    values: tuple[float, ...]
    edge: str

    def dense(self, rows: int, keys: int) -> np.ndarray:
        """The bias as a matrix ``(i, j)``, before causality: -inf where closed."""
        values = np.array(self.values)
        i, j = np.indices((rows, keys))
        bias = values[np.clip(j - i, -self.clip, self.clip) + self.clip]
        if self.edge == "stay":
            for row in range(rows):
                last = row if self.site == "self" else keys - 1
                for offset in range(-self.clip + 1, self.clip):
                    key = min(max(row + offset, 0), last)
                    bias[row, key] = max(bias[row, key], values[offset + self.clip])
        return bias


def relative_tables(bias: LineBias, site: Site = "self", skip: bool = False) -> list[RelativeTable]:
    """The table of every head of a site whose lines are all diagonals, or that has none.

    Raises ``UsageError`` for a head with other lines, or with ``skip`` leaves it out.
    """
    tables = []
    for layer, heads in enumerate(bias.sites.get(site, ())):
        for head, lines in enumerate(heads):
            other = [line for line in lines if not _is_relative(line, site)]
            if other and not skip:
                raise UsageError(
                    f"{site} layer {layer} head {head} follows {other[0].label(site)}, which is no "
                    "function of j - i: only diagonals of one key a row that count from the "
                    "matrix are; calibrate with dirs diag, or leave such heads out (--skip)"
                )
            if not other:
                tables.append(_table(lines, site, layer, head, bias.off_line_bias))
    if not tables:
        raise UsageError(f"the bias has no {site}-attention head of diagonals alone")
    return tables


def _is_relative(line: Line, site: Site) -> bool:
    counted = line.segment == CORNER or site != "cross"
    return line.direction == "diag" and line.stride == 1 and counted


def _table(
    lines: tuple[Line, ...], site: Site, layer: int, head: int, off: float | None
) -> RelativeTable:
    clip = max((abs(line.offset) for line in lines), default=0) + 1
    outside = 0.0 if not lines else -math.inf if off is None else off
    values = [outside] * (2 * clip + 1)
    for line in lines:
        values[clip + line.offset] = max(values[clip + line.offset], line.value)
    stay = any(line.segment != CORNER for line in lines)
    return RelativeTable(site, layer, head, clip, tuple(values), "stay" if stay else "leave")


def write_tables(tables: list[RelativeTable], path: Path) -> None:
    """Write ``.json`` (a list of tables, null for closed) or ``.csv`` (a row an offset)."""
    if path.suffix == ".json":
        rows: list[dict[str, Any]] = []
        for table in tables:
            values = [None if math.isinf(v) else v for v in table.values]
            rows.append({**asdict(table), "values": values})
        write_text(path, json.dumps(rows, indent=2) + "\n")
    elif path.suffix == ".csv":
        lines = ["site,layer,head,edge,offset,value"]
        for t in tables:
            start = f"{t.site},{t.layer},{t.head},{t.edge}"
            lines += [f"{start},{k - t.clip},{value}" for k, value in enumerate(t.values)]
        write_text(path, "\n".join(lines) + "\n")
    else:
        raise UsageError(f"{path}: a table is written as .json or .csv")
